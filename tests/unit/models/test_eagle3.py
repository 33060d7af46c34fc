"""EAGLE-3 heads: what loads and what does not, what they compute, which features they read."""

import pytest
import torch
from eagle3_cases import DRAFT_VOCAB, VOCAB, WIDTH, ExactRotary, checkpoint, rederived, save, tiny_target
from exactness import EXACT, InFloat64, assert_close, sums_of

from specloss.models import ModelError, eagle3
from specloss.models.eagle3 import feature_layers, load_head


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.mark.parametrize("kind", ["safetensors", "pytorch_model.bin"])
def test_a_checkpoint_with_a_reduced_vocabulary_loads(tmp_path, target, kind):
    config, tensors = checkpoint()
    assert len(tensors["d2t"].unique()) > 5
    head = load_head(save(tmp_path / "head", config, tensors, kind), target)
    state = head.state_dict()
    for name, tensor in tensors.items():
        assert torch.equal(state[name], tensor), name
    assert head.layers == (2, 4, 5)
    assert head.target_ids(torch.arange(DRAFT_VOCAB)).tolist() == tensors["t2d"].nonzero().squeeze(1).tolist()


def test_embeddings_are_the_targets_unless_the_checkpoint_has_its_own(tmp_path, target):
    theirs = target.get_input_embeddings().weight
    shared = load_head(save(tmp_path / "shared", *checkpoint()), target)
    assert shared.embed_tokens.weight.data_ptr() == theirs.data_ptr()
    config, tensors = checkpoint(embeddings=True)
    own = load_head(save(tmp_path / "own", config, tensors), target)
    assert torch.equal(own.embed_tokens.weight, tensors["embed_tokens.weight"])


def test_equal_vocabularies_need_no_maps(tmp_path, target):
    config, tensors = checkpoint(draft_vocab=VOCAB)
    assert "d2t" not in tensors
    head = load_head(save(tmp_path / "head", config, tensors), target)
    assert head.target_ids(torch.arange(VOCAB)).tolist() == list(range(VOCAB))


def test_a_head_may_be_narrower_than_its_target_if_it_has_its_own_embeddings(tmp_path, target):
    config, tensors = checkpoint(width=16, target_width=WIDTH, embeddings=True)
    head = load_head(save(tmp_path / "head", config, tensors), target)
    assert head.project(torch.zeros(1, 2, 3 * WIDTH)).shape == (1, 2, 16)
    del tensors["embed_tokens.weight"]
    with pytest.raises(ModelError, match=r"missing embed_tokens\.weight"):
        load_head(save(tmp_path / "head", config, tensors), target)


def test_weights_take_the_targets_dtype_and_rotary_frequencies_stay_exact(tmp_path, target):
    folder = save(tmp_path / "head", *checkpoint())
    exact = load_head(folder, target)
    head = load_head(folder, tiny_target().to(torch.bfloat16))
    assert {p.dtype for p in head.parameters()} == {torch.bfloat16}
    assert head.d2t.dtype == torch.int64
    assert torch.equal(head.rotary.inv_freq, exact.rotary.inv_freq)


def _rename(tensors):
    tensors["midlayer.mlp.gate.weight"] = tensors.pop("midlayer.mlp.gate_proj.weight")


def _reshape(tensors):
    tensors["midlayer.self_attn.k_proj.weight"] = tensors["midlayer.self_attn.k_proj.weight"][:-1].clone()


def _add(tensors):
    tensors["midlayer.self_attn.q_norm.weight"] = torch.ones(8)


def _retype(tensors):
    tensors["t2d"] = tensors["t2d"].long()


def _leave(tensors):
    tensors["d2t"][-1] = VOCAB


def _repeat(tensors):
    tensors["d2t"] -= torch.arange(DRAFT_VOCAB)
    tensors["d2t"][1] = tensors["d2t"][0] - 1


def _disagree(tensors):
    tensors["t2d"] = tensors["t2d"].logical_not()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_rename, ["missing midlayer.mlp.gate_proj.weight", "unexpected midlayer.mlp.gate.weight"]),
        (_reshape, ["midlayer.self_attn.k_proj.weight has shape [15, 64], not [16, 64]"]),
        (_add, ["unexpected midlayer.self_attn.q_norm.weight"]),
        (_retype, ["t2d is torch.int64, not torch.bool"]),
        (_leave, ["d2t leads to ids", f"outside of {VOCAB}"]),
        (_repeat, ["d2t gives one target id to two draft ids"]),
        (_disagree, ["d2t and t2d disagree"]),
        (lambda tensors: tensors.pop("t2d"), ["missing t2d"]),
        (lambda tensors: (_rename(tensors), _reshape(tensors)), ["gate_proj.weight;", "k_proj.weight has shape"]),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(tmp_path, target, change, named):
    config, tensors = checkpoint()
    change(tensors)
    folder = save(tmp_path / "head", config, tensors)
    with pytest.raises(ModelError) as error:
        load_head(folder, target)
    message = str(error.value)
    assert "\n" not in message and message.startswith(str(folder))
    for part in named:
        assert part in message


def test_a_head_for_another_target_is_refused(tmp_path, target):
    folder = save(tmp_path / "head", *checkpoint())
    with pytest.raises(ModelError, match="a vocabulary of 40, this one has 48"):
        load_head(folder, tiny_target(vocab=48))
    with pytest.raises(ModelError, match="hidden states of 32, this one has 64"):
        load_head(folder, tiny_target(width=64))


def test_unusable_folders_are_refused_in_one_line(tmp_path, target):
    with pytest.raises(ModelError, match="no such folder"):
        load_head("./nowhere", target)
    with pytest.raises(ModelError, match=r"it has no config\.json"):
        load_head(tmp_path, target)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"no usable config\.json"):
        load_head(tmp_path, target)
    (tmp_path / "config.json").write_text('{"vocab_size": 40, "hidden_size": 32, "num_attention_heads": 4}')
    with pytest.raises(ModelError, match="no weights"):
        load_head(tmp_path, target)
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ModelError, match=r"model\.safetensors: a damaged or cut safetensors file"):
        load_head(tmp_path, target)


@pytest.mark.parametrize("kind", ["safetensors", "pytorch_model.bin"])
def test_a_hub_id_downloads_config_and_weights_and_nothing_else(tmp_path, target, monkeypatch, kind):
    folder = save(tmp_path / "head", *checkpoint(), kind)
    asked = []

    def download(head, *, revision, allow_patterns):
        asked.append((head, revision, allow_patterns))
        return folder

    monkeypatch.setattr(eagle3, "snapshot_download", download)
    assert load_head("owner/name", target, revision="v1").layers == (2, 4, 5)
    wanted = [["config.json", "*.safetensors"], ["config.json", "pytorch_model*.bin"]]
    assert asked == [("owner/name", "v1", files) for files in wanted[: 1 + (kind != "safetensors")]]


@pytest.mark.parametrize(
    "extra",
    [
        {"model_type": "llama", "rope_scaling": None, "pretraining_tp": 1, "torch_dtype": "float16", "bias": False},
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28},
        {"model_type": "qwen3", "attention_bias": True, "architectures": ["LlamaForCausalLMEagle3"]},
    ],
)
def test_configs_of_all_families_load(tmp_path, target, extra):
    config, tensors = checkpoint()
    head = load_head(save(tmp_path / "head", config | extra, tensors), target)
    assert head.config.rope_parameters["rope_theta"] == config["rope_theta"]


class _Touch:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_code_in_a_pickle_does_not_run(tmp_path, target):
    config, _ = checkpoint()
    folder = save(tmp_path / "head", config, {"fc.weight": _Touch(tmp_path / "touched")}, "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin: cannot be read"):
        load_head(folder, target)
    assert not (tmp_path / "touched").exists()


@torch.inference_mode()
@pytest.mark.parametrize("head_dim", [8, 16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_forward_is_that_of_a_rederivation(tmp_path, head_dim, dtype):
    config, tensors = checkpoint(embeddings=True, head_dim=head_dim)
    head = load_head(save(tmp_path / "head", config, tensors), tiny_target(dtype=dtype))
    if dtype == torch.float64:
        head.rotary = ExactRotary(config)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(2, 11, 3 * WIDTH, generator=generator, dtype=dtype)
    ids = torch.randint(VOCAB, (2, 11), generator=generator)
    hidden = head.project(features)
    got = head(hidden, ids, torch.arange(11).expand(2, -1))
    for row in range(2):
        expected = rederived(config, tensors, features[row].double() @ tensors["fc.weight"].double().T, ids[row])
        # into the layer through `fc`, and out of two products where a target's layer has one
        assert_close(got[row], expected.to(dtype), terms=3 * WIDTH + 2 * sums_of(head.config, 11))
    total = head.log_probs(got).exp().sum(-1)
    assert total.dtype == dtype
    assert_close(total, torch.ones_like(total), terms=3 * DRAFT_VOCAB)


@torch.inference_mode()
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(("depth", "layers"), [(8, None), (6, None), (4, (1, 2, 3))])
def test_features_are_what_enters_the_layers(tmp_path, family, depth, layers):
    target = tiny_target(family, layers=depth, dtype=torch.float64)
    head = load_head(save(tmp_path / "head", *checkpoint()), target, layers=layers)
    ids = torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(2))
    model, position = target.model, torch.arange(9).expand(2, -1)
    mask = torch.full((9, 9), -torch.inf, dtype=target.dtype).triu(1)[None, None]
    entering = []
    with InFloat64():
        got = head.features(target(ids, output_hidden_states=list(head.layers)).hidden_states)
        hidden = model.embed_tokens(ids)
        rotation = model.rotary_emb(hidden, position)
        for layer in model.layers:
            entering.append(hidden)
            hidden = layer(hidden, attention_mask=mask, position_ids=position, position_embeddings=rotation)
    expected = [entering[i] for i in layers or (2, depth // 2, depth - 3)]
    torch.testing.assert_close(got, torch.cat(expected, -1), **EXACT)


@pytest.mark.parametrize(
    "named, layers",
    [
        ({"eagle_aux_hidden_state_layer_ids": [1, 3, 7]}, (1, 3, 7)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True}}, (2, 4, 5)),
        ({"eagle_config": {"use_aux_hidden_state": True}}, (2, 4, 5)),
    ],
)
def test_a_config_may_name_the_layers_as_vllm_by_inputs_or_as_sglang_by_outputs(tmp_path, target, named, layers):
    config, tensors = checkpoint()
    folder = save(tmp_path / "head", config | named, tensors)
    assert load_head(folder, target).layers == layers
    assert load_head(folder, target, layers=(0, 1, 2)).layers == (0, 1, 2)


def test_a_shallow_target_needs_its_layers_named():
    assert feature_layers(32) == (2, 16, 29)
    assert feature_layers(4, [1, 2, 3]) == (1, 2, 3)
    with pytest.raises(ModelError, match="4 layers has no layers 2, L/2 and L-3"):
        feature_layers(4)
    with pytest.raises(ModelError, match="three numbers from 0 to 3"):
        feature_layers(4, [1, 2, 4])
    with pytest.raises(ModelError, match="three numbers"):
        feature_layers(4, [1, 2])
