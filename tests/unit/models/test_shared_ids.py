"""A pair shares the ids that both models have; its tokenizer and its ends of sequence keep to them, or are refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from places import DEMO
from tokenizers import AddedToken
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import specloss
from specloss.models import ModelError, load_pair
from specloss.models.tokenizers import check_models
from specloss.models.vocabulary import vocabulary_fault

WORDS = {f"w{i}": i for i in range(10)}


@pytest.mark.parametrize(
    "target, draft, added, ends, fault",
    [
        (10, 10, {}, [9], None),
        (16, 12, {}, [9, 2], None),  # padded differently, as Qwen2.5 of 72B and of 0.5B
        (12, 16, {}, [], None),
        (16, 9, {}, [], "share ids 0 to 8 (target 16, draft 9), but the tokenizer has 1 tokens behind, from 'w9' (9)"),
        (9, 16, {}, [], "behind, from 'w9' (9)"),
        (8, 8, {}, [], "has 2 tokens behind, from 'w8' (8)"),
        (12, 10, {"<pad>": 11}, [], "from '<pad>' (11)"),  # the target says it, the draft cannot
        (10, 12, {"<pad>": 11}, [], None),  # the target cannot say it
        (10, 10, {"<pad>": 10}, [2], None),
        (10, 10, {"<pad>": 10}, [10], "end of sequence 10: the models share ids 0 to 9"),
        (16, 12, {}, [2, 12], "end of sequence 12: the models share ids 0 to 11"),
        (16, 12, {}, [-1], "end of sequence -1"),
    ],
)
def test_what_may_lie_behind_the_shared_ids(target, draft, added, ends, fault):
    said = vocabulary_fault(target, draft, WORDS | added, added, ends)
    assert said is None if fault is None else fault in said


@pytest.fixture(scope="module")
def resized(tmp_path_factory):
    """Folders of the demo target with other numbers of ids."""
    folders = {}
    for size in (30, 34, 40):
        folder = tmp_path_factory.mktemp("resized") / str(size)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(DEMO / "target", dtype=torch.float32)
        model.resize_token_embeddings(size)
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(DEMO / "target" / name, folder / name)
        folders[size] = folder
    return folders


def test_padded_vocabularies_share_what_both_have(resized):
    pair = load_pair(resized[40], resized[34], device="cpu")
    assert (pair.vocab, len(pair.tokenizer), pair.eos_ids) == (34, 34, (1,))
    decoded = specloss.decode(pair, ["5+1?"], gamma=2, max_new_tokens=8, temperature=5.0)
    assert max(decoded.token_ids[0]) < 34


@pytest.mark.parametrize("sizes", [(40, 30), (30, 40), (30, 30)])
def test_a_tokenizer_with_ids_that_a_model_lacks_is_refused_before_any_weights_are_read(resized, sizes):
    models = [str(resized[size]) for size in sizes]
    with pytest.raises(ModelError, match=r"share ids 0 to 29 .* tokenizer has 4 tokens behind, from '.+' \(30\) on$"):
        check_models(*models)


@pytest.mark.parametrize("source", ["generation_config", "config", "asked"])
def test_an_end_of_sequence_outside_is_refused_wherever_it_comes_from_and_eos_mends_it(resized, tmp_path, source):
    target = shutil.copytree(resized[40], tmp_path / "target")
    config = json.loads((target / "config.json").read_text())
    (target / "generation_config.json").unlink(missing_ok=True)
    if source == "generation_config":
        GenerationConfig(eos_token_id=[1, 36]).save_pretrained(target)
    elif source == "config":
        (target / "config.json").write_text(json.dumps(config | {"eos_token_id": 36}))
    with pytest.raises(ModelError, match=r"end of sequence 36: the models share ids 0 to 33, .* key eos"):
        load_pair(target, resized[34], device="cpu", eos=[36] if source == "asked" else None)
    assert load_pair(target, resized[34], device="cpu", eos=[1]).eos_ids == (1,)


def test_an_added_token_that_no_model_has_may_stay_and_a_prompt_with_it_is_refused(resized, tmp_path):
    folders = [shutil.copytree(resized[34], tmp_path / name) for name in ("target", "draft")]
    for folder in folders:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.add_tokens([AddedToken("[MINE]", special=True)])
        tokenizer.save_pretrained(folder)
    pair = load_pair(*folders, device="cpu")
    assert len(pair.tokenizer) == 35 and pair.vocab == 34
    assert specloss.decode(pair, ["5+1?"], gamma=2, max_new_tokens=3).token_ids
    with pytest.raises(ValueError, match="has token id 34; the models share ids 0 to 33"):
        specloss.decode(pair, ["5+1?[MINE]"], gamma=2, max_new_tokens=3)
