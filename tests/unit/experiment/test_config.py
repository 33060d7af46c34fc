"""Bad input is one clear line and exit status 1 before any work; a grid brings its matched baselines along."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest
import yaml
from places import DEMO, ROOT

from specloss import cli
from specloss.common.yamlfile import ConfigError, as_written, read_yaml, yaml_text
from specloss.experiment.config import Experiment, config_schema, parse_config, read_config
from specloss.experiment.grid import expand
from specloss.experiment.plan import make_plan, plan_of


@pytest.fixture
def config(tmp_path):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values["results"], values["reports"] = str(tmp_path / "results"), str(tmp_path / "reports")
    values["pairs"]["demo"] |= {"target": str(DEMO / "target"), "draft": str(DEMO / "draft")}
    return values


def refused(values):
    with pytest.raises(ConfigError) as caught:
        make_plan(values, "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml: ") and "\n" not in message
    return message


def change(path, value):
    """A change of one key of the config, by its dotted path."""

    def apply(values):
        *sections, last = path.split(".")
        for section in sections:
            values = values[section]
        values[last] = value

    return apply


@pytest.mark.parametrize(
    "fault, words",
    [
        (change("methods.lenienc", {"params": [0.5]}), ["methods.lenienc", "did you mean 'lenience'"]),
        (change("methods.lenience.params", [0.2, 1.5]), ["methods.lenience", "1.5", "0 < l <= 1"]),
        (change("methods.cos.params", [-0.1]), ["methods.cos", "-0.1", "0 <= lambda <= 1"]),
        (change("methods.lenience.params", None), ["methods.lenience", "parameter l is missing"]),
        (change("methods.standard_sd", {"params": [0.5]}), ["standard_sd takes no parameter"]),
        (change("methods.cos.options", {"bonuss": "r"}), ["methods.cos", "'bonuss'", "p | r"]),
        (change("decoding.gama", 8), ["'decoding.gama'", "did you mean 'gamma'"]),
        (change("sedes", [0]), ["'sedes'", "did you mean 'seeds'"]),
        (change("pairs.demo.targt", "x"), ["'pairs.demo.targt'", "did you mean 'target'"]),
        (change("decoding.gamma", 0), ["decoding.gamma", "greater than or equal to 1", "got 0"]),
        (change("decoding.temperature", -1), ["decoding.temperature", "got -1"]),
        (change("decoding.top_p", 0), ["decoding.top_p", "got 0"]),
        (change("decoding", {}), ["'decoding.gamma' is missing"]),
        (change("seeds", [0, 0]), ["seeds", "lists a seed twice"]),
        (change("seeds", []), ["seeds"]),
        (change("seeds", [2**48]), ["seeds", "2^48 - 1"]),
        (change("results", "a{b}"), ["results", "a{b}"]),
        (change("results", ""), ["results"]),
        (change("decoding.temperature", float("inf")), ["decoding.temperature", "inf"]),
        (change("pairs.demo.device", "gpu0"), ["pairs.demo.device", "gpu0"]),
        (
            change("methods.min_p_sampling", {"rule": "eta_sampling", "params": [0.1]}),
            ["min_p_sampling", "another label"],
        ),
        (
            change("methods.eta_sampling.options", {"delta": 0.5}),
            ["methods.typical_acceptance", "eta_sampling", "another label"],
        ),
        (change("name", "a/b"), ["name", "a/b"]),
        (change("pairs.demo.target", "no/such/folder"), ["pairs.demo", "no/such/folder", "no such model folder"]),
        (change("benchmarks.chain_l2.task", "chian"), ["benchmarks.chain_l2", "'chian'", "chain"]),
        (change("benchmarks.chain_l2.options.level", 99), ["benchmarks.chain_l2", "99"]),
        (change("benchmarks.chain_l2.options.problems", 0), ["benchmarks.chain_l2", "0"]),
        (change("benchmarks.chain_l2.options.lvel", 2), ["benchmarks.chain_l2.options", "lvel", "level"]),
    ],
)
def test_a_fault_is_named_with_its_key_value_and_fix(config, fault, words):
    fault(config)
    message = refused(config)
    for word in words:
        assert word in message


def test_an_empty_benchmark_is_refused(config, monkeypatch):
    monkeypatch.setattr("specloss.benchmarks.chain.load", lambda level, problems, seed=0: [])
    assert "benchmarks.chain_l2: the benchmark is empty" in refused(config)


def test_a_model_folder_without_a_tokenizer_is_refused(config, tmp_path):
    folder = shutil.copytree(DEMO / "draft", tmp_path / "draft", ignore=shutil.ignore_patterns("tokenizer*"))
    config["pairs"]["demo"]["draft"] = str(folder)
    message = refused(config)
    assert "pairs.demo" in message and str(folder) in message and "no tokenizer" in message


@pytest.mark.parametrize("file, words", [("tokenizer.json", "is not a tokenizer"), ("model.safetensors", "no weights")])
def test_a_broken_model_folder_is_refused(config, tmp_path, file, words):
    folder = shutil.copytree(DEMO / "draft", tmp_path / "draft")
    (folder / file).unlink()
    if file == "tokenizer.json":
        (folder / file).write_text("{")
    config["pairs"]["demo"]["draft"] = str(folder)
    assert words in refused(config)


def test_parameters_that_differ_in_the_last_digit_are_different_cells(config):
    config["methods"] = {"lenience": {"params": [0.4, 0.4000000000000001, 1]}}
    ids = [cell.id for cell in make_plan(config, "my.yaml").cells if cell.method == "lenience" and cell.seed == 0]
    assert len(set(ids)) == 12 and any("param=1/" in name for name in ids)


def test_different_tokenizers_are_refused(config, tmp_path):
    folder = shutil.copytree(DEMO / "draft", tmp_path / "draft")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    first, second = sorted(vocab)[:2]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config["pairs"]["demo"]["draft"] = str(folder)
    message = refused(config)
    assert "different tokenizers" in message and repr(first) in message


def test_results_that_cannot_be_written_are_refused(config, tmp_path):
    (tmp_path / "file").write_text("")
    config["results"] = str(tmp_path / "file")
    assert f"cannot write to {tmp_path / 'file'}" in refused(config)


def test_finished_cells_of_other_settings_are_neither_reused_nor_overwritten(config, tmp_path):
    plan = make_plan(config, "my.yaml")
    cell = plan.cells[0]
    folder = cell.folder(plan.results)
    folder.mkdir(parents=True)
    for name in ("steps.parquet", "generations.parquet"):
        (folder / name).write_bytes(b"")
    (folder / "cell.json").write_text(json.dumps({"key": cell.key, "cell": cell.to_dict()}))
    assert make_plan(config, "my.yaml").batches[cell.id] is None  # the same settings: whole
    (folder / "cell.json").write_text('{"key": ')
    assert "cell.json cannot be read" in refused(config)
    (folder / "cell.json").write_text(json.dumps({"key": cell.key, "cell": cell.to_dict()}))
    config["decoding"]["gamma"] = 5
    message = refused(config)
    assert "decoding.gamma: 8 -> 5" in message and "give the experiment another name" in message


def test_batch_size_and_cluster_settings_do_not_make_another_cell(config):
    other = copy.deepcopy(config)
    other["decoding"]["batch_size"] = 3
    other["cluster"] = {"actors": 1}
    keys = [[cell.key for cell in expand(parse_config(values, "x"))] for values in (config, other)]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(keys[0]) == 348


def test_a_device_is_provenance_and_a_type_of_numbers_makes_another_cell(config):
    def cell(**changes):
        values = copy.deepcopy(config)
        values["pairs"]["demo"] |= changes
        return expand(parse_config(values, "x"))[0]

    here = cell()
    assert cell(device="auto").key == cell(device="cuda:1").key == here.key
    assert cell(device="cuda:1").settings["pair"]["device"] == "cuda:1"  # whoever loads the pair reads it there
    assert len({here.key, cell(dtype="bfloat16").key, cell(dtype="auto").key}) == 3


def test_a_finished_cell_is_as_good_on_another_device(config):
    plan = make_plan(config, "my.yaml")
    cell = plan.cells[0]
    folder = cell.folder(plan.results)
    folder.mkdir(parents=True)
    # by a release whose keys were made of other things
    (folder / "cell.json").write_text(json.dumps({"key": "of another time", "cell": cell.to_dict()}))
    config["pairs"]["demo"]["device"] = "auto"
    assert make_plan(config, "my.yaml").cells[0].stale_reason(plan.results) is None
    config["pairs"]["demo"]["dtype"] = "bfloat16"
    assert "pair.dtype" in make_plan(config, "my.yaml").cells[0].stale_reason(plan.results)


def test_other_weights_under_the_same_path_make_another_cell(config, tmp_path):
    folder = shutil.copytree(DEMO / "draft", tmp_path / "draft")
    config["pairs"]["demo"]["draft"] = str(folder)
    before = expand(parse_config(config, "x"))[0].key
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert expand(parse_config(config, "x"))[0].key != before


def test_a_gate_brings_its_truncation_baseline_and_standard_sd(config):
    config["methods"] = {
        "spec_cascade": {"params": [0.3]},
        "soft": {"rule": "typical_acceptance", "params": [0.1], "options": {"delta": 0.5}},
    }
    plan = make_plan(config, "my.yaml")
    assert {(cell.method, cell.param) for cell in plan.cells} == {
        ("standard_sd", None),
        ("spec_cascade", 0.3),
        ("min_p_sampling", 0.3),
        ("soft", 0.1),
        ("eta_sampling-soft", 0.1),
    }
    matched = {setting["method"]: setting["matched"] for setting in plan._settings()}
    assert matched["spec_cascade"] == ["min_p_sampling", 0.3]
    assert matched["soft"] == ["eta_sampling-soft", 0.1]
    assert matched["eta_sampling-soft"] == ["standard_sd", None] and matched["standard_sd"] is None


def test_cells_that_are_asked_for_are_in_jobs_of_their_own(config, tmp_path):
    files = make_plan(config, "my.yaml").graded()
    plan = make_plan(config, "my.yaml", targets=["--cores", "2", files[7]])
    batch = plan.batches[plan.cells[7].id]
    assert [cell.id for cell in batch.cells] == [plan.cells[7].id]
    assert all(plan.batches[cell.id] is not None for cell in plan.cells)
    with pytest.raises(ConfigError, match=r"no cell has the file .*the nearest is .*method=lenience"):
        make_plan(config, "my.yaml", targets=[files[-20].replace(plan.cells[-20].method, "lenienc")])


def test_batches_are_cut_from_what_is_left(config):
    config["cluster"] = {"cells_per_job": 100}
    plan = make_plan(config, "my.yaml")
    batches = {batch.id: batch for batch in plan.batches.values()}
    assert [len(batch.cells) for batch in batches.values()] == [100, 100, 100, 48]
    assert sorted(cell.id for batch in batches.values() for cell in batch.cells) == sorted(plan.batches)


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_experiment_config_is_valid_and_names_its_schema(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    values = read_yaml(path)
    if "pairs" in values:
        assert isinstance(parse_config(values, str(path)), Experiment)
        jsonschema.validate(values, json.loads(config_schema()))
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n") == ("pairs" in values)


def test_the_published_schema_is_that_of_the_code(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["specloss", "schema"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out == (ROOT / "config/schema.json").read_text(), (
        "write it again: specloss schema > config/schema.json"
    )


def test_every_key_has_its_meaning_and_default_in_the_schema():
    schema = json.loads(config_schema())
    for name, section in {"": schema, **schema["$defs"]}.items():
        for key, field in section["properties"].items():
            assert field.get("description"), f"{name}.{key}"
            assert ("default" in field) != (key in section.get("required", [])), f"{name}.{key}"


@pytest.mark.parametrize(
    "fault", [change("decoding.gamma", 0), change("decoding.gama", 8), change("seeds", ["0"]), change("pairs", {})]
)
def test_a_fault_of_one_key_is_one_of_the_schema_too(config, fault):
    fault(config)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, json.loads(config_schema()))


@pytest.mark.parametrize(
    "text, words",
    [("name: [", "not YAML"), ("- a", "expected a mapping"), ("", "expected a mapping"), ("name: x", "is missing")],
)
def test_the_command_line_says_one_line_and_exits_1(tmp_path, capsys, monkeypatch, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    monkeypatch.setattr(sys, "argv", ["specloss", "check", str(path)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    error = capsys.readouterr().err.strip()
    assert caught.value.code == 1
    assert words in error and str(path) in error and "\n" not in error


@pytest.mark.parametrize("role", ["target", "draft"])
def test_check_names_the_model_of_a_kind_that_cannot_be_decoded(config, tmp_path, capsys, monkeypatch, role):
    folder = shutil.copytree(DEMO / role, tmp_path / "mistral")
    model = json.loads((folder / "config.json").read_text()) | {"model_type": "mistral", "sliding_window": 64}
    (folder / "config.json").write_text(json.dumps(model))
    config["pairs"]["demo"][role] = str(folder)
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setattr(sys, "argv", ["specloss", "check", str(path)])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == (
        f"specloss: error: {path}: pairs.demo.{role}: {folder}: layers that see a window of 64 tokens, of 256; "
        "only full attention can be rolled back\n"
    )


TWINS = {
    "analysis: {margin: 1}\nseeds: [0]\nanalysis:\n  margin: 3\n": "key 'analysis' stands twice, in lines 1 and 3",
    "seeds: [0]\n'seeds': [0]\n": "key 'seeds' stands twice, in lines 1 and 2",
    "screen:\n  top_k: 8\n  grid: all\n  top_k: 8\n": "key 'top_k' stands twice, in lines 2 and 4",
    "screen: {top_k: 8, top_k: 8}\n": "key 'top_k' stands twice, in lines 1 and 1",
    "pairs:\n  a: {x: 1}\n  b: {x: 1}\n  a: {x: 2}\n": "key 'a' stands twice, in lines 2 and 4",
    "x:\n- {a: 1}\n- {b: 1,\n   b: 2}\n": "key 'b' stands twice, in lines 3 and 4",
    "a: {b: {c: {d: 1, e: 2,\n  d: 3}}}\n": "key 'd' stands twice, in lines 1 and 2",
}


@pytest.mark.parametrize(
    "text, words", TWINS.items(), ids=[f"{words[4:]} in {text[:5]!r}" for text, words in TWINS.items()]
)
def test_a_key_that_stands_twice_is_one_line_with_both_of_its_lines(tmp_path, text, words):
    path = tmp_path / "my.yaml"
    path.write_text(text)
    for read in (read_config, plan_of):
        with pytest.raises(ConfigError) as caught:
            read(path)
        assert str(caught.value) == f"{path}: {words}; keep one of them"


def test_a_merged_mapping_may_be_overridden_and_an_alias_used_twice(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  x: 3\nc: *a\nd: &d {<<: *a, y: 5}\ne: {<<: *d, y: 6}\n")
    a, d = {"x": 1, "y": 2}, {"x": 1, "y": 5}
    assert read_yaml(path) == {"a": a, "b": {"x": 3, "y": 2}, "c": a, "d": d, "e": {"x": 1, "y": 6}}


@pytest.mark.parametrize(
    "fault, words",
    [
        (
            change("decoding.gamma", "8"),
            "decoding.gamma: Input should be a whole number, got '8', a text: write it without quotes",
        ),
        (change("decoding.gamma", True), "decoding.gamma: Input should be a whole number, got True"),
        (
            change("decoding.temperature", "0.7"),
            "decoding.temperature: Input should be a number, got '0.7', a text: write it without quotes",
        ),
        (
            change("seeds", [0, "1"]),
            "seeds.1: Input should be a whole number, got '1', a text: write it without quotes",
        ),
        (change("pairs.demo.trust_remote_code", "no"), "trust_remote_code: Input should be true or false, got 'no'"),
        (
            change("methods.lenience.params", ["0.5"]),
            "params.0: Input should be a number, got '0.5', a text: write it without quotes",
        ),
        (
            change("cluster", {"actors": "2"}),
            "cluster.actors: Input should be 'auto' or a whole number, got '2', a text: write it without quotes",
        ),
        (change("decoding.gamma", 8.0), "decoding.gamma: Input should be a whole number, got 8.0"),
        (
            change("pairs.demo.eos", [True]),
            "pairs.demo.eos.0: Input should be a whole number or a valid string, got True",
        ),
        (change("pairs.demo.target", 7), "pairs.demo.target: Input should be a valid string, got 7"),
    ],
)
def test_a_text_is_no_number_and_a_truth_value_none_either(config, fault, words):
    fault(config)
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_config(config, "my.yaml")


def test_whole_numbers_are_good_for_others(config):
    config["decoding"]["temperature"] = 1
    config["methods"]["lenience"]["params"] = [1]
    experiment = parse_config(config, "my.yaml")
    assert repr((experiment.decoding.temperature, experiment.methods["lenience"].params)) == "(1.0, [1.0])"


YAML_1_2 = {
    "9e-1": 0.9,  # in YAML 1.1 a text; the next ones are False, 15 and 90 there
    "no": "no",
    "017": 17,
    "1:30": "1:30",
    "0o17": 15,
    "1_000": 1000,
    "True": True,
    "~": None,
    "'8'": "8",
}


@pytest.mark.parametrize("text, value", YAML_1_2.items())
def test_a_file_and_a_command_line_are_read_as_yaml_1_2(tmp_path, text, value):
    path = tmp_path / "my.yaml"
    path.write_text(f"a: [{text}]\n")
    assert repr(read_yaml(path)) == repr({"a": [value]})
    if text != "'8'":  # Snakemake has taken the quotes off
        assert repr(as_written([text])) == repr([value])


def test_what_is_shown_as_yaml_reads_as_itself(tmp_path):
    values = {"b": ["1e-3", "no", "8", "", "ä: b"], "a": {"x": 0.001, "y": None, "z": [1, [2.0, True]]}}
    for flow in (False, True):
        (tmp_path / "shown.yaml").write_text(yaml_text(values, flow=flow))
        assert repr(read_yaml(tmp_path / "shown.yaml")) == repr(values)


def test_snakemake_decodes_with_the_numbers_that_our_own_reading_gives(config, tmp_path):
    config["decoding"]["top_p"] = "NUMBER"
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(config).replace("NUMBER", "9e-1"))  # a text in YAML 1.1
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "-n"]
    done = subprocess.run([*command, "--configfile", "my.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "fault, words",
    [
        ("decoding.gamma", "decoding.gamma: Input should be greater than or equal to 1, got 0"),
        ("twin", "key 'seeds' stands twice, in lines"),
    ],
)
def test_snakemake_itself_refuses_a_bad_config_before_any_work(config, tmp_path, fault, words):
    config["decoding"]["gamma"] = 0 if fault == "decoding.gamma" else 4
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(config) + ("seeds: [0]\n" if fault == "twin" else ""))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [*command, "--configfile", str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line]
    # a config is named as seen from where the run was started
    assert line.startswith(f"specloss: error: bad.yaml: {words}")
    assert not (tmp_path / "results").exists()


def test_what_a_command_line_says_has_the_types_that_a_file_would_give_it(config, tmp_path):
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "-n"]
    command += ["--configfile", "my.yaml", "--config", "seeds=[0, 1, 2, 3]", "cluster={gpus_per_pair: 1, actors: 2}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert " x 4 seeds" in done.stderr


@pytest.fixture
def trees(config):
    """The config with the head of the tests' data in place of the draft: it is only looked at, not loaded."""
    config["pairs"]["demo"] |= {"kind": "eagle3", "draft": str(ROOT / "tests/data/eagle3/head")}
    del config["decoding"]["gamma"]
    config["decoding"]["tree"] = {"total_token": 20, "depth": 3, "top_k": 4}
    return config


def test_a_head_makes_an_experiment_on_trees(trees):
    cells = make_plan(trees, "my.yaml").cells
    assert len(cells) == 348
    assert cells[0].settings["decoding"] == {
        "tree": {"total_token": 20, "depth": 3, "top_k": 4}, "temperature": 0.7, "top_k": 0, "top_p": 1.0,
    }  # fmt: skip
    matched = {(s["method"], s["param"]): s["matched"] for s in make_plan(trees, "my.yaml").content["settings"]}
    assert matched["spec_cascade", 0.5] == ["min_p_sampling", 0.5]
    assert matched["typical_acceptance", 0.1] == ["eta_sampling", 0.1]


@pytest.mark.parametrize(
    "fault, words",
    [
        (change("decoding.tree", None), ["'decoding.tree' is missing", "kind eagle3"]),
        (change("decoding.gamma", 8), ["decoding.gamma", "decoding.tree", "got 8"]),
        (change("decoding.tree.total_token", 99), ["decoding.tree", "total_token 99", "from 2 to 53"]),
        (change("decoding.tree.topk", 4), ["'decoding.tree.topk'", "did you mean 'top_k'"]),
        (change("pairs.demo.kind", "draft"), ["decoding.tree", "only pairs of kind eagle3"]),
        (change("pairs.demo.kind", "eagle2"), ["pairs.demo.kind", "eagle2"]),
        (change("pairs.other", {"target": "a/b", "draft": "c/d"}), ["demo is of kind eagle3", "other is"]),
        (change("pairs.demo.draft", "no/such/head"), ["pairs.demo", "no/such/head: no such model folder"]),
        (change("pairs.demo.draft", str(ROOT / "tests/data")), ["pairs.demo", "not a model folder, it has no config"]),
        (change("methods.blockwise", {}), ["methods.blockwise", "has no form on trees", "standard_sd"]),
        (change("methods.cos.options", {"coupling": "maximal"}), ["methods.cos", "'coupling'", "bonus p | r"]),
        (change("methods.cos.options", {"bonus": "r"}), ["methods.cos", "bonus is invalid on drafted trees"]),
        (change("methods.spec_cascade.options", {"threshold": "p"}), ["methods.spec_cascade", "original | residual"]),
    ],
)  # fmt: skip
def test_a_fault_of_trees_is_named_with_its_key_value_and_fix(trees, fault, words):
    fault(trees)
    message = refused(trees)
    for word in words:
        assert word in message


def test_other_weights_of_a_head_make_another_cell(trees, tmp_path):
    folder = shutil.copytree(ROOT / "tests/data/eagle3/head", tmp_path / "head")
    trees["pairs"]["demo"]["draft"] = str(folder)
    before = expand(parse_config(trees, "x"))[0].key
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert expand(parse_config(trees, "x"))[0].key != before
