"""The sections of a config, each a pydantic model whose fields are the keys of `config/*.yaml`, with their meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from specloss.common.section import Section
from specloss.experiment.names import check_experiment_name
from specloss.models.tree_shape import TreeShape

USUAL_TREE = TreeShape()


class Pair(Section):
    """A target and what drafts for it. All pairs of an experiment are of one kind."""

    kind: Literal["draft", "eagle3"] = Field(
        "draft", description="draft: a separate model that drafts chains; eagle3: an EAGLE-3 head that drafts trees"
    )
    target: str = Field(description="the target: local folder, GGUF file, hub id, or a GGUF file on the hub")
    draft: str = Field(description="the draft model, as for the target; or the head, a folder or hub id")
    target_revision: str | None = Field(None, description="commit or tag of the target on the hub")
    draft_revision: str | None = Field(None, description="commit or tag of the draft or head on the hub")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="of weights and forward passes; auto: each model's own. Tokens depend on it"
    )
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|balanced|balanced_low_0|sequential)$")] = Field(
        "auto",
        description="auto (a GPU if there is one), cpu, cuda, cuda:N, or a device map of transformers; recorded with "
        "each cell, but not part of its identity",
    )
    attention: Literal["sdpa", "eager"] = Field(
        "sdpa", description="attention implementation of transformers: one of the two that take a 4-D mask"
    )
    eos: list[int | str] | None = Field(
        None,
        description="end-of-sequence tokens, as ids or texts; by default those of the target's generation_config, "
        "else of its config, else of its tokenizer",
    )
    context: Annotated[int, Field(ge=2)] | None = Field(
        None,
        exclude_if=lambda context: context is None,  # cells of configs without the key stay what they are
        description="the most tokens of a text, prompt and output; by default what both models can hold. Models with "
        "longrope need it: their original context, or less",
    )
    trust_remote_code: bool = Field(False, description="run code that comes with a checkpoint")


class Benchmark(Section):
    """A named set of problems."""

    task: str = Field(description="benchmark module, see specloss.benchmarks")
    options: dict[str, Any] = Field({}, description="arguments of the benchmark's load()")
    grading: dict[str, Any] = Field(
        {}, description="arguments of the benchmark's grade(); a change regrades without decoding"
    )
    chat: Literal["template", "plain"] = Field(
        "template",
        description="how messages become text: by the target's chat template; or plain, their contents concatenated, "
        "for models without a template",
    )
    max_new_tokens: Annotated[int, Field(ge=1)] = Field(description="output limit for each problem")


class Method(Section):
    """A verification rule over a grid of its parameter. The key in `methods` is its label in paths and tables."""

    rule: str | None = Field(None, description="rule name; the label if not given")
    params: list[float] | None = Field(None, description="grid of the rule's parameter; omit for rules without one")
    options: dict[str, Any] = Field({}, description="options of the rule, e.g. residual, coupling")


class TreeSection(Section):
    """The trees that an EAGLE-3 head drafts: `specloss.models.tree_shape.TreeShape`."""

    total_token: int = Field(USUAL_TREE.total_token, description="nodes of a tree, including the last known token")
    depth: int = Field(
        USUAL_TREE.depth, description="rounds in which nodes are expanded; below the root, trees have one level more"
    )
    top_k: int = Field(USUAL_TREE.top_k, description="children of each expanded node, and nodes expanded per round")

    @model_validator(mode="after")
    def _can_grow(self) -> TreeSection:
        TreeShape(self.top_k, self.depth, self.total_token)
        return self


class Decoding(Section):
    """How every cell is decoded. Pairs of kind draft need `gamma`, those of kind eagle3 `tree`."""

    gamma: Annotated[int, Field(ge=1, le=64)] | None = Field(None, description="drafted tokens per block")
    tree: TreeSection | None = Field(None, description="the trees that EAGLE-3 heads draft")
    temperature: Annotated[float, Field(ge=0)] = Field(
        1.0, description="of both models; 0 is greedy, otherwise at least 0.001"
    )
    top_k: Annotated[int, Field(ge=0)] = Field(0, description="of both models; 0 keeps all tokens")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="of both models; 1 keeps all tokens")
    batch_size: Annotated[int, Field(ge=1)] = Field(
        32, description="rows decoded together; never changes a token in float32, changes a few in bfloat16 and float16"
    )
    trace: Literal["full", "light"] = Field(
        "full", description="full logs the distortion columns; light leaves them null"
    )


class Cluster(Section):
    """Where cells run."""

    actors: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="number of actors, each holding a pair; auto: as many as fit the GPUs, or at most two on a CPU",
    )
    gpus_per_pair: Annotated[float, Field(ge=0)] | None = Field(
        None, description="GPUs of one actor; by default 1 on a machine with GPUs, else 0"
    )
    cells_per_job: Annotated[int, Field(ge=1)] = Field(1, description="cells per decode job")
    problems_per_task: Annotated[int, Field(ge=1)] = Field(
        512, description="a cell with more problems is split over idle actors in chunks of this size"
    )
    address: str | None = Field(None, description="address of a running Ray cluster; it is used and never stopped")


class Screen(Section):
    """Every rule evaluated on one recorded decode: `specloss screen`."""

    top_k: Literal["full"] | Annotated[int, Field(ge=1)] = Field(
        64, description="how many of the most probable tokens of p and q to record at each position; full records all"
    )
    grid: Literal["all", "experiment"] = Field(
        "all",
        description="all: every registered rule over its grid, and the experiment's settings; experiment: the latter",
    )


class Tracking(Section):
    """MLflow."""

    uri: str | None = Field(
        None,
        description="tracking server or store, without a password; by default MLFLOW_TRACKING_URI, else a SQLite file",
    )


class Analysis(Section):
    """How verdicts are reached."""

    margin: Annotated[float, Field(gt=0, lt=100)] = Field(
        2.0, description="accuracy points that a setting may lose against its baseline and still count as not worse"
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        0.95, description="of the intervals; each one-sided claim may be wrong with probability (1 - confidence) / 2"
    )
    multiplicity: Literal["holm", "bh", "none"] = Field(
        "holm",
        description="correction over a table's comparisons: holm (family-wise error), bh (false discovery rate), none",
    )
    power: Annotated[float, Field(ge=0.5, lt=1)] = Field(
        0.8, description="for the smallest detectable effect: the probability with which it would have been detected"
    )
    speed: Literal["tokens_per_call", "be", "tokens_per_s"] = Field(
        "tokens_per_call",
        description="what faster means: output tokens per target call, BE, or measured output tokens per second "
        "(whose interval ignores how times vary from run to run)",
    )
    single_draft: str | None = Field(
        None, description="in an EAGLE-3 experiment: name of the single-draft experiment that Table 7 compares it with"
    )

    @field_validator("single_draft")
    @classmethod
    def _is_an_experiment(cls, name: str | None) -> str | None:
        if name is not None:
            check_experiment_name(name)
        return name


# braces are wildcards to Snakemake, the other characters to readers of Parquet files
Folder = Annotated[str, Field(pattern=r"^[^{}*?\[\]\n]+$")]
