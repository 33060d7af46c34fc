"""One decoded trace, every rule. `screen` needs no cell of the grid; `screen_report` compares with all of them.

The trace is decoded in the job itself, on the device that the config gives the pair: no Ray.
"""

from specloss.screen import COMPARISON, TABLES as SCREENED
from specloss.screen.places import trace_files, trace_keys

SCREEN = f"{REPORTS}/screen"


localrules:
    screen,
    screen_report,


rule trace:
    input:
        ancient(EXPERIMENT),
        ancient(lambda wildcards: PLAN.made_models(wildcards.pair)),
    output:
        trace_files(PLAN, "{pair}"),
    benchmark:
        f"{BENCHMARKS}/trace/{{pair}}.tsv"
    params:  # a trace is made anew when what determines it changes, not with the rest of the experiment
        traced=lambda wildcards: trace_keys(PLAN, wildcards.pair),
    shell:
        "specloss trace {EXPERIMENT:q} --pair {wildcards.pair:q}"


rule screen:
    input:
        [trace_files(PLAN, pair) for pair in PLAN.experiment.pairs],
        EXPERIMENT,
    output:
        expand(f"{SCREEN}/{{file}}", file=SCREENED),
    benchmark:
        f"{BENCHMARKS}/screen.tsv"
    shell:
        "specloss screen {EXPERIMENT:q} --out {SCREEN:q} --no-decode --no-compare"


rule screen_report:
    input:
        rules.screen.output,
        SUMMARY,
    output:
        expand(f"{SCREEN}/{{file}}", file=COMPARISON),
    shell:
        "specloss screen-report {EXPERIMENT:q} --out {SCREEN:q}"
