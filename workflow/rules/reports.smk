"""Tables, figures, the report and MLflow: all from the summary."""

import shlex

from specloss.analysis import FIGURES, tables_for
from specloss.analysis.study import Study

SUMMARY = rules.summarise.output
OPTIONS = f"--results {shlex.quote(str(PLAN.results))}"


localrules:
    table,
    figure,
    report,
    track,


rule table:
    input:
        SUMMARY,
    output:
        multiext(f"{REPORTS}/tables/{{name}}", ".csv", ".md", ".tex"),
    shell:
        "specloss table {wildcards.name} {EXPERIMENT:q} {REPORTS:q}/tables {OPTIONS}"


rule figure:
    input:
        SUMMARY,
    output:
        multiext(f"{REPORTS}/figures/{{name}}", ".svg", ".png", ".csv"),
    shell:
        "specloss figure {wildcards.name} {EXPERIMENT:q} {REPORTS:q}/figures {OPTIONS}"


rule report:
    input:
        SUMMARY,
        expand(rules.table.output, name=tables_for(Study.from_dict(PLAN.content))),
        expand(rules.figure.output, name=FIGURES),
    output:
        f"{REPORTS}/index.html",
    shell:
        "specloss report {EXPERIMENT:q} {REPORTS:q} {OPTIONS}"


rule track:
    input:
        rules.report.output,
    output:
        touch(f"{RESULTS}/tracked.txt"),
    shell:
        "specloss track {EXPERIMENT:q} {REPORTS:q} {OPTIONS}"
