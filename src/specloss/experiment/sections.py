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
        "auto", description="weights and forwards; auto: each model's own. Tokens depend on it"
    )
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|balanced|balanced_low_0|sequential)$")] = Field(
        "auto",
        description="auto (a GPU if there is one), cpu, cuda, cuda:N, or a device map of transformers; recorded with "
        "each cell, and no part of its identity",
    )
    attention: Literal["sdpa", "eager"] = Field(
        "sdpa", description="attention implementation of transformers, of those that take a 4-D mask"
    )
    eos: list[int | str] | None = Field(
        None,
        description="end-of-sequence tokens, as ids or texts; none: those of the target's generation_config, else of "
        "its config, else of its tokenizer",
    )
    trust_remote_code: bool = Field(False, description="run code that comes with a checkpoint")


class Benchmark(Section):
    """A named set of problems."""

    task: str = Field(description="benchmark module, see specloss.benchmarks")
    options: dict[str, Any] = Field({}, description="arguments of the benchmark's load()")
    grading: dict[str, Any] = Field(
        {}, description="arguments of the benchmark's grade(); a change grades again, decodes nothing"
    )
    chat: Literal["template", "plain"] = Field(
        "template",
        description="how messages become text: by the target's chat template, or plain, their contents one after the "
        "other, for models without a template",
    )
    max_new_tokens: Annotated[int, Field(ge=1)] = Field(description="output limit for each problem")


class Method(Section):
    """A verification rule over a grid of its parameter. The key in `methods` is its label in paths and tables."""

    rule: str | None = Field(None, description="rule name; the label if not given")
    params: list[float] | None = Field(None, description="grid of the rule's parameter; none for rules without one")
    options: dict[str, Any] = Field({}, description="options of the rule, e.g. residual, coupling")


class TreeSection(Section):
    """The trees that an EAGLE-3 head drafts: `specloss.models.tree_shape.TreeShape`."""

    total_token: int = Field(USUAL_TREE.total_token, description="nodes of a tree, the last known token among them")
    depth: int = Field(
        USUAL_TREE.depth, description="rounds in which nodes are expanded; trees have one level more below the root"
    )
    top_k: int = Field(USUAL_TREE.top_k, description="children of an expanded node, and nodes expanded in a round")

    @model_validator(mode="after")
    def _can_grow(self) -> TreeSection:
        TreeShape(self.top_k, self.depth, self.total_token)
        return self


class Decoding(Section):
    """How every cell is decoded. Pairs of kind draft need `gamma`, those of kind eagle3 `tree`."""

    gamma: Annotated[int, Field(ge=1, le=64)] | None = Field(None, description="drafted tokens per block")
    tree: TreeSection | None = Field(None, description="the trees that EAGLE-3 heads draft")
    temperature: Annotated[float, Field(ge=0)] = Field(1.0, description="of both models; 0 is greedy, else >= 0.001")
    top_k: Annotated[int, Field(ge=0)] = Field(0, description="of both models; 0 keeps all")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="of both models; 1 keeps all")
    batch_size: Annotated[int, Field(ge=1)] = Field(
        32, description="rows decoded together; in float32 never changes a token, in bfloat16 and float16 few"
    )
    trace: Literal["full", "light"] = Field(
        "full", description="full logs the distortion columns; light leaves them null"
    )


class Cluster(Section):
    """Where cells run."""

    actors: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="actors that each hold a pair; auto: as many as the GPUs allow, else at most two",
    )
    gpus_per_pair: Annotated[float, Field(ge=0)] | None = Field(
        None, description="GPUs of one actor; none: 1 on a machine with GPUs, else 0"
    )
    cells_per_job: Annotated[int, Field(ge=1)] = Field(1, description="cells of one decode job")
    problems_per_task: Annotated[int, Field(ge=1)] = Field(
        512, description="a cell with more problems is split over idle actors in chunks of this size"
    )
    address: str | None = Field(None, description="address of a running Ray cluster; it is used and never stopped")


class Screen(Section):
    """One recorded decode, every rule on it: `specloss screen`."""

    top_k: Literal["full"] | Annotated[int, Field(ge=1)] = Field(
        64, description="most probable tokens of p and of q that are recorded at each position; full records all"
    )
    grid: Literal["all", "experiment"] = Field(
        "all", description="all: every registered rule over its grid and the experiment's settings; or the latter alone"
    )


class Tracking(Section):
    """MLflow."""

    uri: str | None = Field(
        None, description="tracking server or store, without a password; none: MLFLOW_TRACKING_URI, else SQLite"
    )


class Analysis(Section):
    """How tables turn numbers into verdicts."""

    margin: Annotated[float, Field(gt=0, lt=100)] = Field(
        2.0, description="accuracy points that a setting may lose against its baseline and still be not worse"
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        0.95, description="of the intervals beside verdicts; a claim errs with at most half of the rest, one-sided"
    )
    multiplicity: Literal["holm", "bh", "none"] = Field(
        "holm",
        description="over a table's comparisons: holm (no claim of the table is wrong), bh (few of them are), none",
    )
    power: Annotated[float, Field(ge=0.5, lt=1)] = Field(
        0.8, description="with which the smallest effect that a size could have found would have been found"
    )
    speed: Literal["tokens_per_call", "be", "tokens_per_s"] = Field(
        "tokens_per_call",
        description="what faster means: output tokens per target call, BE, or measured output tokens per second, "
        "whose interval does not know how times vary from run to run",
    )
    single_draft: str | None = Field(
        None, description="Table 7 of an EAGLE-3 experiment: name of the single-draft experiment to set beside it"
    )

    @field_validator("single_draft")
    @classmethod
    def _is_an_experiment(cls, name: str | None) -> str | None:
        if name is not None:
            check_experiment_name(name)
        return name


# braces are Snakemake's wildcards, the others those of the readers of Parquet files
Folder = Annotated[str, Field(pattern=r"^[^{}*?\[\]\n]+$")]
