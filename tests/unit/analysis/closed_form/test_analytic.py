"""The analytic figures: their numbers are those of the rules, their files the same bytes for the same config."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from places import ROOT
from typer.testing import CliRunner

from specloss.analysis.closed_form.analytic import ANALYTIC_FIGURES, ANALYTIC_SUFFIXES, make_analytic, write_analytic
from specloss.analysis.closed_form.config import Analytic, read_analytic
from specloss.analysis.closed_form.random_pairs import accepted_share, drafts, separated, strength
from specloss.cli import app
from specloss.common.yamlfile import ConfigError
from specloss.verification import get_rule

SHIPPED = ROOT / "config/analytic.yaml"


def values(**changes) -> dict:
    """The shipped config with fewer random pairs, and with `section__key=value` changed."""
    config = yaml.safe_load(SHIPPED.read_text())
    for name, value in {"fig4__pairs": 200, "fig8a__pairs": 50, **changes}.items():
        section, key = name.split("__")
        config[section][key] = value
    return config


def settings(**changes) -> Analytic:
    return Analytic.model_validate(values(**changes))


def data(name: str, **changes) -> pd.DataFrame:
    return make_analytic(name, settings(**changes)).data


@pytest.fixture
def config(tmp_path):
    """Writes a changed config and returns its path."""

    def write(**changes) -> Path:
        path = tmp_path / "analytic.yaml"
        path.write_text(yaml.safe_dump(values(**changes)))
        return path

    return write


def test_the_shipped_config_is_valid():
    read_analytic(SHIPPED)


@pytest.mark.parametrize("name", ANALYTIC_FIGURES)
def test_files_are_the_same_bytes_twice(config, tmp_path, name):
    first, second = (write_analytic(name, config(), tmp_path / folder) for folder in "ab")
    assert [path.name for path in first] == [f"{name}.{suffix}" for suffix in ANALYTIC_SUFFIXES]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_caption_has_the_config_that_made_it(config, tmp_path):
    caption = write_analytic("fig8b_ceiling", config(), tmp_path)[-1].read_text()
    shown = yaml.safe_load(caption.split("```")[1].removeprefix("yaml"))
    assert shown == {key: values()[key] for key in ("pair", "fig8b")}


def test_fig2_columns_are_distributions():
    for _, rows in data("fig2_induced").groupby("rule"):
        assert rows[["p", "q", "induced"]].sum().to_numpy() == pytest.approx(1)
        assert rows["p"].is_monotonic_decreasing
        assert (rows["accepted"] <= rows["q"]).all() and (rows["accepted"] <= rows["ceiling"]).all()


def test_fig2_follows_the_rules():
    rows = data("fig2_induced")
    lenience, gate = (rows[rows["rule"] == rule] for rule in ("lenience", "spec_cascade"))
    assert (lenience["induced"] <= lenience["p"] / 0.4 + 1e-12).all()
    inside, p = gate["allowed"], gate["p"]
    assert (inside == (p >= 0.5 * p.max())).all() and 0 < inside.sum() < len(gate)
    expected = gate["q"].where(inside, 0) + (1 - gate["q"][inside].sum()) * p
    assert gate["induced"].to_numpy() == pytest.approx(expected.to_numpy())


def test_tokens_in_any_order_give_the_same_figure():
    pair = values()["pair"]
    reverse = data("fig2_induced", pair__p=pair["p"][::-1], pair__q=pair["q"][::-1])
    assert reverse["induced"].to_numpy() == pytest.approx(data("fig2_induced")["induced"].to_numpy())


def test_drafts_are_of_their_kind():
    fig4 = settings().fig4
    p, kinds = drafts(fig4)
    k = fig4.candidates
    assert (p.diff(dim=-1) <= 0).all()
    for kind, shared in (("matching", k), ("partial", k // 2), ("unrelated", 0)):
        q = kinds[kind]
        assert q.sum(-1).numpy() == pytest.approx(1)
        assert ((q > 0).sum(-1) == k).all()
        assert ((q[:, :k] > 0).sum(-1) == shared).all()
    assert (kinds["matching"].diff(dim=-1) <= 0).all()


@pytest.mark.parametrize("rule", ["min_p_sampling", "eta_sampling"])
def test_truncation_never_rejects_more_of_a_tree_of_matching_candidates(rule):
    p, kinds = drafts(settings(fig4__pairs=2000).fig4)
    before = accepted_share(get_rule("standard_sd"), "tree", p, kinds["matching"])
    for param in (0.05, 0.2, 0.5, 0.9):
        assert (accepted_share(get_rule(rule, param), "tree", p, kinds["matching"]) >= before - 1e-12).all()


def test_a_tree_accepts_what_its_siblings_accept_in_turn():
    p, kinds = drafts(settings().fig4)
    q, left, rejected = kinds["partial"], p.clone(), torch.ones(len(p), dtype=p.dtype)
    for x in q.argsort(-1, descending=True)[:, :4].T:
        accept = left.gather(-1, x[:, None]).squeeze(-1)
        rejected *= 1 - accept
        left = left.scatter(-1, x[:, None], 0.0)
        left /= left.sum(-1, keepdim=True)
    assert accepted_share(get_rule("standard_sd"), "tree", p, q) == pytest.approx((1 - rejected).numpy())


def test_truncation_helps_matching_candidates_and_hurts_unrelated_ones():
    rows = data("fig4_candidates")
    matching, unrelated = rows[rows["matching"] == 1], rows[rows["unrelated"] == 1]
    assert (matching[matching["proposal"] == "tree"]["be_change"] >= 0).all()
    assert (matching[matching["rule"] == "eta_sampling"]["be_change"] >= 0).all()
    assert (unrelated["be_change"] < 0).all()


def test_fig4_is_the_geometric_sum_of_the_mixed_acceptance():
    rows = data("fig4_candidates")
    keys = ["rule", "param", "proposal"]
    alone = {kind: rows[rows[kind] == 1].set_index(keys)["alpha"] for kind in ("matching", "partial", "unrelated")}
    mixed = rows[rows["matching"] == 0.8].set_index(keys)
    alpha = 0.8 * alone["matching"] + 0.1 * alone["partial"] + 0.1 * alone["unrelated"]
    assert mixed["alpha"].to_numpy() == pytest.approx(alpha.to_numpy())
    assert rows["be"].to_numpy() == pytest.approx(sum(rows["alpha"] ** j for j in range(9)))
    assert (rows["be_change"] - (rows["be"] - rows["be_standard"])).abs().max() < 1e-12


def test_the_interval_of_fig4_covers_another_seed():
    one, other = data("fig4_candidates"), data("fig4_candidates", fig4__seed=1)
    apart = (one["be_change"] - other["be_change"]) / np.hypot(one["be_change_se"], other["be_change_se"])
    assert not one["be_change"].equals(other["be_change"])
    assert apart.abs().max() < 5


def test_the_strength_of_lenience_grows_with_the_distance_and_with_l():
    fig8a = settings().fig8a
    tv, q, p = separated(fig8a)
    assert (0.5 * (p[:, None] - q).abs().sum(-1)).numpy() == pytest.approx(np.broadcast_to(tv, q.shape[:2]))
    d = torch.stack([strength(get_rule("lenience", l), p[:, None], q) for l in sorted(fig8a.l)])  # noqa: E741
    assert d.min() >= 0 and d.max() <= 1 + 1e-12
    assert (d.diff(dim=-1) >= -1e-9).all()
    assert (d.diff(dim=0) >= -1e-9).all()
    assert strength(get_rule("lenience", 1.0), p[:, None], q).numpy() == pytest.approx(1)


def test_the_strength_is_the_one_of_the_adaptive_interpolation():
    _, q, p = separated(settings().fig8a)
    d = strength(get_rule("lenience", 0.4), p[:, None], q)
    mixture = torch.lerp(q, p[:, None].expand_as(q), d[..., None])
    assert mixture.numpy() == pytest.approx(get_rule("adaptive_interpolation", 0.4).induced(p[:, None], q).numpy())


def test_fig8a_is_drawn_from_means_over_the_pairs_that_reach_the_last_distance():
    rows = data("fig8a_strength")
    assert rows["d"].between(0, 1).all() and (rows["d_low"] <= rows["d_high"]).all()
    assert all(here["d"].is_monotonic_increasing for _, here in rows.groupby("l"))
    assert all(here.sort_values("l")["d"].is_monotonic_increasing for _, here in rows.groupby("tv"))
    assert rows["pairs"].between(1, 50).all()


def test_only_the_pointwise_rule_keeps_below_its_ceiling():
    rows = data("fig8b_ceiling")
    above = (rows["ratio"] > rows["ceiling"] + 1e-12).groupby(rows["rule"]).any()
    assert above.to_dict() == {"lenience": False, "adaptive_interpolation": True, "cos": True}
    assert (rows["ratio"] * rows["p"]).groupby(rows["rule"]).sum().to_numpy() == pytest.approx(1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fig4__gama": 8}, ["unknown key 'fig4.gama'", "did you mean 'gamma'"]),
        ({"pair__p": [0.5, 0.6]}, ["pair.p", "must sum to 1", "1.1"]),
        ({"pair__p": [0.5, 0.5]}, ["pair", "2 tokens", "12"]),
        ({"fig2__truncation": {"rule": "cos", "param": 0.5}}, ["fig2.truncation.rule", "spec_cascade"]),
        ({"fig2__collaborative": {"rule": "lenience", "param": 0}}, ["fig2.collaborative", "0 < l <= 1"]),
        ({"fig4__mixes": [[0.8, 0.1, 0.2]]}, ["fig4.mixes", "0.8 / 0.1 / 0.2", "1.1"]),
        ({"fig4__candidates": 3}, ["fig4.candidates", "multiple of 2"]),
        ({"fig4__vocabulary": 6}, ["fig4", "vocabulary 6", "use 8 or more"]),
        ({"fig4__baselines": {"min_p_sampling": [1.5]}}, ["fig4.baselines", "0 <= p_base <= 1"]),
        ({"fig8a__concentration": 90.0}, ["fig8a.tv_max", "lower it"]),
    ],
)
def test_faults_of_the_config_are_one_line_with_the_key_and_the_fix(config, tmp_path, changes, words):
    with pytest.raises(ConfigError) as error:
        write_analytic("fig8a_strength", config(**changes), tmp_path)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words)
    assert not list(tmp_path.glob("fig*"))


def test_a_wrong_name_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'fig2_induced'"):
        write_analytic("fig2", SHIPPED, tmp_path)


def test_the_command_writes_a_figure(config, tmp_path):
    result = CliRunner().invoke(app, ["analytic", "fig8b_ceiling", str(config()), str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "out").iterdir())) == len(ANALYTIC_SUFFIXES)
