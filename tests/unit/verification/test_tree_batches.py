"""Trees in batches: padding, order, depth, impossible input, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from exactness import EXACT, assert_close, rounding
from tree_cases import TREE_DEFAULTS, forest, tree_settings

from specloss.verification import RULES, TREE_FORMS, Tree, get_tree_rule, matched_tree_rule

SUM = rounding(torch.ones(1), terms=20)  # of six probabilities, normalised up to three times


@pytest.mark.parametrize("rule", TREE_DEFAULTS, ids=str)
def test_padding_and_unused_drafts_of_any_content_change_nothing(rule):
    tree, p, q, uniforms = forest(60, 9, 6)
    clean = rule.verify(tree, p, uniforms, q)
    leaf = ~((tree.parent.unsqueeze(-2) == torch.arange(9).unsqueeze(-1)) & tree.drafted.unsqueeze(-2)).any(-1)
    for garbage in (torch.nan, torch.inf, -7.0):
        dirty = [x.clone() for x in (tree.tokens, tree.parent, p, q, uniforms)]
        for x, content in zip(dirty, (-1, 99, garbage, garbage, 0), strict=True):
            x[~tree.real] = content
        dirty[3][leaf] = garbage
        same = rule.verify(Tree(dirty[0], dirty[1], tree.real), dirty[2], dirty[4], dirty[3])
        for name in clean.__slots__:
            torch.testing.assert_close(getattr(same, name), getattr(clean, name), rtol=0, atol=0)


@pytest.mark.parametrize("rule", TREE_DEFAULTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rows_are_independent_and_every_number_is_finite(rule, dtype):
    tree, p, q, uniforms = forest(45, 9, 6, seed=1)
    p, q = p.to(dtype), q.to(dtype)
    together = rule.verify(tree, p, uniforms, q)
    assert together.path.dtype == together.accepted.dtype == torch.int64
    for name in ("next", "accept_prob", "mass", "threshold"):
        values = getattr(together, name)
        assert torch.isfinite(values).all() and (values >= 0).all() and (values <= 1 + SUM).all()
        assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_close(together.next.sum(-1), torch.ones_like(together.next[:, 0]), terms=20)
    for row in range(0, 45, 4):
        mine = slice(row, row + 1)
        alone = Tree(tree.tokens[mine], tree.parent[mine], tree.real[mine])
        verdict = rule.verify(alone, p[mine], uniforms[mine], q[mine])
        for name in verdict.__slots__:
            assert torch.equal(getattr(verdict, name), getattr(together, name)[mine])


def test_the_score_orders_siblings_and_node_order_breaks_ties():
    tree, p, _, uniforms = forest(60, 9, 6, seed=2)
    backwards = torch.tensor([0, *range(8, 0, -1)])  # new place of each node; a root stays
    place = backwards.argsort()
    mirrored = Tree(
        tree.tokens[:, place],
        backwards[tree.parent.clamp_min(0)][:, place],
        tree.real[:, place],
        score=-place.double().expand(60, -1),
    )
    rule = get_tree_rule("typical_acceptance", 0.1)
    verdict, expected = rule.verify(mirrored, p[:, place], uniforms[:, place]), rule.verify(tree, p, uniforms)
    assert torch.equal(verdict.path, torch.where(expected.path < 0, -1, backwards[expected.path]))
    torch.testing.assert_close(verdict.accept_prob[:, backwards], expected.accept_prob, **EXACT)
    tied = dataclasses.replace(tree, score=torch.zeros(60, 9))
    assert torch.equal(tied.earlier, tree.earlier)


def test_the_depth_given_is_the_width_of_the_path_and_changes_nothing_else():
    tree, p, _, uniforms = forest(60, 9, 6)
    rule = get_tree_rule("lenience", 0.4)
    whole = rule.verify(tree, p, uniforms)
    deepest = int(whole.accepted.max())
    short = rule.verify(dataclasses.replace(tree, depth=deepest), p, uniforms)
    assert whole.path.shape == (60, 8) and torch.equal(short.path, whole.path[:, :deepest])
    assert torch.equal(short.next, whole.next) and torch.equal(short.tried, whole.tried)


@pytest.mark.parametrize("rule", TREE_DEFAULTS, ids=str)
def test_verification_never_waits_for_the_device(rule):
    p = torch.empty(2, 5, 7, device="meta")
    tree = Tree(*torch.empty(2, 2, 5, dtype=torch.int64, device="meta"), depth=3)
    verdict = rule.verify(tree, p, torch.empty(2, 5, dtype=torch.float64, device="meta"), p)
    assert verdict.next.shape == (2, 7) and verdict.path.shape == (2, 3) and verdict.tried.shape == (2, 5)
    assert rule.induced(p, torch.empty(2, 5, 3, dtype=torch.int64, device="meta"), p).shape == p.shape


def test_rules_without_a_form_on_trees_are_those_whose_choice_is_not_a_function_of_p_and_the_token():
    missing = [name for name in RULES if name not in TREE_FORMS]
    assert missing == [*(f"cap_{cap}_drop_tail" for cap in ("nowhere", "inside", "outside", "everywhere")), "blockwise"]


REFUSED = [
    (("leniense", 0.4), {}, ["unknown rule 'leniense'", "did you mean 'lenience'?"]),
    (("blockwise",), {}, ["blockwise has no form on trees; rules that have one: standard_sd, min_p_sampling"]),
    (("cap_inside_drop_tail", 0.4), {}, ["cap_inside_drop_tail has no form on trees"]),
    (("lenience",), {}, ["lenience: parameter l is missing", "0 < l <= 1"]),
    (
        ("lenience", 0.4),
        {"threshold": "original"},
        ["lenience on trees has no option 'threshold'; valid options: none"],
    ),
    (("spec_cascade", 0.5), {"residual": "draft"}, ["no option 'residual'", "threshold original | residual"]),
    (("standard_sd",), {"coupling": "maximal"}, ["standard_sd on trees has no option 'coupling'"]),
    (("typical_acceptance", 0.1), {"gate": "firm"}, ["option gate is invalid: 'firm'", "gate soft | hard"]),
    (("typical_acceptance", 0.1), {"delta": 2}, ["delta is invalid: 2", "0 < delta <= 1"]),
]


@pytest.mark.parametrize(("arguments", "options", "parts"), REFUSED)
def test_refused_in_one_line(arguments, options, parts):
    with pytest.raises(ValueError) as caught:
        get_tree_rule(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_shapes_that_do_not_fit_and_a_missing_draft_are_refused():
    tree, p, _, uniforms = forest(3, 4, 5)
    with pytest.raises(ValueError, match=r"a tree needs tokens, parent, real and score \[batch, nodes\]"):
        Tree(tree.tokens, tree.parent[:, 1:])
    with pytest.raises(ValueError, match=r"verify needs p and q \[batch, nodes, vocab\]"):
        get_tree_rule("standard_sd").verify(tree, p[:, 1:], uniforms)
    for rule in (get_tree_rule("cos", 0.4), get_tree_rule("cascade_chow", 0.1)):
        with pytest.raises(ValueError, match="on trees needs q, the draft's distributions"):
            rule.verify(tree, p, uniforms)


def test_matched_baselines_have_the_same_parameter_and_the_shared_options():
    for name in TREE_FORMS:
        for rule in tree_settings(name):
            baseline = matched_tree_rule(rule)
            assert (baseline.name if baseline else None) == rule.matched_baseline == RULES[name].matched_baseline
            assert baseline is None or baseline.param in (None, rule.param)
            assert str(rule).startswith(f"tree {name}(")
    typical = get_tree_rule("typical_acceptance", 0.1, delta=0.5, threshold="residual")
    assert str(matched_tree_rule(typical)) == "tree eta_sampling(epsilon=0.1, delta=0.5)"
