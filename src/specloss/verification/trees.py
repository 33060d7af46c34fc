"""A batch of drafted trees, and what is known about each node among its siblings. Knows nothing about rules.

Siblings are deterministic proposals (the draft's best tokens), tried in order against a running target p'. How a node
is tried depends only on its parent's distribution and the siblings before it, so all nodes are computed at once: no
loop over siblings, and nothing read back from the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from specloss.verification.distributions import entropy


@dataclass(frozen=True)
class Tree:
    """A batch of drafted trees, one a row. Node 0 is the root, the last known token; the others are drafted.

    `tokens`, `parent` int64 [batch, nodes]; `parent[:, 0]` is of any content, every other real node has a real parent.
    `real` bool [batch, nodes]: the rest is padding of any content (default: no padding). Siblings are distinct tokens;
    they are tried in the order of `score` [batch, nodes], highest first (a draft probability or its logarithm), ties
    and `score=None` in the order of the nodes. `depth`: levels below the root, or more (default: `nodes - 1`, which
    is always enough and slow). Raises ValueError if the shapes do not fit.
    """

    tokens: Tensor
    parent: Tensor
    real: Tensor | None = None
    score: Tensor | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        shapes = [list(x.shape) for x in (self.tokens, self.parent, self.real, self.score) if x is not None]
        if len(shapes[0]) != 2 or not shapes[0][1] or any(shape != shapes[0] for shape in shapes):
            listing = ", ".join(map(str, shapes))
            raise ValueError(f"a tree needs tokens, parent, real and score [batch, nodes], got {listing}")

    @property
    def levels(self) -> int:
        """Levels below the root that a walk has to look at."""
        return self.tokens.shape[1] - 1 if self.depth is None else self.depth

    @cached_property
    def drafted(self) -> Tensor:
        """Mask [batch, nodes] of the real nodes below the root."""
        below = torch.arange(self.tokens.shape[1], device=self.tokens.device) > 0
        return below.expand_as(self.tokens) if self.real is None else below & self.real

    @cached_property
    def above(self) -> Tensor:
        """`parent` [batch, nodes], with the root for the nodes that have none."""
        return self.parent.where(self.drafted, 0)

    @cached_property
    def siblings(self) -> Tensor:
        """Mask [batch, nodes, nodes]: the second node is a sibling of the first, or the first itself."""
        same = self.above.unsqueeze(-1) == self.above.unsqueeze(-2)
        return same & self.drafted.unsqueeze(-1) & self.drafted.unsqueeze(-2)

    @cached_property
    def earlier(self) -> Tensor:
        """Mask [batch, nodes, nodes]: the second node is a sibling of the first and tried before it."""
        node = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        before = node < node.unsqueeze(-1)
        if self.score is not None:
            mine, other = self.score.unsqueeze(-1), self.score.unsqueeze(-2)
            before = (other > mine) | ((other == mine) & before)
        return self.siblings & before

    def places(self, vocab: int) -> Tensor:
        """Where each node's token stands in its parent's distribution: indices [batch, nodes] into [nodes * vocab]."""
        return self.above * vocab + self.tokens.where(self.drafted, 0)

    def reach(self, accept_prob: Tensor) -> Tensor:
        """Probability [batch, nodes] of being on the accepted path, from `TreeVerdict.accept_prob`; 1 at the root.

        Its sum below the root is the mean number of accepted tokens given the tree: block efficiency with the coin
        flips averaged over instead of thrown, so with less variance.
        """
        missed = torch.where(self.earlier, 1 - accept_prob.unsqueeze(-2), 1.0).prod(-1)
        step = torch.where(self.drafted, accept_prob * missed, 0.0)
        root = torch.zeros_like(step)
        root[:, 0] = 1.0
        reach = root
        for _ in range(self.levels):
            reach = root + step * reach.gather(1, self.above)
        return reach


class Siblings:
    """What an accept function may know about each node among its siblings; tensors are [batch, nodes].

    `mass` is p'(x), after the siblings before it were rejected; `compared`, `peak` and `entropy` are those of the
    distribution that thresholds come from: with `residual` p', else the original p at the parent.

    Sums run over what is left and never subtract, so they are as exact when nearly everything was rejected.
    """

    def __init__(self, tree: Tree, p: Tensor, residual: bool) -> None:
        """`p` [batch, nodes, vocab], the distributions that the running targets start from."""
        self._tree, self.start, self._residual = tree, p, residual
        places = tree.places(p.shape[-1])
        self._x = p.flatten(1).gather(1, places).where(tree.drafted, 0.0)  # [batch, nodes]: p(x) at the parent
        # [batch, nodes, vocab]: each node's p without its children. x - x is exactly zero, and padding adds nothing.
        self.childless = p.flatten(1).scatter_add(1, places, -self._x).view_as(p)
        self._left = tree.siblings & ~tree.earlier  # [batch, nodes, nodes]: not rejected yet when a node is tried
        self._first = ~tree.earlier.any(-1)
        rest = self._of_parent(self.childless.sum(-1)) + self._over_left(self._x)
        self._rest = rest.where(~self._first, 1.0)  # p' starts at p itself, whatever p sums to
        self.mass = self._renormalised(self._x)

    def _of_parent(self, values: Tensor) -> Tensor:
        return values.gather(1, self._tree.above)

    def _over_left(self, values: Tensor) -> Tensor:
        return torch.where(self._left, values.unsqueeze(-2), 0.0).sum(-1)

    def _renormalised(self, values: Tensor) -> Tensor:
        return torch.where(self._rest > 0, values / self._rest, 0.0)

    @property
    def compared(self) -> Tensor:
        """Mass of the node's token under the distribution that thresholds come from."""
        return self.mass if self._residual else self._x

    @property
    def peak(self) -> Tensor:
        """The largest mass under the distribution that thresholds come from."""
        if not self._residual:
            return self._of_parent(self.start.amax(-1))
        left = torch.where(self._left, self._x.unsqueeze(-2), 0.0).amax(-1)
        return self._renormalised(torch.maximum(left, self._of_parent(self.childless.amax(-1))))

    @property
    def entropy(self) -> Tensor:
        """Entropy in nats of the distribution that thresholds come from."""
        original = self._of_parent(entropy(self.start))
        if not self._residual:
            return original
        left = self._of_parent(entropy(self.childless)) + self._over_left(torch.special.entr(self._x))
        # H(m / s) = H(m) / s + ln(s) for a mass m with sum s
        return torch.where(self._first, original, self._renormalised(left) + self._rest.clamp_min(1e-30).log())
