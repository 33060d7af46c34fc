"""Tree drafting with an EAGLE-3 head (Li et al. 2025; the dynamic tree: EAGLE-2, Li et al. 2024), in batches."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specloss.decoding.trace import Clock
from specloss.models.calling.cache import RaggedCache
from specloss.models.eagle3 import Eagle3Head
from specloss.models.tree_shape import TreeShape


@dataclass(frozen=True, slots=True)
class DraftedTree:
    """Drafted trees of all rows, the root first, parents before children, siblings by falling draft probability."""

    tokens: Tensor  # [rows, nodes], target ids
    parent: Tensor  # [rows, nodes], its place among the nodes; -1 for the root
    depth: Tensor  # [rows, nodes], 0 for the root
    score: Tensor  # [rows, nodes], cumulative draft log-probability; 0 for the root
    mask: Tensor  # [rows, nodes, nodes], True where a node sees a node: itself and its ancestors
    log_q: Tensor | None = None  # [rows, expansions, draft vocabulary], if asked for
    expansion: Tensor | None = None  # [rows, nodes], the node's place in log_q; -1: the head was not run on it

    def paths(self, row: int) -> list[list[int]]:
        """The nodes of each path from the root to a leaf."""
        parents = self.parent[row].tolist()
        paths = []
        for leaf in sorted(set(range(len(parents))) - set(parents)):
            path = [leaf]
            while parents[path[-1]] >= 0:
                path.append(parents[path[-1]])
            paths.append(path[::-1])
        return paths


class TreeDrafter:
    """A head with its cache for `rows` texts of up to `max_length` tokens.

    The cache holds keys and values of committed positions, made from the target's true features. Those of a tree lie
    behind them and are overwritten by what is committed next: nothing approximate outlives its tree.
    """

    def __init__(
        self, head: Eagle3Head, shape: TreeShape, rows: int, max_length: int, clock: Clock | None = None
    ) -> None:
        """`clock` counts the head's forwards as the draft's. ValueError if the draft vocabulary is under `top_k`."""
        if shape.top_k > head.lm_head.out_features:
            raise ValueError(f"top_k {shape.top_k} is more than the draft vocabulary, {head.lm_head.out_features}")
        self.head, self.shape = head, shape
        weight = head.fc.weight
        self.max_length = max_length
        self._forward = clock.forward if clock else nullcontext
        self._cache = RaggedCache(1, rows, max_length + shape.depth * shape.top_k + 1, weight.device)
        self._slots = torch.arange(self._cache.time, device=weight.device)
        self.length = torch.zeros(rows, dtype=torch.int64)  # committed positions, on the host
        self._hidden = weight.new_zeros(rows, weight.shape[0])  # the head's output at the last one
        self._root = torch.zeros(rows, dtype=torch.int64, device=weight.device)

    @torch.inference_mode()
    def draft(
        self, features: Tensor, ids: Tensor, counts: Tensor | None = None, *, with_q: bool = False
    ) -> DraftedTree:
        """`commit`, then `grow`."""
        self.commit(features, ids, counts)
        return self.grow(with_q=with_q)

    @torch.inference_mode()
    def commit(
        self, features: Tensor, ids: Tensor, counts: Tensor | None = None, *, rows: Tensor | None = None
    ) -> None:
        """Take the true features [rows, new, 3 target width] of positions that follow the committed ones.

        `ids` [rows, new] are the tokens one position later: the last one, whose feature is not known yet, is the root
        of the next tree. Of each row only the first `counts` [rows] are real, all if None; the rest is padding, finite.
        `rows` [n]: features, ids and counts are of these rows alone, and those begin a new text.
        ValueError if a text outgrows the drafter's `max_length`.
        """
        device, (n, new) = self._slots.device, ids.shape
        counts = torch.full((n,), new) if counts is None else counts.cpu()
        at = torch.arange(n) if rows is None else rows.cpu()
        start = self.length if rows is None else torch.zeros_like(counts)
        length = start + counts
        if int(length.max()) > self.max_length:
            raise ValueError(f"a text of {int(length.max())} positions; the drafter was made for {self.max_length}")
        # Padding is masked out until it is overwritten. Beyond the end it lands on the last slot, which is its own.
        slots = (start.to(device).unsqueeze(1) + torch.arange(new, device=device)).clamp_max(self._cache.time - 1)
        visible = min(int(start.max()) + new, self._cache.time)
        cache = self._cache.at(slots, visible) if rows is None else self._cache.fill(at.to(device), slots)
        mask = (self._slots[:visible] <= slots.unsqueeze(-1)).unsqueeze(1)  # [rows, 1, new, visible]
        with self._forward("draft"):
            hidden = self.head(self.head.project(features), ids, slots, mask, cache)

        some = counts > 0
        self.length[at] = length
        last, row, at = (counts[some] - 1).to(device), some.nonzero().squeeze(1).to(device), at[some].to(device)
        self._hidden[at], self._root[at] = hidden[row, last], ids[row, last]

    @torch.inference_mode()
    def grow(self, *, with_q: bool = False) -> DraftedTree:
        """Trees that continue the committed texts; a row without any gives a tree without meaning.

        Beams and nodes are chosen by cumulative log-probability, of equals the one drafted first: an ancestor never has
        less than its descendant and comes before it, so it is always kept. `with_q` keeps the draft's distributions.
        """
        k, rows, device = self.shape.top_k, len(self.length), self._slots.device
        length = self.length.to(device).unsqueeze(1)  # [rows, 1]
        with self._forward("draft"):
            log_q = self.head.log_probs(self._hidden).unsqueeze(1)  # [rows, beams, draft vocabulary]: of the root
        scores = log_q.new_zeros(rows, 1)  # [rows, beams]
        beams = scores.new_full((rows, 1), -1, dtype=torch.int64)  # their places among the candidates
        hidden = self._hidden.unsqueeze(1)  # [rows, beams, width], the head's output
        seen = torch.zeros(rows, 1, self.shape.depth * k, dtype=torch.bool, device=device)  # tree slots, of each beam
        pool: list[tuple[Tensor, ...]] = []  # tokens, scores, parents, depth of the candidates, level by level
        kept, expanded, drafted = [log_q], [beams], 0
        for level in range(self.shape.levels):
            top = log_q.topk(k)
            tokens = self.head.target_ids(top.indices).flatten(1)  # [rows, beams k]
            candidate = (scores.unsqueeze(-1) + top.values).flatten(1)
            depth = torch.full_like(tokens, level + 1)
            pool.append((tokens, candidate, beams.repeat_interleave(k, 1), depth))
            if level == self.shape.depth:
                break
            best = candidate.sort(dim=1, descending=True, stable=True).indices[:, :k]
            scores, beams, parent = candidate.gather(1, best), drafted + best, best // k
            drafted += candidate.shape[1]
            seen = _rows(seen, parent)
            seen[:, :, level * k : (level + 1) * k] = torch.eye(k, dtype=torch.bool, device=device)
            hidden, log_q = self._step(_rows(hidden, parent), tokens.gather(1, best), seen, length, level)
            kept.append(log_q)
            expanded.append(beams)
        tree, chosen = self._choose(*(torch.cat(parts, 1) for parts in zip(*pool, strict=True)))
        if not with_q:
            return tree
        at = _places(torch.cat(expanded, 1), self.shape.candidates)
        nodes = torch.cat([torch.full_like(length, -1), chosen], 1)  # as candidates
        return replace(tree, log_q=torch.cat(kept, 1), expansion=at.gather(1, nodes + 1))

    def _step(self, hidden: Tensor, ids: Tensor, seen: Tensor, length: Tensor, level: int) -> tuple[Tensor, Tensor]:
        """The head on the beams of a level, `hidden` [rows, k, width], `ids` [rows, k], `seen` of each.

        Returns its output [rows, k, width] and log-probabilities [rows, k, draft vocabulary].
        """
        k = self.shape.top_k
        slots = length + level * k + torch.arange(k, device=length.device)
        visible = int(self.length.max()) + (level + 1) * k
        place = self._slots[:visible] - length  # [rows, visible]: negative if committed
        of_tree = place.clamp(0, seen.shape[2] - 1).unsqueeze(1).expand(-1, k, -1)
        mask = (place < 0).unsqueeze(1) | seen.gather(2, of_tree) & (place < seen.shape[2]).unsqueeze(1)
        cache = self._cache.at(slots, visible)
        with self._forward("draft"):
            hidden = self.head(hidden, ids, (length + level).expand(-1, k), mask.unsqueeze(1), cache)
            return hidden, self.head.log_probs(hidden)

    def _choose(self, tokens: Tensor, scores: Tensor, parents: Tensor, depth: Tensor) -> tuple[DraftedTree, Tensor]:
        """The best nodes of the candidates [rows, candidates] as trees, and their places [rows, nodes - 1] there."""
        rows, nodes = len(tokens), self.shape.total_token
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, : nodes - 1]
        chosen = best.sort(dim=1).values  # parents before children, siblings as drafted
        node = _places(chosen, self.shape.candidates) + 1  # 0 for the root
        parents = node.gather(1, parents.gather(1, chosen) + 1)
        zero = torch.zeros_like(self._root).unsqueeze(1)
        above = torch.cat([zero, parents], 1)
        itself = torch.eye(nodes, dtype=torch.bool, device=scores.device).expand(rows, -1, -1)
        mask = itself
        for _ in range(self.shape.levels):
            mask = _rows(mask, above) | itself
        return DraftedTree(
            tokens=torch.cat([self._root.unsqueeze(1), tokens.gather(1, chosen)], 1),
            parent=torch.cat([zero - 1, parents], 1),
            depth=torch.cat([zero, depth.gather(1, chosen)], 1),
            score=torch.cat([zero.to(scores.dtype), scores.gather(1, chosen)], 1),
            mask=mask,
        ), chosen

    def keep(self, rows: Tensor) -> None:
        """Drop all rows except `rows` [n], in that order."""
        self._cache.keep(rows)
        self.length, self._hidden, self._root = self.length[rows.cpu()], self._hidden[rows], self._root[rows]


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """For each row of the batch, the vectors `index` [rows, n] of `x` [rows, m, width]: [rows, n, width]."""
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def _places(chosen: Tensor, candidates: int) -> Tensor:
    """Where in `chosen` [rows, n] the root (-1) and each candidate stand, -1 if nowhere: [rows, 1 + candidates]."""
    places = torch.full((len(chosen), 1 + candidates), -1, dtype=torch.int64, device=chosen.device)
    return places.scatter_(1, chosen + 1, torch.arange(chosen.shape[1], device=chosen.device).expand_as(chosen))
