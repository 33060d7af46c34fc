"""Trees to verify, and one node's verification written out as the walk that defines it."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor
from verification_cases import option_sets, pairs

from specloss.verification import (
    RULES,
    TREE_FORMS,
    Tree,
    TreeRule,
    get_rule,
    get_tree_rule,
    valid_tree_options,
)

# Shapes as the parents of nodes 1, 2, ...: every tree of at most two levels and three children a node, and deeper ones.
SHAPES = [
    [0] * children + [1 + child for child, more in enumerate(grand) for _ in range(more)]
    for children in range(4)
    for grand in product(range(4), repeat=children)
]
DEEP = [[0, 1, 2], [0, 0, 1, 2, 3, 4], [0, 1, 1, 2, 2, 3], [0, 0, 0, 2, 4, 4, 5], [0, 0, 1, 1, 2, 3, 3, 5, 5, 6]]


def tree_settings(name: str) -> list[TreeRule]:
    """Every combination of options on trees, each with one value of the grid in turn, and every value alone."""
    grid, sets = RULES[name].grid, option_sets(valid_tree_options(name))
    rules = [get_tree_rule(name, grid[i % len(grid)], **options) for i, options in enumerate(sets)]
    return rules + [get_tree_rule(name, param) for param in grid[1:]]


TREE_DEFAULTS = [get_tree_rule(name, RULES[name].grid[len(RULES[name].grid) // 2]) for name in TREE_FORMS]


def grow(parents: list[int], vocab: int, seed: int) -> tuple[Tree, Tensor, Tensor]:
    """A batch of one tree of the shape `parents` with distinct siblings, and p and q [1, nodes, vocab]."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(vocab, generator=generator).tolist() for _ in range(len(parents) + 1)]
    tokens = [0, *(orders[parent].pop() for parent in parents)]
    p, q = pairs((9, len(parents) + 1, vocab), seed)
    row = seed % 9
    return Tree(torch.tensor([tokens]), torch.tensor([[-1, *parents]])), p[row : row + 1], q[row : row + 1]


def forest(rows: int, nodes: int, vocab: int, seed: int = 0) -> tuple[Tree, Tensor, Tensor, Tensor]:
    """A batch of random trees of many sizes, with padding; p and q [rows, nodes, vocab]; uniforms [rows, nodes]."""
    generator = torch.Generator().manual_seed(seed)
    parent, tokens = torch.zeros(rows, nodes, dtype=torch.int64), torch.zeros(rows, nodes, dtype=torch.int64)
    size = torch.randint(1, nodes + 1, (rows,), generator=generator)
    for row in range(rows):
        orders = [torch.randperm(vocab, generator=generator).tolist() for _ in range(nodes)]
        for node in range(1, nodes):
            parent[row, node] = int(torch.randint(max(0, node - 6), node, (), generator=generator))
            tokens[row, node] = orders[parent[row, node]].pop()
    p, q = pairs((rows, nodes, vocab), seed)
    uniforms = torch.rand(rows, nodes, generator=generator, dtype=torch.float64)
    return Tree(tokens, parent, torch.arange(nodes) < size.unsqueeze(-1)), p, q, uniforms


def children_of(tree: Tree, node: int) -> Tensor:
    """Tokens [1, children] of a node's children in the only tree of a batch."""
    below = [i for i in range(1, tree.tokens.shape[1]) if tree.parent[0, i] == node]
    return tree.tokens[:, below]


def float64(values: float | list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def norm(mass: list[float]) -> list[float]:
    return [m / math.fsum(mass) for m in mass]


def written_out(
    rule: TreeRule, p: list[float], children: list[int], q: list[float]
) -> tuple[list[float], list[float], list[float], list[float]]:
    """One node, sibling by sibling: `(pi, accept, mass, threshold)`, pi [vocab] and the others [children tried]."""
    name, value, o = rule.name, rule.param, rule.options

    def eta(of: list[float]) -> float:
        entropy = -sum(v * math.log(v) for v in of if v > 0)
        delta = math.sqrt(value) if o["delta"] is None else o["delta"]
        return min(value, delta * math.exp(-entropy), max(of))

    start = p
    if name in ("min_p_sampling", "eta_sampling"):
        least = value * max(p) if name == "min_p_sampling" else eta(p)
        start = norm([v if v >= least else 0.0 for v in p])
    elif rule.needs_q:  # its own formula is tested with the rules for chains
        start = get_rule(name, value).induced(float64(p), float64(q)).tolist()
        if not children and o.get("bonus", "p") == "p":
            start = p
    if not children:
        return start, [], [], []

    pi, stay, running = [0.0] * len(p), 1.0, list(start)
    accepts, masses, thresholds = [], [], []
    for x in children:
        reference = running if o.get("threshold") == "residual" else p
        if name in ("lenience", "overshoot_ceiling", "adaptive_interpolation"):
            threshold, a = value, min(1.0, running[x] / value)
        elif name == "spec_cascade":
            threshold = value * max(reference)
            a = float(reference[x] >= threshold)
        elif name == "typical_acceptance":
            threshold = eta(reference)
            a = min(1.0, running[x] / threshold) if o["gate"] == "soft" else float(reference[x] >= threshold)
        elif name.startswith("cap"):
            cap = "outside" if name == "capped_truncation" else name.split("_")[1]
            threshold = o["p_base"] * max(reference)
            region = "inside" if reference[x] >= threshold else "outside"
            a = min(1.0, running[x] / value) if cap in (region, "everywhere") else 1.0
        else:
            threshold, a = 1.0, running[x]
        accepts, masses, thresholds = [*accepts, a], [*masses, running[x]], [*thresholds, threshold]
        pi[x] += stay * a
        stay *= 1 - a
        left = [0.0 if v == x else mass for v, mass in enumerate(running)]
        if sum(left) == 0:  # p' was x itself, which every rule accepts
            return pi, accepts, masses, thresholds
        running = norm(left)
    return [a + stay * b for a, b in zip(pi, running, strict=True)], accepts, masses, thresholds
