"""The workflow makes a pair's models: a wheel is fetched, its GGUF file converted, a draft distilled from it."""

from __future__ import annotations

import os
import subprocess
import sys

import yaml
from places import ROOT
from wheels import write_wheel

from specloss.experiment.plan import make_plan
from specloss.models import load_pair

DISTIL = {"teacher": "big", "layers": 2, "texts": 4, "text_tokens": 96, "steps": 3, "batch": 2, "learning_rate": 1e-3}


def test_models_are_made_once_from_wheel_to_draft(tmp_path):
    config = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    config["models"] = {"big": {"wheel": write_wheel(tmp_path / "wheels")}, "small": {"distil": DISTIL}}
    config["pairs"] = {"made": {"target": "big", "draft": "small", "device": "cpu"}}
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "config").symlink_to(ROOT / "config")
    plan = make_plan(config, "my.yaml", check=False)
    files = plan.made_models("made")
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "snakemake", *arguments, "--cores", "1", "--configfile", "my.yaml"]
        command += ["--snakefile", str(ROOT / "Snakefile")]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    run(*files)
    assert all((tmp_path / file).exists() for file in files)
    assert not list((tmp_path / "results/models").glob("*.gguf"))  # what a folder was made from does not stay
    assert "Nothing to be done" in run(*files, "--dry-run")
    target, draft = (str(tmp_path / plan.cells[0].settings["pair"][role]) for role in ("target", "draft"))
    pair = load_pair(target=target, draft=draft, device="cpu")
    assert (pair.target.config.num_hidden_layers, pair.draft.config.num_hidden_layers) == (3, 2)
    jobs = run(f"{plan.cells[0].folder(plan.results)}/graded.parquet", "--dry-run")
    assert "rule decode" in jobs and "rule distil_model" not in jobs
