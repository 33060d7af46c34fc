"""Figures 2, 4 and 8, computed and not decoded: `snakemake --cores 1 analytic`, or the file of one of them."""

from specloss.analysis.closed_form.analytic import ANALYTIC_FIGURES, ANALYTIC_SUFFIXES

ANALYTIC = str(PLAN.reports.parent / "analytic")


localrules:
    analytic_figure,


rule analytic_figure:
    input:
        "config/analytic.yaml",
    output:
        multiext(f"{ANALYTIC}/{{name}}", *[f".{suffix}" for suffix in ANALYTIC_SUFFIXES]),
    wildcard_constraints:
        name="|".join(ANALYTIC_FIGURES),
    shell:
        "specloss analytic {wildcards.name} {input:q} {ANALYTIC:q}"


rule analytic:
    input:
        expand(rules.analytic_figure.output, name=ANALYTIC_FIGURES),
