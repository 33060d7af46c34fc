"""A model is a folder, a GGUF file or a hub id; its faults are one line, and no sampling setting of its own applies."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import dispatch_model
from gguf_files import END, write_gguf
from places import DEMO, ROOT
from transformers import GenerationConfig

import specloss
from specloss.models import ModelError, load_pair, loading
from specloss.models.calling.cache import RaggedCache
from specloss.models.checkpoint import fingerprint, locate


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    tensors = write_gguf(path)
    return SimpleNamespace(path=path, tensors=tensors)


@pytest.fixture(scope="module")
def gguf_pair(gguf):
    return load_pair(target=gguf.path, draft=gguf.path, device="cpu")


def refused(target, draft=DEMO / "draft", **settings):
    with pytest.raises(ModelError) as caught:
        load_pair(target=target, draft=draft, device="cpu", **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_gguf_file_loads_with_its_weights_tokenizer_and_chat_template(gguf, gguf_pair):
    weights = gguf_pair.target.state_dict()
    assert np.array_equal(weights["model.embed_tokens.weight"], gguf.tensors["token_embd.weight"])
    assert np.array_equal(weights["model.layers.2.self_attn.q_proj.weight"], gguf.tensors["blk.2.attn_q.weight"])
    assert gguf_pair.tokenizer.decode(gguf_pair.tokenizer(" the 48 käse").input_ids) == " the 48 käse"
    chat = gguf_pair.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert chat == f"<|im_start|>user\nhi{END}\n"
    assert gguf_pair.eos_ids == (2,) and gguf_pair.context == 512


def test_a_gguf_tokenizer_splits_digits_as_its_file_says(gguf_pair):
    # GPT-2 would hand the last blank to the number: two blanks, then " 48"
    words = gguf_pair.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  48")
    assert [word for word, _ in words] == ["a", "ĠĠ", "4", "8"]


def test_a_gguf_pair_decodes(gguf_pair):
    out = specloss.decode(gguf_pair, ["the cat"], gamma=3, max_new_tokens=12)
    assert len(out.token_ids[0]) == 12 or out.stops == ["eos"]


def test_a_gguf_file_is_loaded_from_its_path_not_from_the_working_directory(gguf, tmp_path, monkeypatch):
    write_gguf(tmp_path / "tiny.gguf", seed=1)
    monkeypatch.chdir(tmp_path)
    model = loading.load_model(locate(str(gguf.path)), "auto", "cpu")
    assert np.array_equal(model.state_dict()["model.embed_tokens.weight"], gguf.tensors["token_embd.weight"])


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1000]), "GGUF"),
        (lambda path: path.write_bytes(path.read_bytes()[:2000]), "damaged or cut"),
        (lambda path: path.write_bytes(b"GGUF"), "damaged or cut"),
        (lambda path: path.write_bytes(b"PK\x03\x04 a wheel"), "not a GGUF file"),
        (lambda path: path.unlink(), "no such GGUF file"),
        (lambda path: write_gguf(path, architecture="rwkv9"), "rwkv9"),
    ],
)
def test_a_bad_gguf_file_is_one_line_with_its_name(tmp_path, damage, words):
    path = tmp_path / "bad.gguf"
    write_gguf(path)
    damage(path)
    message = refused(path, path)
    assert words in message and str(path) in message


NOT_SERVED = [  # what a model's config.json has, and what is said of it
    ({"model_type": "nonesuch"}, "nonesuch"),
    ({"model_type": None}, "model_type"),
    ({"model_type": "t5"}, "model type t5 is not a causal language model"),
    ({"model_type": "mamba"}, "it keeps a state; only full attention can be rolled back"),
    ({"model_type": "rwkv"}, "it keeps a state"),
    ({"model_type": "qwen3_next"}, "it keeps a state"),
    ({"model_type": "gemma2"}, "layers of kind full_attention, sliding_attention; only full attention"),
    ({"model_type": "mistral", "sliding_window": 64}, "layers that see a window of 64 tokens, of 256; only full"),
    ({"model_type": "phi3", "sliding_window": 255}, "a window of 255 tokens, of 256"),
    ({"num_attention_heads": 0}, "by zero"),
    ({"hidden_size": "wide"}, "hidden_size"),
    ({"rope_parameters": 3}, "cannot load"),
]


@pytest.mark.parametrize("change, words", NOT_SERVED, ids=[str(change)[:40] for change, _ in NOT_SERVED])
def test_a_model_that_cannot_be_served_is_one_line_before_its_weights_are_read(tmp_path, change, words):
    config = json.loads((DEMO / "target/config.json").read_text()) | change
    (tmp_path / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not None})
    )
    with pytest.raises(ModelError) as caught:
        loading.load_config(locate(str(tmp_path)))
    message = str(caught.value)
    assert words in message and str(tmp_path) in message and "\n" not in message


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": 256},  # as long as the context: none
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 64, "max_window_layers": 2},
        {"model_type": "gpt2"},
    ],
)
def test_a_window_that_is_off_or_as_long_as_the_context_is_none(tmp_path, change):
    config = json.loads((DEMO / "target/config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert loading.load_config(locate(str(tmp_path))).model_type == change["model_type"]


def test_a_gptq_checkpoint_without_its_extra_says_what_to_install(tmp_path):
    folder = shutil.copytree(DEMO / "target", tmp_path / "target")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    assert "gptqmodel" in (message := refused(folder)) and "specloss[gptq]" in message


def test_a_revision_of_a_local_model_is_refused():
    assert "for models on the hub" in refused(DEMO / "target", target_revision="main")


def test_what_the_hub_says_is_one_line_with_model_and_revision(monkeypatch):
    def unreachable(*args, **kwargs):
        raise OSError("We couldn't connect to the hub\nCheck your internet connection.")

    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", unreachable)
    message = refused("owner/name", target_revision="abc123")
    assert message == (
        "cannot load owner/name at revision abc123: We couldn't connect to the hub Check your internet connection."
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_one_line():
    with pytest.raises(ModelError, match="torch sees no GPU here"):
        load_pair(target=DEMO / "target", draft=DEMO / "draft", device="balanced")


@pytest.mark.parametrize(
    "name, place, gguf",
    [("owner/name", "owner/name", None), ("owner/name/Q4.gguf", "owner/name", "Q4.gguf")],
)
def test_hub_ids_name_a_repository_or_a_gguf_file_in_it(name, place, gguf):
    checkpoint = locate(name, "v1")
    assert (checkpoint.place, checkpoint.gguf, checkpoint.local, checkpoint.revision) == (place, gguf, False, "v1")


@pytest.mark.parametrize(
    "name", ["./owner/name", "name", "/no/such/folder", "model.gguf", "../a/b.gguf", "src/a/b.gguf"]
)
def test_other_paths_to_nothing_are_refused(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # where there is a folder src, which makes the last one a path and no hub id
    with pytest.raises(ModelError, match="no such"):
        locate(name)


def test_other_bytes_of_a_gguf_file_are_another_model(tmp_path):
    prints = []
    for seed in (0, 1):
        write_gguf(tmp_path / "model.gguf", seed=seed)
        prints.append(fingerprint(str(tmp_path / "model.gguf")))
    assert prints[0] != prints[1]


def test_sampling_settings_of_a_checkpoint_are_named_and_not_applied(pair, tmp_path):
    folder = shutil.copytree(DEMO / "target", tmp_path / "target")
    GenerationConfig(repetition_penalty=1.3, top_k=2, do_sample=True, temperature=0.2, eos_token_id=1).save_pretrained(
        folder
    )
    bold = load_pair(target=folder, draft=DEMO / "draft", dtype="float32", device="cpu")
    settings = dict(gamma=4, max_new_tokens=40, temperature=1.0)
    prompts = ["37+03*07-20?", "50-01*03?"]
    assert specloss.decode(bold, prompts, **settings).token_ids == specloss.decode(pair, prompts, **settings).token_ids
    (note,) = bold.notes
    assert "repetition_penalty 1.3" in note and "top_k 2" in note and "not applied" in note
    made = bold.provenance()["models"]
    assert made["target"]["ignored_generation_config"]["repetition_penalty"] == 1.3
    assert made["eos_ids"] == [1] and "ignored_generation_config" not in made["draft"] and not pair.notes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_pair_says_in_which_types_its_tokens_depend_on_the_batch(dtype):
    pair = load_pair(target=DEMO / "target", draft=DEMO / "draft", device="cpu", dtype=dtype)
    said = [note for note in pair.notes if "batch size" in note]
    assert [note.startswith(f"in {dtype} tokens can change") for note in said] == [True] * (dtype != "float32")


def test_end_of_sequence_tokens_are_the_configs_if_it_names_some():
    pair = load_pair(target=DEMO / "target", draft=DEMO / "draft", device="cpu", eos=["#", 0])
    assert pair.eos_ids == (pair.tokenizer.convert_tokens_to_ids("#"), 0)
    assert "'nonesuch' is not a token" in refused(DEMO / "target", eos=["nonesuch"])
    assert "999" in refused(DEMO / "target", eos=[999])


def test_a_model_spread_over_devices_decodes_to_the_same_tokens(pair, tmp_path):
    target = deepcopy(pair.target)
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    places |= {f"model.layers.{i}": "disk" if i == 2 else "cpu" for i in range(target.config.num_hidden_layers)}
    spread = dispatch_model(target, places, offload_dir=tmp_path, skip_keys=target._skip_keys_device_placement)
    other = specloss.LoadedPair(spread, pair.draft, pair.tokenizer, pair.vocab, pair.context, pair.eos_ids)
    prompts = ["37+03*07-20?", "50-01*03?", "11+01?"]
    outputs = [specloss.decode(p, prompts, gamma=4, max_new_tokens=40, batch_size=2).token_ids for p in (pair, other)]
    assert outputs[0] == outputs[1]


def test_each_layer_of_the_cache_is_where_its_layer_of_the_model_is():
    cache = RaggedCache(2, 3, 8, torch.device("cpu"))
    slots = torch.zeros(3, 1, dtype=torch.int64)
    for layer, device in enumerate(("cpu", "meta")):
        cache.at(slots, 8)
        keys, _ = cache.update(*(torch.ones(3, 2, 1, 4, device=device) for _ in range(2)), layer)
        assert keys.device.type == device and keys.shape == (3, 2, 8, 4)
        assert {tensor.device.type for tensor in cache.written(keys.device)} == {device}
    cache.keep(torch.tensor([2, 0]))
    assert [tuple(layer.keys.shape) for layer in cache.layers] == [(2, 2, 8, 4)] * 2
    assert [layer.keys.device.type for layer in cache.layers] == ["cpu", "meta"]
