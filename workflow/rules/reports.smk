"""Tables, figures, the report and MLflow: all from the summary."""

import os
import shlex

from specloss.analysis.outputs import FIGURES, FIGURE_SUFFIXES, JOINED_TABLES, TABLE_SUFFIXES, tables_for
from specloss.experiment.study import Study
from specloss.reviewer.names import cells_at

SUMMARY = rules.summarise.output
OPTIONS = f"--results {shlex.quote(str(PLAN.results))}"
OTHER = PLAN.experiment.analysis.single_draft


localrules:
    table,
    table_cell,
    figure,
    report,
    track,


rule table:
    input:
        SUMMARY,
    output:
        report(
            f"{REPORTS}/tables/{{name}}.csv",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{name}"},
        ),
        [f"{REPORTS}/tables/{{name}}.{suffix}" for suffix in TABLE_SUFFIXES if suffix != "csv"],
    benchmark:
        f"{BENCHMARKS}/table/{{name}}.tsv"
    shell:
        "specloss table {wildcards.name} {EXPERIMENT:q} {REPORTS:q}/tables {OPTIONS}"


if OTHER:  # tables that join this experiment, of trees, with that one, of chains

    ruleorder: joined_table > table

    rule joined_table:
        input:
            SUMMARY,
            PLAN.summary_of(OTHER),
        output:
            [f"{REPORTS}/tables/{{name}}.{suffix}" for suffix in TABLE_SUFFIXES],
        benchmark:
            f"{BENCHMARKS}/table/{{name}}.tsv"
        wildcard_constraints:
            name="|".join(JOINED_TABLES),
        localrule: True
        params:
            other=str(PLAN.results / OTHER / "experiment.json"),
        shell:
            "specloss table {wildcards.name} {params.other:q} {EXPERIMENT:q} {REPORTS:q}/tables {OPTIONS}"


rule figure:
    input:
        SUMMARY,
    output:
        report(
            f"{REPORTS}/figures/{{name}}.svg",
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{name}"},
        ),
        [f"{REPORTS}/figures/{{name}}.{suffix}" for suffix in FIGURE_SUFFIXES if suffix != "svg"],
    benchmark:
        f"{BENCHMARKS}/figure/{{name}}.tsv"
    shell:
        "specloss figure {wildcards.name} {EXPERIMENT:q} {REPORTS:q}/figures {OPTIONS}"


rule report:
    input:
        SUMMARY,
        expand(rules.table.output, name=tables_for(Study.from_dict(PLAN.content))),
        expand(rules.joined_table.output, name=JOINED_TABLES)
        if OTHER and os.path.exists(PLAN.summary_of(OTHER))
        else [],
        expand(rules.figure.output, name=FIGURES),
    output:
        report(f"{REPORTS}/index.html", caption="../report/page.rst", category="Page"),
    benchmark:
        f"{BENCHMARKS}/report.tsv"
    shell:
        "specloss report {EXPERIMENT:q} {REPORTS:q} {OPTIONS}"


rule track:
    input:
        rules.report.output,
    output:
        touch(f"{RESULTS}/tracked.txt"),
    shell:
        "specloss track {EXPERIMENT:q} {REPORTS:q} {OPTIONS}"


rule table_cell:  # one cell of one table: `specloss cell` prints the same and decodes no more than this
    input:
        lambda wildcards: map(PLAN.graded_file, cells_at(PLAN, wildcards.path)),
    output:
        multiext(f"{REPORTS}/cells/{{path}}", ".txt", ".csv"),
    wildcard_constraints:
        path=r"table=\d+/pair=[^/]+/benchmark=[^/]+/method=[^/]+/param=[^/]+/seed=(?:all|\d+)",
    params:
        names=lambda wildcards: [f"--{part.replace('=', ' ')}" for part in wildcards.path.split("/")],
        out=f"{REPORTS}/cells/{{path}}",
    shell:
        "specloss cell {EXPERIMENT:q} {params.names} --no-run --out {params.out:q}"
