"""From the cells' Parquet files to two small ones: `problems.parquet` and `summary.parquet`.

Definitions (both conventions of the paper, never mixed):

- A *full block* is a target call with exactly gamma drafted tokens. An end of sequence or the output limit inside a
  kept block cuts it there: `accepted` counts the drafted tokens that were emitted, nothing after the cut counts, and
  the block still counts as full because gamma tokens were drafted for it.
  Of trees every call with a drafted tree counts as full, and gamma stands for the levels of a tree. They have no
  single-draft measures: `be`, `be_expected` and `ds` are NaN, as the `_eagle` ones are of chains.
- `be`, single-draft block efficiency: mean over full blocks of accepted + 1.
- `be_expected`: the same with accepted replaced by its mean over the rule's coin flips, given the drafted tokens
  (`expected_accepted` of the trace). It estimates the same number as `be` with less variance.
- `be_eagle`: mean over all calls of accepted, the bonus token not counted. `be_eagle_expected`: the same with
  `expected_accepted` in its place, so with less variance.
- `ds`, single-draft decoding speed: full blocks * gamma / decode seconds. `ds_eagle` = `tokens_per_s`: output tokens /
  decode seconds. Decode seconds are the sum of draft, verify and overhead times over the cell's calls.
- `tokens_per_call`: output tokens / target calls, over all blocks.
- `accepted_at`: for position (of trees: level) k = 1..gamma, the share of full blocks in which the k-th drafted token
  was kept.
- `accuracy`, `parse_failures`: percent of the answers that could be graded (`graded` of `samples`); NaN if none could.
  `score_<name>`: the same for a benchmark's further scores; NaN in cells of benchmarks without them.
- `alpha`, `tv_pi_p`, ...: means over the positions at which the rule decided, i.e. up to and including the first
  rejection; later positions of a block hang on a discarded prefix and say nothing about the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from specloss import __version__ as VERSION
from specloss.common.files import FileError, check_file, config_hash, replacing
from specloss.experiment.cells import GRADED, STEPS
from specloss.experiment.completeness import WHOLE, cell_status, damage
from specloss.experiment.metrics import EAGLE, METRICS, with_derived
from specloss.experiment.schema import DISTORTION
from specloss.experiment.study import Study

SUMMARY, PROBLEMS = "summary.parquet", "problems.parquet"
KEYS = ["pair", "benchmark", "method", "param", "seed"]

SCORE = "score_"  # before the name of a further score (`specloss.benchmarks.Grade`)


def summarise(experiment_json: Path, results: Path) -> pd.DataFrame:
    """Write both files below `results/<exp>/` and return the summary: a row per expected cell, in their order.

    `status` is "whole", or why the cell is missing; a missing cell's numbers are all NaN.
    """
    study = Study.read(experiment_json)
    summary, problems = measure(study, Path(results))
    folder = Path(results) / study.name
    _write(problems, folder / PROBLEMS, study)
    _write(summary, folder / SUMMARY, study)
    return summary


def measure(study: Study, results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The summary and the problems of a study's cells, which may be some of an experiment's, from what is on disk."""
    status = [cell_status(cell, results) for cell in study.cells]
    try:
        problems = _problems(study, results, status)
    except duckdb.Error:  # a file with a good footer and bad pages: that cell is missing, the others are not
        cells = zip(study.cells, status, strict=True)
        status = [(damage(cell, results) or WHOLE) if why == WHOLE else why for cell, why in cells]
        problems = _problems(study, results, status)
    status = _drop_uneven(study, problems, status)
    whole = [number for number, why in enumerate(status) if why == WHOLE]
    problems = problems[problems["cell"].isin(whole)].reset_index(drop=True)
    summary = _summary(study, problems, status)
    keys = pd.DataFrame([{k: getattr(cell, k) for k in KEYS} for cell in study.cells])
    problems = pd.concat([keys.loc[problems["cell"]].reset_index(drop=True), problems.drop(columns="cell")], axis=1)
    return summary, problems


def read_summary(experiment_json: Path, results: Path) -> pd.DataFrame:
    """`summary.parquet` of the experiment. FileNotFoundError says how to make it."""
    return _read(experiment_json, results, SUMMARY)


def read_problems(experiment_json: Path, results: Path) -> pd.DataFrame:
    """`problems.parquet` of the experiment: a row per (complete cell, problem), with the sums behind ratios."""
    return _read(experiment_json, results, PROBLEMS)


def _read(experiment_json: Path, results: Path, name: str) -> pd.DataFrame:
    path = Path(results) / Study.read(experiment_json).name / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `specloss summarise` first")
    check_file(path)
    try:
        return pq.read_table(path).to_pandas()
    except pa.ArrowException as error:
        raise FileError(f"{path}: not a Parquet file: {' '.join(str(error).split())}") from None


def _problems(study: Study, results: Path, status: Sequence[str]) -> pd.DataFrame:
    """A row per (cell number, problem). One scan of each kind of file over all whole cells."""
    cells = enumerate(zip(study.cells, status, strict=True))
    folders = {str(cell.folder(results)): number for number, (cell, why) in cells if why == WHOLE}
    if folders:
        return _scan(folders, study)
    counts = ["cell", "index", "problem", "samples", "graded", "correct", "parsed", "blocks", *_step_sums(study)]
    return pd.DataFrame({name: pd.Series(dtype=str if name == "problem" else float) for name in counts})


def _scan(folders: dict[str, int], study: Study) -> pd.DataFrame:
    with duckdb.connect() as db:
        db.register("folders", pd.DataFrame({"folder": list(folders), "cell": list(folders.values())}))
        for name in (STEPS, GRADED):
            view, paths = Path(name).stem, [f"{folder}/{name}" for folder in folders]
            db.read_parquet(paths, filename=True).create_view(view)
        sums = _step_sums(study)
        # of a tree, the levels at which siblings were tried
        decided = "coalesce(list_max(depth), 0)" if study.tree else "least(len(emitted), drafted)"
        summed = ", ".join(f"({expression})::double as {name}" for name, expression in sums.items())
        named = db.sql("select distinct unnest(map_keys(scores)) as name from graded order by name").fetchall()
        scores = "".join(f", sum((scores['{name}'])::int) as \"{SCORE}{name}\"" for (name,) in named)
        none_is_zero = ", ".join(f"case when blocks is null then 0 else {name} end as {name}" for name in sums)
        return db.sql(
            f"""
            with calls as (
                select filename, index, count(*) as blocks, {summed}
                from (select *, {decided} as decided from steps)
                group by all
            ), answers as (
                select filename, index, min(problem) as problem, count(*) as samples, count(correct) as graded,
                       coalesce(sum(correct::int), 0) as correct, coalesce(sum(parsed::int), 0) as parsed{scores}
                from graded group by all
            )
            select folders.cell, answers.* exclude (filename),
                   coalesce(blocks, 0) as blocks, {none_is_zero}
            from answers
            join folders on answers.filename = folders.folder || '/{GRADED}'
            left join calls on calls.filename = folders.folder || '/{STEPS}' and calls.index = answers.index
            order by folders.cell, answers.index
            """
        ).df()


def _step_sums(study: Study) -> dict[str, str]:
    """Columns of `problems.parquet` and the SQL that sums each over a problem's calls. NULL: not in the trace."""
    gamma = study.gamma
    full = "drafted > 0" if study.tree else f"drafted = {gamma}"
    sums = {
        "full_blocks": f"count(*) filter ({full})",
        "accepted": "sum(accepted)",
        "expected_sum": "sum(expected_accepted::double)",
        "accepted_full": f"sum(case when {full} then accepted else 0 end)",
        "be_sum": f"sum(case when {full} then accepted + 1 else 0 end)",
        "be_expected_sum": f"sum(case when {full} then expected_accepted::double + 1 else 0 end)",
        "tokens": "sum(len(emitted))",
        "draft_s": "sum(draft_ms::double) / 1000",
        "verify_s": "sum(verify_ms::double) / 1000",
        "overhead_s": "sum(overhead_ms::double) / 1000",
        "decided": "sum(decided)",
    }
    for name in DISTORTION:
        terms = (f"case when decided >= {k} then {name}[{k}]::double else 0 end" for k in range(1, gamma + 1))
        sums[f"{name}_sum"] = _if_traced(name, " + ".join(terms))
    for k in range(1, gamma + 1):
        sums[f"accepted_at_{k}"] = f"count(*) filter ({full} and accepted >= {k})"
    return sums


def _if_traced(column: str, term: str) -> str:
    return f"case when count({column}) = count(*) then sum({term}) end"


def _drop_uneven(study: Study, problems: pd.DataFrame, status: list[str]) -> list[str]:
    """Mark cells whose problems differ from those of other cells of their pair and benchmark: they cannot be paired.

    The largest set counts as right, then the most frequent, then the first. A cell with fewer answers per problem than
    another is marked, too.
    """
    sets = {number: frozenset(cell) for number, cell in problems.groupby("cell")["index"]}
    answers = problems.groupby("cell")["samples"].sum()
    by_place: dict[tuple[str, str], list[int]] = {}
    for number in sets:
        by_place.setdefault((study.cells[number].pair, study.cells[number].benchmark), []).append(number)
    status = list(status)
    for numbers in by_place.values():
        seen = Counter(sets[number] for number in numbers)
        expected = max(seen, key=lambda problems: (len(problems), seen[problems]))
        most = max(answers[number] for number in numbers if sets[number] == expected)
        for number in numbers:
            found = sets[number]
            if len(found) < len(expected):
                status[number] = f"only {len(found)} of {len(expected)} problems"
            elif found != expected:
                status[number] = (
                    f"{len(found - expected)} of its {len(found)} problems are not those of the other cells"
                )
            elif answers[number] < most:
                status[number] = f"only {answers[number]:.0f} of {most:.0f} answers"
    return status


def _summary(study: Study, problems: pd.DataFrame, status: Sequence[str]) -> pd.DataFrame:
    rows = pd.DataFrame([{k: getattr(cell, k) for k in KEYS} | {"key": cell.key} for cell in study.cells])
    rows["param"] = rows["param"].astype(float)
    rows["status"] = status
    numbers = problems.drop(columns=["problem", "index"])
    sums = numbers.groupby("cell").sum(skipna=False).reindex(rows.index).astype(float)
    rows["problems"] = problems.groupby("cell").size().reindex(rows.index).astype(float)
    rows = pd.concat([rows, _ratios(sums, study)], axis=1)
    at = sums[[f"accepted_at_{k}" for k in range(1, study.gamma + 1)]].div(sums["full_blocks"], axis=0)
    rows["accepted_at"] = [None if np.isnan(shares).any() else list(shares) for shares in at.to_numpy()]
    return rows


def _ratios(sums: pd.DataFrame, study: Study) -> pd.DataFrame:
    sums = with_derived(sums, study.gamma)
    ratios = {name: metric.of(sums) for name, metric in METRICS.items()}
    columns = {
        "samples": sums["samples"],
        "graded": sums["graded"],
        **{name: ratios.pop(name) for name in ("accuracy", "parse_failures")},
        **{name: 100 * sums[name] / sums["graded"] for name in sums if name.startswith(SCORE)},
        **{name: sums[name] for name in ("blocks", "full_blocks", "tokens", "seconds")},
        **ratios,
    }
    for part in ("draft", "verify", "overhead"):
        columns[f"{part}_share"] = sums[f"{part}_s"] / sums["seconds"]
    for name in DISTORTION:
        columns[name] = sums[f"{name}_sum"] / sums["decided"]
    columns |= dict.fromkeys(EAGLE if study.tree else EAGLE.values(), np.nan)
    return pd.DataFrame(columns).replace([np.inf, -np.inf], np.nan)


def _write(frame: pd.DataFrame, path: Path, study: Study) -> None:
    """Write Parquet atomically, with its provenance in the file's metadata."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    made = {"specloss_version": VERSION, "config_hash": config_hash(study.config), "source": study.source}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **made})
    with replacing(path) as part:
        pq.write_table(table, part)
