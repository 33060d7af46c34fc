"""Whole blocks: the distribution over emitted sequences, summed over every draft and every coin flip of `verify`."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from exactness import EXACT
from torch import Tensor
from verification_cases import DEFAULTS, LOSSLESS_FOR_THEIR_TARGET, TOKEN_RULES, few_settings, pairs, settings

from specloss.verification import RULES, Rule, get_rule

ALL_SHAPES = [(vocab, gamma) for vocab in (2, 3, 4, 5, 6) for gamma in (1, 2, 3)]


@dataclass
class Tree:
    """Distributions that depend on everything before them, as language models' do.

    `p[d]`, `q[d]` [worlds, vocab ** d, vocab] hold the distributions after each prefix of d tokens, d = 0 ... gamma,
    in several unrelated worlds at once.
    """

    p: list[Tensor]
    q: list[Tensor]

    @classmethod
    def random(cls, vocab: int, gamma: int, worlds: int, seed: int = 0) -> Tree:
        both = []
        for d in range(gamma + 1):
            rows = vocab**d
            p, q = (torch.empty(worlds, rows, vocab, dtype=torch.float64) for _ in range(2))
            for world in range(worlds):
                first = (world + d) % 9  # so that each kind of pair comes first somewhere, at every depth
                cases = pairs((rows + 9, vocab), seed + 31 * d + world)
                p[world], q[world] = (x[first : first + rows] for x in cases)
            both.append((p, q))
        return cls([p for p, _ in both], [q for _, q in both])


def along(levels: list[Tensor], drafts: Tensor) -> Tensor:
    """The distributions [worlds, blocks, len(levels), vocab] met along each draft [blocks, gamma]."""
    vocab = levels[0].shape[-1]
    prefix = torch.zeros(len(drafts), dtype=torch.int64)
    met = []
    for d, level in enumerate(levels):
        met.append(level[:, prefix])
        if d < drafts.shape[1]:
            prefix = prefix * vocab + drafts[:, d]
    return torch.stack(met, 2)


def all_sequences(vocab: int, length: int) -> Tensor:
    return torch.cartesian_prod(*[torch.arange(vocab)] * length).reshape(-1, length)


def enumerate_blocks(rule: Rule, tree: Tree) -> tuple[list[Tensor], Tensor, Tensor]:
    """Run `verify` on every draft and every pattern of flips.

    Returns the probability of each emitted sequence, a tensor [worlds, vocab ** n] for each length n = 1 ... gamma + 1;
    the mean number of accepted tokens [worlds]; and the same mean from `expected_accepted`.
    """
    gamma, (worlds, _, vocab) = len(tree.p) - 1, tree.p[0].shape
    drafts = all_sequences(vocab, gamma)  # [blocks, gamma]
    flips = all_sequences(2, gamma).bool()  # [patterns, gamma]
    p, q = along(tree.p, drafts), along(tree.q[:gamma], drafts)
    drafted = q.gather(-1, drafts.expand(worlds, -1, -1).unsqueeze(-1)).squeeze(-1).prod(-1)  # [worlds, blocks]
    bonus_q = along(tree.q, drafts)[:, :, -1].flatten(0, 1)
    tokens = drafts.repeat(worlds, 1)
    full = torch.full((len(tokens),), gamma)
    emitted = [torch.zeros(worlds, vocab**n, dtype=torch.float64) for n in range(1, gamma + 2)]
    mean, low_variance = torch.zeros(worlds).double(), torch.zeros(worlds).double()
    code = torch.zeros(len(drafts), gamma + 1, dtype=torch.int64)  # of each prefix
    for d in range(gamma):
        code[:, d + 1] = code[:, d] * vocab + drafts[:, d]
    code = code.repeat(worlds, 1)
    world = torch.arange(worlds).repeat_interleave(len(drafts))
    for pattern in flips:
        uniforms = torch.where(pattern, 0.0, 1.0).double().expand(len(tokens), -1)  # 0 accepts what can be, 1 nothing
        verdict = rule.verify(p.flatten(0, 1), q.flatten(0, 1), tokens, full, uniforms, bonus_q)
        chance = torch.where(pattern, verdict.accept_prob, 1 - verdict.accept_prob).prod(-1) * drafted.flatten()
        for n in range(1, gamma + 2):
            mine = verdict.accepted == n - 1
            mass = (chance.unsqueeze(-1) * verdict.next)[mine]  # [rows, vocab]
            slots = (code[mine, n - 1] * vocab).unsqueeze(-1) + torch.arange(vocab)
            emitted[n - 1].index_put_((world[mine].unsqueeze(-1).expand_as(slots), slots), mass, accumulate=True)
        mean.index_add_(0, world, chance * verdict.accepted)
        if pattern.all():
            low_variance.index_add_(0, world, rule.expected_accepted(verdict.accept_prob) * drafted.flatten())
    return emitted, mean, low_variance


def completed(emitted: list[Tensor], levels: list[Tensor]) -> Tensor:
    """Continue every shorter sequence with `levels` to the length of the longest: [worlds, vocab ** (gamma + 1)]."""
    joint = torch.zeros(len(emitted[0]), 1).double()
    for n, new in enumerate(emitted):
        grown = (joint.unsqueeze(-1) * levels[n]).flatten(1) if n else torch.zeros_like(new)
        joint = grown + new
    return joint


def product(levels: list[Tensor]) -> Tensor:
    """Joint distribution [worlds, vocab ** depth] of a sequence drawn token by token from `levels`."""
    joint = levels[0].flatten(1)
    for level in levels[1:]:
        joint = (joint.unsqueeze(-1) * level).flatten(1)
    return joint


def check_token_rule(rule: Rule, tree: Tree) -> None:
    gamma = len(tree.p) - 1
    emitted, mean, low_variance = enumerate_blocks(rule, tree)
    masses = [rule(p, q) for p, q in zip(tree.p, tree.q, strict=True)]
    bonus = rule.bonus(tree.p[-1], tree.q[-1])
    kept = torch.ones(len(tree.p[0]), 1).double()  # [worlds, vocab ** d]: probability of keeping each prefix
    expected_mean = torch.zeros(len(kept)).double()
    for d in range(gamma):
        y, rho = masses[d]
        stopped = kept.unsqueeze(-1) * (1 - y.sum(-1, keepdim=True)) * rho
        torch.testing.assert_close(emitted[d], stopped.flatten(1), **EXACT)
        kept = (kept.unsqueeze(-1) * y).flatten(1)
        expected_mean += kept.sum(-1)
    torch.testing.assert_close(emitted[gamma], (kept.unsqueeze(-1) * bonus).flatten(1), **EXACT)
    torch.testing.assert_close(mean, expected_mean, **EXACT)
    torch.testing.assert_close(low_variance, expected_mean, **EXACT)
    # Continued with itself, the block is distributed as if each token were drawn from pi on its own.
    pi = [*(rule.induced(p, q) for p, q in zip(tree.p[:-1], tree.q[:-1], strict=True)), bonus]
    torch.testing.assert_close(completed(emitted, pi), product(pi), **EXACT)


@pytest.mark.parametrize(("vocab", "gamma"), ALL_SHAPES)
def test_emitted_sequences_follow_the_closed_form(vocab, gamma):
    tree = Tree.random(vocab, gamma, worlds=3)
    for rule in DEFAULTS:
        if rule.per_token:
            check_token_rule(rule, tree)


@pytest.mark.parametrize("name", TOKEN_RULES)
def test_emitted_sequences_follow_the_closed_form_with_every_option(name):
    tree = Tree.random(vocab=3, gamma=2, worlds=12, seed=5)
    for rule in few_settings(name):
        check_token_rule(rule, tree)


@pytest.mark.parametrize("name", LOSSLESS_FOR_THEIR_TARGET)
@pytest.mark.parametrize(("vocab", "gamma"), ALL_SHAPES)
def test_lossless_rules_reproduce_the_joint_distribution_of_their_target(name, vocab, gamma):
    for seed in range(3):
        tree = Tree.random(vocab, gamma, worlds=4, seed=100 * seed)
        rule = get_rule(name, RULES[name].grid[-1])
        target = [rule.target(p, q) if rule.spec.truncates else p for p, q in zip(tree.p, tree.q, strict=True)]
        emitted, mean, low_variance = enumerate_blocks(rule, tree)
        torch.testing.assert_close(completed(emitted, target), product(target), **EXACT)
        torch.testing.assert_close(low_variance, mean, **EXACT)


def test_every_setting_of_the_block_rules_is_enumerated():
    for name, spec in RULES.items():
        if spec.build is not None:
            assert spec.exact, f"{name} is a lossy block rule: say here what it should emit"
            assert len(settings(name)) == 1


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_block_verification_keeps_at_least_as_many_tokens_as_standard_sd(gamma):
    tree = Tree.random(vocab=3, gamma=gamma, worlds=40, seed=9)
    block, token = (enumerate_blocks(get_rule(name), tree)[1] for name in ("blockwise", "standard_sd"))
    assert (block >= token - 1e-12).all()
    assert gamma == 1 or (block > token + 1e-3).any()
