"""A checkpoint in the published layout, from its folder to graded cells: loaded, drafting, verified, summarised."""

import shutil

import numpy as np
import pytest
import torch
import yaml
from eagle3_cases import checkpoint, save, tiny_target
from exactness import rounding
from places import DEMO, ROOT

from specloss import decode, load_pair
from specloss.analysis.evidence.summary import summarise
from specloss.cluster.output import write_cell
from specloss.cluster.worker import CellOutput
from specloss.common.provenance import package_versions
from specloss.decoding.cell import count_problems, decode_cell
from specloss.experiment.plan import make_plan
from specloss.models import ModelError
from specloss.scoring.score import score_cell

TREE = {"total_token": 16, "depth": 3, "top_k": 4}


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def folders(request, tmp_path_factory):
    """A target of 8 layers with the demo's tokenizer, its head as `pytorch_model.bin`, and the head's tensors."""
    root = tmp_path_factory.mktemp("published")
    tiny_target(request.param).save_pretrained(root / "target")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / "target" / name, root / "target" / name)
    config, tensors = checkpoint(draft_vocab=24)
    return root / "target", save(root / "head", config, tensors, kind="bin"), tensors


def test_a_reduced_vocabulary_with_offsets_drafts_and_verifies(folders):
    target, head, tensors = folders
    pair = load_pair(target, head, kind="eagle3", dtype="float64", device="cpu")
    draftable = set(tensors["t2d"].nonzero().squeeze(1).tolist())
    assert pair.draft.layers == (2, 4, 5) and len(draftable) == 24 < pair.vocab == 40
    prompts = ["12+34?", "5*6-7?", "1"]
    for method, param, temperature in (("standard_sd", None, 0), ("cos", 0.6, 1.0), ("typical_acceptance", 0.2, 1.0)):
        decoded = decode(
            pair, prompts, method=method, param=param, temperature=temperature, tree=TREE, max_new_tokens=12
        )
        steps = decoded.steps.to_pandas()
        assert {token for tokens in steps["token"] for token in tokens} <= draftable
        assert steps["drafted"].max() > 5 and steps["accepted"].max() > 0
        if temperature == 0:
            for prompt, output in zip(prompts, decoded.token_ids, strict=True):
                ids = pair.tokenizer(prompt).input_ids
                with torch.inference_mode():
                    best = pair.target(torch.tensor([ids + output])).logits[0, len(ids) - 1 : -1].argmax(-1)
                assert best.tolist() == output


def test_a_renamed_tensor_is_named(folders, tmp_path):
    target, _, tensors = folders
    config, _ = checkpoint(draft_vocab=24)
    renamed = {("fuse.weight" if name == "fc.weight" else name): x for name, x in tensors.items()}
    head = save(tmp_path / "head", config, renamed)
    with pytest.raises(ModelError, match=r"missing fc\.weight; unexpected fuse\.weight"):
        load_pair(target, head, kind="eagle3", device="cpu")


def test_cells_on_trees_go_through_to_the_summary(tree_head, tree_pair, tmp_path):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values |= {"name": "trees", "results": str(tmp_path / "results"), "reports": str(tmp_path / "reports")}
    values["pairs"] = {"demo": {"kind": "eagle3", "target": str(DEMO / "target"), "draft": tree_head}}
    values["benchmarks"] = {"l2": {"task": "chain", "options": {"level": 2, "problems": 4}, "max_new_tokens": 20}}
    values["methods"] = {"spec_cascade": {"params": [0.5]}, "cos": {"params": [0.6]}}
    values["seeds"], values["decoding"] = [0], {"tree": TREE, "temperature": 0.7}
    plan = make_plan(values, "trees.yaml")
    plan.write()
    for cell in plan.cells:
        steps, generations = decode_cell(tree_pair, cell, range(count_problems(cell)), batch_size=3)
        made = tree_pair.provenance() | {"packages": package_versions()}
        write_cell(cell, plan.results, [CellOutput(steps, generations, 1.0, made, ())])
        score_cell(cell.folder(plan.results))
    summary = summarise(plan.file, plan.results).set_index("method")
    assert list(summary.index) == ["standard_sd", "spec_cascade", "min_p_sampling", "cos"]
    assert (summary["status"] == "whole").all()
    for column in ("be_eagle", "be_eagle_expected", "ds_eagle", "tokens_per_call", "accuracy", "alpha", "tv_pi_p"):
        assert summary[column].notna().all(), column
    exact = summary["tv_pi_target"][["standard_sd", "min_p_sampling"]]
    np.testing.assert_allclose(exact, 0, atol=rounding(torch.ones(1), 4 * tree_pair.vocab))
    assert summary["tv_pi_p"]["cos"] > 0.01
    assert summary["tokens_per_call"]["cos"] > 1
