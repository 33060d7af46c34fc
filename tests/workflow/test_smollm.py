"""A pretrained target from a package registry on real benchmark items: the whole of config/smollm.yaml, made small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from places import ROOT


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_pretrained_pair_out_of_a_wheel_goes_from_real_items_to_a_table(tmp_path):
    config = yaml.safe_load((ROOT / "config/smollm.yaml").read_text())
    config["models"]["smollm2-draft"]["distil"] |= {"texts": 4, "text_tokens": 48, "steps": 4}
    for benchmark in config["benchmarks"].values():
        benchmark["options"] |= {"per_language": 1} if "per_language" in benchmark["options"] else {"problems": 2}
        benchmark["max_new_tokens"] = 16
    files = [
        options[key]
        for benchmark in config["benchmarks"].values()
        for key in ("file", "answers_file")
        if key in (options := benchmark["options"])
    ]
    folder = os.environ.get("SPECLOSS_BENCHMARK_DATA")
    if not folder or not all((Path(folder) / Path(file).name).exists() for file in files):
        pytest.skip(f"set SPECLOSS_BENCHMARK_DATA to a folder with {', '.join(Path(file).name for file in files)}")
    (tmp_path / "data").symlink_to(Path(folder).resolve())
    for name in ("Snakefile", "workflow", "config"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config))

    done = subprocess.run(
        [Path(sys.executable).parent / "specloss", "run", "small.yaml"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("loaded pair smollm") + done.stderr.count("loaded pair smollm") == 1
    table = pd.read_csv(tmp_path / "reports/smollm/tables/table4.csv")
    assert len(table) == 16 and table["missing"].isna().all()
    assert (table["be_expected_mean"] >= 1).all() and table["accuracy_mean"].between(0, 100).all()
    summary = pd.read_parquet(tmp_path / "results/smollm/summary.parquet")
    assert set(summary["status"]) == {"whole"} and (summary["tokens_per_s"] > 0).all()
    problems = summary.groupby("benchmark")["problems"].first().to_dict()
    assert problems == {"gsm8k": 2, "mbppplus": 2, "bfcl": 2, "include": 4}
