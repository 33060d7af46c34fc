"""`specloss cell`, as far as it goes before anything is decoded."""

from __future__ import annotations

import pytest
import yaml
from places import ROOT

from specloss.common.yamlfile import ConfigError
from specloss.reviewer.answer import CellError, CellRequest, answer


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"benchmark": "MATHS"}, "no benchmark MATHS; did you mean math"),
        ({"param": ".5"}, "no lenience with parameter 0.5; did you mean 0.4"),
        ({"table": 4}, "no table 4 .*; did you mean 3. There are 3, 5, 7"),
    ],
)
def test_a_wrong_name_is_told_where_data_and_models_are_out_of_reach(names, message):
    right = {"table": 5, "benchmark": "MATH", "method": "lenience", "param": ".4"}
    with pytest.raises(ConfigError, match=f"paper_eagle3.yaml: {message}"):
        answer(CellRequest(ROOT / "config/paper_eagle3.yaml", **right | names), snakemake=None)


def test_an_experiment_on_trees_has_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    values = yaml.safe_load((ROOT / "config/demo_eagle3.yaml").read_text())
    values |= {"results": str(tmp_path / "results"), "reports": str(tmp_path / "reports")}
    path = tmp_path / "trees.yaml"
    path.write_text(yaml.safe_dump(values))
    request = CellRequest(path, table=5, benchmark="chain_l4", method="lenience", param=".4")
    with pytest.raises(CellError, match=r"Table 5, chain_l4, lenience \(0.4\) has no value, 3 of 3 runs are missing"):
        answer(request, snakemake=None)
