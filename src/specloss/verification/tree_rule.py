"""What all rules for trees share: the bound rule, the walk from the root, and the closed forms at one node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from specloss.verification.distributions import induced, normalise
from specloss.verification.rule import Option, Rule, at_least_float32
from specloss.verification.trees import Siblings, Tree


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """What verification decided about a batch of trees.

    `path` int64 [batch, depth]: the accepted nodes below the root, -1 beyond `accepted` int64 [batch]. `next`
    [batch, vocab]: the distribution of the token after them. The others are [batch, nodes], 0 or False at the root and
    padding: `tried` and `kept` bool; `accept_prob` the probability that the node is kept once it is tried (for every
    node, tried or not); `mass` the p'(x) it is tried with; `threshold` what the rule compares it with: a rule accepts
    with `min(1, mass / threshold)`, a gate if its mass is at least `threshold`.
    """

    path: Tensor
    accepted: Tensor
    next: Tensor
    tried: Tensor
    kept: Tensor
    accept_prob: Tensor
    mass: Tensor
    threshold: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeForm:
    """How a registered rule verifies trees: one entry of `TREE_FORMS`.

    `accept(siblings, param, **options) -> (accept_prob, threshold)`, each [batch, nodes] or a number. `mixes`: the
    running target starts from the rule's own mixture of p and q instead of p (p_A for truncation baselines).
    """

    accept: Callable[..., tuple[Tensor, Tensor | float]]
    mixes: bool = False
    options: Mapping[str, Option] = field(default_factory=dict)


class TreeRule:
    """A verification rule on trees with its parameter and options bound. Build it with `get_tree_rule`.

    Walk from the root: at a node its children are tried in order against the running target p', which starts at p (p_A
    for truncation baselines, the mixture r for CoS); a child is kept with the probability that the rule's form gives,
    else p'(x) = 0, p' is renormalised, and the next one is tried. If none is left the next token is drawn from p', at a
    leaf from the rule's bonus distribution. With a = p'(x) this emits p exactly on any tree (EAGLE, Li et al. 2024;
    SpecInfer, Miao et al. 2024). As p' loses every rejected child, pi of a child is the chance of keeping it: no rule
    has a coupling loss here, and there is nothing for a maximal coupling to gain.

    Only rounding can leave p' without any mass; then the next token is drawn from what p' started at.
    """

    def __init__(self, chain: Rule, form: TreeForm, options: Mapping[str, Any]) -> None:
        """`chain` is the same rule for a chain: it knows the target, the allowed set and the matched baseline."""
        self.chain = chain
        self.form = form
        self.name = chain.name
        self.param = chain.param
        self.options = MappingProxyType(dict(options))
        self._arguments = {k: v for k, v in options.items() if k not in ("threshold", "bonus")}

    def __repr__(self) -> str:
        bound = [] if self.param is None else [f"{self.chain.spec.param}={self.param:g}"]
        bound += [f"{k}={v}" for k, v in self.options.items() if v is not None]
        return f"tree {self.name}({', '.join(bound)})"

    @property
    def matched_baseline(self) -> str | None:
        """Name of the rule that this one is compared with: lossless decoding of the distribution it aims at."""
        return self.chain.matched_baseline

    @property
    def lossless(self) -> bool:
        """Whether the emitted text has exactly the target's distribution, on any tree."""
        return self.chain.lossless

    @property
    def needs_q(self) -> bool:
        """Whether `q` must be given at every node with children, and at leaves too if `bonus_needs_q`."""
        return self.form.mixes

    @property
    def bonus_needs_q(self) -> bool:
        """Whether the token after a leaf comes from a mixture with the draft."""
        return self.chain.bonus_needs_q

    def __call__(self, p: Tensor, children: Tensor, q: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Accepted mass and residual `(y, rho)`, each [..., vocab], at a node with `p` (and `q`) [..., vocab].

        `children` int64 [..., most children]: its children's tokens in the order they are tried, padded with -1.
        `y` is the probability of keeping each token, `rho` the distribution of the next one if no child is kept.
        Raises ValueError if the rule needs `q` and it is missing.
        """
        *lead, vocab = p.shape
        star = torch.nn.functional.pad(children.reshape(math.prod(lead), children.shape[-1]), (1, 0))
        tree = Tree(star, torch.zeros_like(star), star >= 0, depth=1)
        p, q = self._widened(p.reshape(-1, 1, vocab), None if q is None else q.reshape(-1, 1, vocab))
        siblings = Siblings(tree, self._start(p, q), self._residual)
        accept_prob, _ = self._accept(tree, siblings)
        y = torch.zeros_like(p[:, 0]).scatter_add(1, tree.places(vocab)[:, 1:], tree.reach(accept_prob)[:, 1:])
        rho = self._next(tree, siblings, p, q, torch.zeros_like(star[:, 0]))
        return y.reshape(*lead, vocab), rho.reshape(*lead, vocab)

    def induced(self, p: Tensor, children: Tensor, q: Tensor | None = None) -> Tensor:
        """Distribution [..., vocab] of the token emitted at a node, `pi = y + (1 - sum(y)) rho`; as calling."""
        return induced(*self(p, children, q))

    def acceptance(self, p: Tensor, children: Tensor, q: Tensor | None = None) -> Tensor:
        """Probability [...] that some child is kept; as calling."""
        return self(p, children, q)[0].sum(-1)

    def verify(self, tree: Tree, p: Tensor, uniforms: Tensor, q: Tensor | None = None) -> TreeVerdict:
        """Walk every tree of the batch from its root to the last kept node.

        `p` and, for rules that need it, `q` [batch, nodes, vocab]: the distributions of the token AFTER each node.
        `uniforms` float64 [batch, nodes] in [0, 1): a tried node is kept when its own is below its accept probability.
        Raises ValueError if the shapes do not fit or `q` is needed and missing.
        """
        batch, nodes = tree.tokens.shape
        if p.ndim != 3 or p.shape[:2] != tree.tokens.shape or (q is not None and q.shape != p.shape):
            shapes = f"got {list(p.shape)} and {None if q is None else list(q.shape)} for {nodes} nodes"
            raise ValueError(f"verify needs p and q [batch, nodes, vocab], {shapes}")
        p, q = self._widened(p, q)
        siblings = Siblings(tree, self._start(p, q), self._residual)
        accept_prob, threshold = self._accept(tree, siblings)
        wins = tree.drafted & (uniforms < accept_prob)
        open_to = tree.drafted & ~(tree.earlier & wins.unsqueeze(-2)).any(-1)  # tried if its parent is kept
        chosen = open_to & wins  # at most one child a node
        node = torch.arange(nodes, device=p.device).expand(batch, -1)
        after = torch.full((batch, nodes + 1), -1, device=p.device)  # [batch, nodes + 1]: last column takes the rest
        after = after.scatter(1, tree.above.where(chosen, nodes), node)[:, :nodes]
        end, path = torch.zeros_like(tree.tokens[:, 0]), []
        step = end
        for _ in range(tree.levels):
            step = torch.where(step < 0, step, after.gather(1, step.clamp_min(0).unsqueeze(-1)).squeeze(-1))
            end = torch.where(step < 0, end, step)
            path.append(step)
        path = torch.stack(path, -1) if path else tree.tokens[:, :0]  # [batch, depth]
        visited = torch.zeros(batch, nodes + 1, dtype=torch.bool, device=p.device)
        visited = visited.scatter(1, path.where(path >= 0, nodes), True)[:, :nodes]
        visited[:, 0] = True
        return TreeVerdict(
            path=path,
            accepted=(path >= 0).sum(-1),
            next=self._next(tree, siblings, p, q, end),
            tried=open_to & visited.gather(1, tree.above),
            kept=visited & tree.drafted,
            accept_prob=accept_prob,
            mass=siblings.mass,
            threshold=threshold,
        )

    @property
    def _residual(self) -> bool:
        return self.options.get("threshold") == "residual"

    def _widened(self, p: Tensor, q: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if q is None and (self.needs_q or self.bonus_needs_q):
            raise ValueError(f"{self.name} on trees needs q, the draft's distributions [batch, nodes, vocab]")
        return (*at_least_float32(p), None) if q is None else at_least_float32(p, q)

    def _start(self, p: Tensor, q: Tensor | None) -> Tensor:
        """Where the running targets start [batch, nodes, vocab]."""
        if not self.form.mixes:
            return self.chain.bonus(p)
        mixture = self.chain.spec.ensemble
        return mixture(p, q, self.param) if mixture else self.chain.induced(p, q)

    def _accept(self, tree: Tree, siblings: Siblings) -> tuple[Tensor, Tensor]:
        accept_prob, threshold = self.form.accept(siblings, self.param, **self._arguments)
        threshold = torch.zeros_like(accept_prob) + threshold
        return accept_prob.where(tree.drafted, 0.0), threshold.where(tree.drafted, 0.0)

    def _next(self, tree: Tree, siblings: Siblings, p: Tensor, q: Tensor | None, end: Tensor) -> Tensor:
        """Distribution [batch, vocab] of the token after node `end` [batch], all of whose children were rejected."""
        rows = torch.arange(len(p), device=p.device)
        leaf = self.chain.bonus(p[rows, end], q[rows, end] if self.bonus_needs_q else None)
        has_children = (tree.drafted & (tree.above == end.unsqueeze(-1))).any(-1, keepdim=True)  # [batch, 1]
        start = siblings.start[rows, end]
        return torch.where(has_children, normalise(siblings.childless[rows, end], start), leaf)
