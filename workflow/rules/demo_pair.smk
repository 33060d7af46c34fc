"""Train the demo pair again: `snakemake --cores 1 train_demo`. The shipped weights are not overwritten."""


rule train_demo:
    input:
        "config/train_demo.yaml",
    output:
        expand(
            f"{PLAN.results}/train_demo/{{model}}/{{file}}",
            model=["target", "draft"],
            file=["model.safetensors", "config.json", "tokenizer.json", "training.json"],
        ),
    params:
        out=f"{PLAN.results}/train_demo",
    shell:
        "specloss train-demo {input:q} {params.out:q}"
