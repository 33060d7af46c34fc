"""One self-contained page per experiment: what was found, how to read it, what is missing, how to run it again."""

from __future__ import annotations

import html
import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from specloss import __version__ as VERSION
from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.findings import Finding, check
from specloss.analysis.evidence.summary import SUMMARY
from specloss.analysis.evidence.unsafe import unsafe_benchmarks
from specloss.analysis.figures.catalogue import make_figure
from specloss.analysis.figures.plot import Plot, draw
from specloss.analysis.outputs import FIGURES, JOINED_TABLES, tables_for
from specloss.analysis.report.opening import answers, scope
from specloss.analysis.tables.catalogue import JOINED, make_table
from specloss.analysis.tables.table import BEST, SECOND, Table
from specloss.common.files import config_hash, write_text
from specloss.common.yamlfile import yaml_text
from specloss.experiment.cells import META, Cell, format_param
from specloss.experiment.completeness import WHOLE
from specloss.experiment.study import Study
from specloss.paper import AVERAGE

FEW_PROBLEMS = 30
NO_PARAM = format_param(None)
NUMBER, CLASS_NUMBER = r"[+-]?\d", ' class="number"'  # what begins so is a number
LONG = 45  # characters; a longer text wraps
FRONTIERS = ("fig3_truncation", "fig6_collaborative")


@dataclass(frozen=True)
class Picture:
    """A figure as inline SVG: for a page and for a phone."""

    name: str
    title: str
    reading: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class PageRow:
    """A cell in the list of cells."""

    id: str
    key: str
    status: str

    @property
    def whole(self) -> bool:
        """Whether nothing of it is missing."""
        return self.status == WHOLE


def write_report(experiment_json: Path, results: Path, out: Path) -> Path:
    """Write `out/index.html`; it needs no network and no other file. Returns its path."""
    evidence = Evidence.read(experiment_json, results)
    path = Path(out) / "index.html"
    write_text(path, render(evidence, Path(results)))
    return path


def render(evidence: Evidence, results: Path) -> str:
    """The page as HTML."""
    study = evidence.study
    pictures = [_picture(name, evidence) for name in FIGURES]
    environment = Environment(
        loader=PackageLoader("specloss.analysis.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    configured = study.config.get("results", "results")
    folder = f"{configured}/{study.name}"
    rows = [PageRow(c.id, c.key, s) for c, s in zip(study.cells, evidence.summary["status"], strict=True)]
    return environment.get_template("report.html.j2").render(
        study=study,
        version=VERSION,
        findings=check(evidence),
        opening=opening(evidence, check(evidence)),
        answers=answers(evidence),
        scope=scope(evidence),
        frontiers=[picture for picture in pictures if picture.name in FRONTIERS],
        pictures=[picture for picture in pictures if picture.name not in FRONTIERS],
        tables=[*_tables(evidence, results)],
        rows=rows,
        reasons=_reasons(rows),
        few=few_problems(evidence),
        unsafe=unsafe_benchmarks(study, results),
        runs=how_it_ran(study, results),
        config=yaml_text(study.config),
        config_hash=config_hash(study.config),
        command=f"snakemake --cores all {folder}/cells/<id>/graded.parquet",
        folder=folder,
        results=configured,
        table_html=_table_html,
        commands=lambda table: _commands(table, study),
    )


def _tables(evidence: Evidence, results: Path) -> Iterator[Table]:
    """Those of the experiment, and those that join it with its experiment of chains, if that has been run."""
    study = evidence.study
    yield from (make_table(name, evidence) for name in tables_for(study) if name != "findings")
    other = study.analysis.single_draft
    if other and (results / other / SUMMARY).exists():
        chains = Evidence.read(results / other / "experiment.json", results)
        yield from (JOINED[name](chains, evidence) for name in JOINED_TABLES)


def _commands(table: Table, study: Study) -> list[str]:
    """The command that prints each row's cells, decoding what is missing; none where rows are no settings."""
    data = table.data
    if "method" not in data or table.name in JOINED_TABLES:
        return []
    if re.fullmatch("table[2-5]", table.name):
        return [_command(study, row) for row in data[data["benchmark"] != OVERALL].to_dict("records")]
    rows = data[[name for name in ("pair", "method", "param") if name in data]].drop_duplicates().to_dict("records")
    average = {"benchmark": AVERAGE} if len(study.benchmarks) > 1 else {}
    compared = " --baseline" if table.name in ("verdicts", "gaps") else ""
    return [_command(study, row | average) + compared for row in rows]


def _command(study: Study, row: dict[str, Any]) -> str:
    """`specloss cell` for a setting, or where `param` is lacking or all for a method's grid."""
    grid = row.get("param", OVERALL) == OVERALL
    names = {"table": (3 if grid else 5) if study.tree else (2 if grid else 4)}
    names |= {"pair": row["pair"]} if len(study.pairs) > 1 else {}
    names |= {"benchmark": row["benchmark"]} if "benchmark" in row else {}
    names |= {"method": row["method"]}
    if not (grid or pd.isna(row["param"]) or row["param"] == NO_PARAM):
        names["param"] = format_param(float(row["param"]))
    options = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in names.items())
    return f".venv/bin/specloss cell {shlex.quote(study.source or 'CONFIG')} {options}"


def opening(evidence: Evidence, findings: list[Finding]) -> str:
    """What was run and how the findings came out, in two or three sentences."""
    study, summary = evidence.study, evidence.summary
    whole = summary[summary["status"] == WHOLE]
    counts = {
        name: sum(f.holds == name for f in findings) for name in ("true", "false", "not distinguishable", "missing")
    }
    told = {
        "true": "came out as the paper says",
        "false": "did not",
        "not distinguishable": "cannot be told at this size",
        "missing": "wait for missing cells",
    }
    parts = [f"{counts[name]} {text}" for name, text in told.items() if counts[name]]
    size = (
        f"{whole['tokens'].sum():,.0f} tokens, {whole['problems'].sum():,.0f} answers" if len(whole) else "nothing yet"
    )
    return (
        f"{len(study.settings)} settings of {len(study.methods)} verification methods on {len(study.benchmarks)} "
        f"benchmarks with {_count(len(study.seeds), 'seed')} ({size}; {len(whole)} of {len(summary)} cells). "
        f"Of {len(findings)} findings checked, {', '.join(parts)}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def few_problems(evidence: Evidence) -> list[str]:
    """Benchmarks with too few problems for a percentile interval to be as wide as it should."""
    most = evidence.summary.groupby("benchmark")["problems"].max()
    return [name for name in evidence.study.benchmarks if most[name] < FEW_PROBLEMS]


def how_it_ran(study: Study, results: Path) -> list[tuple[str, int]]:
    """Each different way in which cells were run (code, packages, device; no times), and how many cells it made."""
    counts: dict[str, int] = {}
    for cell in study.cells:
        run = _run_of(cell, results)
        if run is not None:
            counts[run] = counts.get(run, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])


def _run_of(cell: Cell, results: Path) -> str | None:
    try:
        run = json.loads((cell.folder(results) / META).read_text(encoding="utf-8"))["run"]
    except (OSError, json.JSONDecodeError, KeyError):
        return None
    return yaml_text({key: value for key, value in run.items() if not _differs_by_cell(key, value)}, ordered=True)


def _differs_by_cell(key: str, value: Any) -> bool:
    return key == "seed" or isinstance(value, float)


def _reasons(rows: list[PageRow]) -> list[tuple[str, list[PageRow]]]:
    """Missing cells by reason, the most frequent first."""
    groups: dict[str, list[PageRow]] = {}
    for row in rows:
        if not row.whole:
            groups.setdefault(row.status, []).append(row)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _picture(name: str, evidence: Evidence) -> Picture:
    wide, narrow = make_figure(name, evidence, columns=2), make_figure(name, evidence, columns=1)
    drawn = [_inline(wide, name), _inline(narrow, f"{name}-narrow")]
    return Picture(name, wide.title, wide.reading, *drawn)


def _inline(plot: Plot, name: str) -> Markup:
    """The figure's SVG as an element: no prolog, metadata or namespaces, its identifiers its own on the page."""
    buffer = io.BytesIO()
    draw(plot.figure, name, "svg", buffer)
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = (
        re.sub(r'\s(xmlns(:\w+)?|width|height|version)="[^"]*"', "", text[: text.index(">")]) + text[text.index(">") :]
    )
    text = re.sub(r'(\sid="|xlink:href="#|url\(#)', rf"\1{name}-", text)
    for gid, said in plot.hover.items():
        mark = f'<g id="{name}-{gid}"'
        text = text.replace(f"{mark}>", f'{mark} class="point" tabindex="0"><title>{html.escape(said)}</title>', 1)
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{html.escape(plot.title)}"', 1))


def _table_html(table: Table) -> Markup:
    """Sortable tables; numbers are marked so that they align, the best bold and the second underlined."""
    return Markup("".join(_part_html(*part) for part in table.parts))


# Not pandas' Styler: it has neither buttons in heads, by which a table is sorted, nor scopes for those who listen
def _part_html(shown: pd.DataFrame, marks: pd.DataFrame) -> str:
    numeric = [shown[name].astype(str).str.match(NUMBER).mean() >= 0.5 for name in shown]
    head = "".join(
        f'<th scope="col"{CLASS_NUMBER if number else ""}><button type="button">{html.escape(name)}</button></th>'
        for name, number in zip(shown, numeric, strict=True)
    )
    lines = zip(shown.to_numpy().tolist(), marks.to_numpy().tolist(), strict=True)
    body = "".join(f"<tr>{''.join(map(_cell_html, *line, numeric))}</tr>" for line in lines)
    return f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell_html(value: object, mark: str, numeric: bool) -> str:
    text = str(value)
    kind = "missing" if text.startswith("missing") else "number" if numeric else "long" if len(text) > LONG else "text"
    tag = {BEST: "b", SECOND: "u"}.get(mark)
    inner = html.escape(text)
    return f'<td class="{kind}">{f"<{tag}>{inner}</{tag}>" if tag else inner}</td>'
