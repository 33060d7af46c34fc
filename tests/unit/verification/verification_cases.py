"""Rules from the registry and distributions to test them on. Registering a rule is what gets it tested."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from specloss.verification import RULES, Rule, get_rule, valid_options
from specloss.verification.rule import Option, Range

TOKEN_RULES = [name for name, spec in RULES.items() if spec.build is None]
LOSSLESS_FOR_THEIR_TARGET = [name for name, spec in RULES.items() if spec.exact]


def params(name: str) -> list[float | None]:
    """The grid of a rule, and values at the ends of its range or as near as they may be."""
    spec = RULES[name]
    if spec.param is None:
        return [None]
    low = spec.valid.low + (1e-6 if spec.valid.open_low else 0)
    high = spec.valid.high - (1e-6 if spec.valid.open_high else 0)
    return [*spec.grid, low, high]


def option_sets(known: Mapping[str, Option]) -> list[dict[str, Any]]:
    """Every combination of the options of a rule; of an option that is a number, the default and two others."""
    choices = [
        [option.default, option.valid.high, (option.valid.low + option.valid.high) / 4]
        if isinstance(option.valid, Range)
        else option.valid
        for option in known.values()
    ]
    return [dict(zip(known, values, strict=True)) for values in product(*choices)]


def settings(name: str) -> list[Rule]:
    """Every parameter with every combination of options."""
    return [get_rule(name, param, **options) for param in params(name) for options in option_sets(valid_options(name))]


def few_settings(name: str) -> list[Rule]:
    """Every combination of options, each with one value of the grid in turn, and every value with the defaults."""
    grid = RULES[name].grid
    rules = [
        get_rule(name, grid[i % len(grid)], **options) for i, options in enumerate(option_sets(valid_options(name)))
    ]
    return rules + [get_rule(name, param) for param in grid[1:]]


DEFAULTS = [get_rule(name, spec.grid[len(spec.grid) // 2]) for name, spec in RULES.items()]
TOKEN_DEFAULTS = [rule for rule in DEFAULTS if rule.per_token]


def random_distributions(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Distributions [*shape] in float64, from nearly flat to nearly certain."""
    sharpness = torch.rand(*shape[:-1], 1, generator=generator, dtype=torch.float64) * 6
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * sharpness).softmax(-1)


def pairs(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs (p, q), each float64 [*shape]: generic ones, and every kind that breaks careless code, in turn.

    Kinds: generic, zeros in both, ties, p = q, disjoint supports, p one-hot, q one-hot, both one-hot, nearly equal.
    """
    generator = torch.Generator().manual_seed(seed)
    *lead, vocab = shape
    p, q = (random_distributions(shape, generator).reshape(-1, vocab) for _ in range(2))
    rows = len(p)
    kind = torch.arange(rows) % 9

    def one_hot() -> Tensor:
        hot = torch.randint(vocab, (rows,), generator=generator)
        return torch.nn.functional.one_hot(hot, vocab).double()

    def sparse(x: Tensor) -> Tensor:
        kept = torch.rand(rows, vocab, generator=generator) < 0.6
        kept |= torch.nn.functional.one_hot(torch.randint(vocab, (rows,), generator=generator), vocab).bool()
        return x * kept / (x * kept).sum(-1, keepdim=True)

    def ties() -> Tensor:
        counts = torch.randint(0, 3, (rows, vocab), generator=generator).double()
        counts[:, 0] += counts.sum(-1) == 0
        return counts / counts.sum(-1, keepdim=True)

    side = torch.rand(rows, vocab, generator=generator) < 0.5
    side[:, 0], side[:, -1] = True, False
    left, right = ((x * s / (x * s).sum(-1, keepdim=True)) for x, s in ((p, side), (q, ~side)))
    near = p * (1 + 1e-9 * torch.randn(rows, vocab, generator=generator, dtype=torch.float64))
    kinds = [
        (p, q),
        (sparse(p), sparse(q)),
        (ties(), ties()),
        (q, q),
        (left, right),
        (one_hot(), q),
        (p, one_hot()),
        (one_hot(), one_hot()),
        (p, near / near.sum(-1, keepdim=True)),
    ]
    for k, (pk, qk) in enumerate(kinds):
        p, q = (torch.where((kind == k).unsqueeze(-1), new, old) for new, old in ((pk, p), (qk, q)))
    return p.reshape(*lead, vocab), q.reshape(*lead, vocab)
