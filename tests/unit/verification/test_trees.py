"""Trees: what is emitted, summed over every coin flip, is what the closed forms say; one child a node is a chain."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest
import torch
from exactness import EXACT, assert_close
from torch import Tensor
from tree_cases import DEEP, SHAPES, children_of, float64, forest, grow, tree_settings, written_out
from verification_cases import pairs

from specloss.verification import RULES, TREE_FORMS, Tree, TreeRule, get_tree_rule
from specloss.verification.distributions import normalise, truncate

ALMOST_ONE = 1 - 2.0**-53
# One rule of each accept function and each start of p'; the others share theirs and see fewer shapes.
FAMILIES = ["standard_sd", "eta_sampling", "lenience", "spec_cascade", "typical_acceptance", "cos", "capped_truncation"]
GATES = ["spec_cascade", "typical_acceptance"]


def node_cases(vocab: int, rows: int = 54) -> tuple[Tensor, Tensor, Tensor]:
    """p and q [rows, vocab] and up to three distinct children [rows, 3], padded with -1."""
    generator = torch.Generator().manual_seed(vocab)
    children = torch.rand(rows, vocab, generator=generator).argsort(-1)[:, :3]
    count = torch.arange(rows) // 9 % (children.shape[-1] + 1)  # every kind of pair with every number of children
    return *pairs((rows, vocab), vocab), children.where(torch.arange(children.shape[-1]) < count.unsqueeze(-1), -1)


NODES = {vocab: node_cases(vocab) for vocab in (2, 3, 4, 5)}


def emissions(rule: TreeRule, tree: Tree, p: Tensor, q: Tensor) -> Tensor:
    """Probability [nodes, vocab] that a node is reached and which token is emitted after it, over all accept flips."""
    nodes, vocab = p.shape[1:]
    flips = torch.tensor(list(product([True, False], repeat=nodes - 1)), dtype=torch.bool).view(
        2 ** (nodes - 1), -1
    )  # [flips, nodes - 1]
    rows = len(flips)
    every = Tree(tree.tokens.expand(rows, -1), tree.parent.expand(rows, -1))
    uniforms = torch.nn.functional.pad(torch.where(flips, 0.0, float64(ALMOST_ONE)), (1, 0))
    verdict = rule.verify(every, p.expand(rows, -1, -1), uniforms, q.expand(rows, -1, -1))
    accept = verdict.accept_prob[:, 1:]
    weight = torch.where(flips, accept, 1 - accept).prod(-1)  # [flips]
    expected_accepted = tree.reach(verdict.accept_prob[:1])[0, 1:].sum()
    torch.testing.assert_close(weight @ verdict.accepted.double(), expected_accepted, **EXACT)
    emitted = torch.zeros(nodes, vocab, dtype=torch.float64)
    for node in range(1, nodes):
        on_path = (verdict.path == node).any(-1)
        assert torch.equal(on_path, verdict.kept[:, node])
        emitted[tree.parent[0, node], tree.tokens[0, node]] += weight[on_path].sum()
    last = torch.where(verdict.accepted > 0, verdict.path.amax(-1), 0) if nodes > 1 else verdict.accepted
    return emitted.index_add(0, last, weight.unsqueeze(-1) * verdict.next)


def closed_forms(rule: TreeRule, tree: Tree, p: Tensor, q: Tensor) -> Tensor:
    """The same [nodes, vocab] as a product of induced distributions along the way to each node."""
    reached, found = [1.0], []
    for node in range(p.shape[1]):
        if node:
            reached.append(found[tree.parent[0, node]][tree.tokens[0, node]].item())
        found.append(reached[node] * rule.induced(p[:, node], children_of(tree, node), q[:, node])[0])
    return torch.stack(found)


@pytest.mark.parametrize("name", TREE_FORMS)
def test_the_closed_form_at_a_node_is_the_walk_written_out(name):
    for p, q, children in NODES.values():
        for rule in tree_settings(name):
            pi, alpha = rule.induced(p, children, q), rule.acceptance(p, children, q)
            star = Tree(torch.nn.functional.pad(children, (1, 0)), torch.zeros(len(p), children.shape[-1] + 1).long())
            star = dataclasses.replace(star, real=star.tokens >= 0)
            spread = [x.unsqueeze(1).expand(-1, star.tokens.shape[1], -1) for x in (p, q)]
            verdict = rule.verify(star, spread[0], torch.ones_like(star.tokens).double(), spread[1])
            found = torch.stack([verdict.accept_prob, verdict.mass, verdict.threshold], 1)[:, :, 1:]
            for i, tokens in enumerate(children.tolist()):
                tokens = [x for x in tokens if x >= 0]
                expected, *tried = written_out(rule, p[i].tolist(), tokens, q[i].tolist())
                torch.testing.assert_close(pi[i], float64(expected), **EXACT, msg=lambda m, r=rule: f"{r}: {m}")
                tried = float64(tried)
                torch.testing.assert_close(found[i, :, : tried.shape[-1]], tried, **EXACT)
                torch.testing.assert_close(alpha[i], pi[i, tokens].sum(), **EXACT)  # no coupling loss on trees


@pytest.mark.parametrize("name", TREE_FORMS)
def test_enumerated_sequences_are_products_of_the_closed_forms(name):
    rules = tree_settings(name)
    shapes = [*(SHAPES if name in FAMILIES else SHAPES[::6]), *DEEP]
    for i, parents in enumerate(shapes):
        rule = rules[i % len(rules)]
        for vocab in {2 if i % 2 and max(map(parents.count, parents), default=0) < 3 else 3, 3 + i % 3}:
            case = grow(parents, vocab, seed=i)
            torch.testing.assert_close(emissions(rule, *case), closed_forms(rule, *case), **EXACT)


@pytest.mark.parametrize("name", [name for name in TREE_FORMS if RULES[name].exact])
def test_lossless_rules_emit_exactly_their_target_on_any_tree(name):
    for rule in tree_settings(name):
        for p, _, children in NODES.values():
            torch.testing.assert_close(rule.induced(p, children), rule.chain.target(p), **EXACT)
    rule = tree_settings(name)[0]
    for i, parents in enumerate([*SHAPES[::2], *DEEP]):
        tree, p, q = grow(parents, 5, seed=i)
        target, reached = rule.chain.target(p)[0], [1.0]
        for node in range(1, p.shape[1]):
            reached.append(reached[tree.parent[0, node]] * target[tree.parent[0, node], tree.tokens[0, node]].item())
        torch.testing.assert_close(emissions(rule, tree, p, q), float64(reached).unsqueeze(-1) * target, **EXACT)


@pytest.mark.parametrize("name", [name for name in TREE_FORMS if TREE_FORMS[name].mixes])
def test_mixtures_emit_exactly_what_they_emit_on_a_chain(name):
    for rule in tree_settings(name):
        for p, q, children in NODES.values():
            inner = children[:, 0] >= 0
            expected = rule.chain.induced(p, q)
            torch.testing.assert_close(rule.induced(p, children, q)[inner], expected[inner], **EXACT)


def chains(rule: TreeRule, dtype: torch.dtype, rows: int = 180, gamma: int = 4, vocab: int = 5):
    """The verdicts on the same blocks of point-mass proposals: by the rule for chains, and by the one for trees."""
    generator = torch.Generator().manual_seed(0)
    p = pairs((rows, gamma + 1, vocab))[0].to(dtype)
    drafted = torch.arange(rows) % (gamma + 1)
    uniforms = torch.rand(rows, gamma, generator=generator, dtype=torch.float64)
    random = torch.randint(vocab, (rows, gamma), generator=generator)
    tokens = torch.where(uniforms < 0.5, p[:, :-1].argmax(-1), random)
    q = torch.nn.functional.one_hot(tokens, vocab).to(dtype)
    chain = rule.chain.verify(p, q, tokens, drafted, uniforms, q[:, -1])
    real = torch.arange(gamma + 1) <= drafted.unsqueeze(-1)
    line = torch.arange(-1, gamma).expand(rows, -1)
    tree = Tree(torch.nn.functional.pad(tokens, (1, 0)), line, real)
    after_last = torch.cat([q, q[:, -1:]], 1)
    after_last[torch.arange(rows), drafted] = q[:, -1]
    return chain, rule.verify(tree, p, torch.nn.functional.pad(uniforms, (1, 0)), after_last), p, tokens, drafted


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", [name for name in TREE_FORMS if name not in GATES])
def test_one_child_a_node_is_the_chain_with_point_mass_proposals(name, dtype):
    for rule in tree_settings(name):
        if rule.options.get("threshold") == "residual":
            continue
        chain, tree, *_ = chains(rule, dtype)
        assert torch.equal(tree.accepted, chain.accepted), rule
        assert_close(tree.next, chain.next, terms=20)  # of vocabularies of 5: normalised once or twice


@pytest.mark.parametrize(
    "rule", [get_tree_rule("spec_cascade", 0.5), get_tree_rule("typical_acceptance", 0.1, gate="hard")], ids=str
)
def test_a_gate_on_one_child_decides_as_on_a_chain_but_never_emits_the_token_that_it_rejected(rule):
    # The gate for chains redraws a rejected token from p itself; on trees p' has lost it: p without x.
    chain, tree, p, tokens, drafted = chains(rule, torch.float64)
    assert torch.equal(tree.accepted, chain.accepted)
    whole = tree.accepted == drafted
    torch.testing.assert_close(tree.next[whole], chain.next[whole], **EXACT)
    at = tree.accepted.clamp_max(tokens.shape[1] - 1).unsqueeze(-1)
    rejected = tokens.gather(1, at)[~whole]
    without = normalise(chain.next[~whole].scatter(1, rejected, 0.0), p[~whole, 0])
    torch.testing.assert_close(tree.next[~whole], without, **EXACT)
    assert (~whole).sum() > 20


def test_the_soft_gate_accepts_on_a_chain_what_the_hard_one_does_and_more():
    rule = get_tree_rule("typical_acceptance", 0.2)
    chain, tree, *_ = chains(rule, torch.float64)
    assert (tree.accepted >= chain.accepted).all() and (tree.accepted > chain.accepted).any()


LIMITS = [
    ("lenience", 1.0, {}, "standard_sd"),
    ("cos", 0.0, {}, "standard_sd"),
    ("min_p_sampling", 0.0, {}, "standard_sd"),
    ("cascade_chow", 0.0, {}, "standard_sd"),
    ("cap_everywhere_keep_tail", 1.0, {"p_base": 0.3}, "standard_sd"),
]


@pytest.mark.parametrize(("name", "param", "options", "limit"), LIMITS)
def test_limits_are_standard_sd(name, param, options, limit):
    tree, p, q, uniforms = forest(120, 9, 6)
    one_hot = (q.amax(-1) == 1).any(-1)  # Chow's rule trusts a certain draft at any price
    rows = ~one_hot if name == "cascade_chow" else torch.ones_like(one_hot)
    verdict = get_tree_rule(name, param, **options).verify(tree, p, uniforms, q)
    standard = get_tree_rule(limit).verify(tree, p, uniforms)
    assert torch.equal(verdict.path[rows], standard.path[rows])
    torch.testing.assert_close(verdict.next[rows], standard.next[rows], **EXACT)


@pytest.mark.parametrize(
    "rule", [get_tree_rule("spec_cascade", 0), get_tree_rule("cap_nowhere_keep_tail", 0.2)], ids=str
)
def test_without_a_bar_the_first_children_are_all_kept(rule):
    tree, p, _, _ = forest(120, 9, 6)
    verdict = rule.verify(tree, p, torch.full(p.shape[:2], ALMOST_ONE, dtype=torch.float64))
    first = tree.drafted & ~tree.earlier.any(-1)
    assert torch.equal(verdict.tried, verdict.kept) and (verdict.kept & ~first).sum() == 0
    ends = torch.where(verdict.accepted > 0, verdict.path.amax(-1), 0)
    torch.testing.assert_close(verdict.next, p[torch.arange(len(p)), ends], **EXACT)


@pytest.mark.parametrize(
    "options", [{"name": "spec_cascade", "param": 0.5}, {"name": "typical_acceptance", "param": 0.2}]
)
def test_thresholds_of_the_residual_differ_only_after_a_rejected_sibling(options):
    tree, p, _, uniforms = forest(300, 9, 6)
    original, residual = (
        get_tree_rule(**options, threshold=t).verify(tree, p, uniforms) for t in ("original", "residual")
    )
    first = ~tree.earlier.any(-1)
    for name in ("accept_prob", "threshold"):
        before, after = getattr(original, name), getattr(residual, name)
        assert torch.equal(before[first], after[first]) and not torch.equal(before, after)
    assert torch.equal(original.mass, residual.mass)


def test_a_tree_worked_by_hand():
    #      0      p = (.5, .3, .2) everywhere; 0 tries 1 (token 1), then 2 (token 2); 1 tries 3 (token 0)
    p = float64([0.5, 0.3, 0.2]).expand(2, 4, 3)
    tree = Tree(torch.tensor([[0, 1, 2, 0]] * 2), torch.tensor([[-1, 0, 0, 1]] * 2), depth=2)
    uniforms = float64([[0, 0.31, 0.28, 0], [0, 0.29, 0, 0.51]])
    verdict = get_tree_rule("standard_sd").verify(tree, p, uniforms)
    assert verdict.path.tolist() == [[2, -1], [1, -1]] and verdict.accepted.tolist() == [1, 1]
    assert verdict.tried.tolist() == [[False, True, True, False], [False, True, False, True]]
    assert verdict.kept.tolist() == [[False, False, True, False], [False, True, False, False]]
    torch.testing.assert_close(verdict.mass[0], float64([0, 0.3, 0.2 / 0.7, 0.5]), **EXACT)
    torch.testing.assert_close(verdict.next, float64([[0.5, 0.3, 0.2], [0, 0.6, 0.4]]), **EXACT)
    torch.testing.assert_close(tree.reach(verdict.accept_prob)[0], float64([1, 0.3, 0.2, 0.15]), **EXACT)
    lenient = get_tree_rule("lenience", 0.4).verify(tree, p, uniforms)
    torch.testing.assert_close(lenient.accept_prob[0], float64([0, 0.75, 0.2 / 0.7 / 0.4, 1]), **EXACT)
    assert lenient.path.tolist() == [[1, 3], [1, 3]] and (lenient.threshold[:, 1:] == 0.4).all()


def test_the_token_after_a_leaf_is_the_bonus_of_the_chain():
    p, q, _ = NODES[5]
    none = torch.full((len(p), 2), -1)
    assert torch.equal(get_tree_rule("cos", 0.4).induced(p, none, q), p)
    mixed = get_tree_rule("cos", 0.4, bonus="r").induced(p, none, q)
    torch.testing.assert_close(mixed, 0.4 * q + 0.6 * p, **EXACT)
    assert torch.equal(get_tree_rule("spec_cascade", 0.4).induced(p, none), p)
    assert torch.equal(get_tree_rule("min_p_sampling", 0.4).induced(p, none), truncate(p, p >= 0.4 * p.amax(-1, True)))
