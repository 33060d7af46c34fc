"""Decode and score: the cells."""


# A trivial Slurm job occupies its allocation for 10 seconds and more. Not a group either: each member would be a step
# with a Snakemake of its own
localrules:
    score,
    summarise,


rule decode:
    input:
        ancient(lambda wildcards: PLAN.batch_models(wildcards.batch)),
    output:
        touch(f"{RESULTS}/batches/{{batch}}.done"),
    log:
        f"{RESULTS}/logs/decode/{{batch}}.log",
    # before any scoring: the models must not wait for it
    priority: 10
    params:
        batch=f"{RESULTS}/batches/{{batch}}.json",
        results=str(PLAN.results),
    shell:
        "specloss decode {params.batch:q} --results {params.results:q} --log {log:q}"


rule score:
    input:
        lambda wildcards: PLAN.batch_marks(wildcards.cell),
    output:
        f"{RESULTS}/cells/{{cell}}/graded.parquet",
    benchmark:
        f"{BENCHMARKS}/score/{{cell}}.tsv"
    threads: lambda wildcards: PLAN.scoring_threads(wildcards.cell)
    params:
        folder=f"{RESULTS}/cells/{{cell}}",
        grading=lambda wildcards: PLAN.grading(wildcards.cell),  # a change grades again
    shell:
        "specloss score {params.folder:q} --workers {threads}"


rule summarise:
    input:
        PLAN.graded(),
        EXPERIMENT,
    output:
        f"{RESULTS}/summary.parquet",
        f"{RESULTS}/problems.parquet",
    benchmark:
        f"{BENCHMARKS}/summarise.tsv"
    params:
        results=str(PLAN.results),
    shell:
        "specloss summarise {EXPERIMENT:q} --results {params.results:q}"
