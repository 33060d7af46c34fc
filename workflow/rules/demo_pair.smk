"""Train the demo's models again, e.g. `snakemake --cores 1 train_demo`. The shipped weights are not overwritten."""


rule train_demo:
    input:
        "config/train_demo.yaml",
    output:
        expand(
            f"{PLAN.results}/train_demo/{{model}}/{{file}}",
            model=["target", "draft"],
            file=["model.safetensors", "config.json", "tokenizer.json"],
        ),
        f"{PLAN.results}/train_demo/training.json",
    benchmark:
        f"{BENCHMARKS}/train_demo.tsv"
    params:
        out=f"{PLAN.results}/train_demo",
    shell:
        "specloss train-demo {input:q} {params.out:q}"


rule train_demo_eagle3:
    input:
        "config/train_demo_eagle3.yaml",
    output:
        expand(
            f"{PLAN.results}/train_demo_eagle3/{{file}}",
            file=["model.safetensors", "config.json", "training.json"],
        ),
    benchmark:
        f"{BENCHMARKS}/train_demo_eagle3.tsv"
    params:
        out=f"{PLAN.results}/train_demo_eagle3",
    shell:
        "specloss train-demo-eagle3 {input:q} {params.out:q}"
