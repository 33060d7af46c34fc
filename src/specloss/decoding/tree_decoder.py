"""The decoding loop for trees: a head drafts a tree for each row, and the target sees all its nodes in one forward.

The last known token is a tree's root. A row's nodes are written to the cache slots behind its text, each at the
position that its depth gives it, and see the text and their ancestors. The accepted path is then moved to its place in
the cache, and the rest is overwritten. The head continues from the target's features of that path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specloss.decoding.loop import Decoder, RowState, round_up
from specloss.decoding.trace import Clock, Lists
from specloss.decoding.tree import DraftedTree, TreeDrafter
from specloss.decoding.uniforms import block_uniforms
from specloss.decoding.warp import draw, is_broken
from specloss.models.calling.cache import RaggedCache
from specloss.models.calling.forward import Forward
from specloss.models.tree_shape import TreeShape
from specloss.verification import Tree, TreeRule, TreeVerdict
from specloss.verification.distortion import distortion


@dataclass(kw_only=True)
class TreeDecoder(Decoder):
    """Speculative decoding with an EAGLE-3 head under one rule."""

    rule: TreeRule
    shape: TreeShape

    @property
    def reach(self) -> int:
        """All nodes of a tree."""
        return self.shape.total_token

    def _begin(self, rows: int, longest: int, clock: Clock) -> None:
        device, target, head = self._device, self.pair.target, self.pair.draft
        self._levels = min(self.shape.levels, self.shape.total_token - 1)  # of the longest path
        cache = RaggedCache(target.config.get_text_config().num_hidden_layers, rows, len(self._slots), device)
        self._target = Forward(target, cache, head)
        self._drafter = TreeDrafter(head, self.shape, rows, longest, clock)
        self._last = torch.zeros(rows, dtype=torch.int64, device=device)  # the roots
        self._eos = torch.tensor(self.pair.eos_ids, dtype=torch.int64, device=device)
        self._itself = torch.eye(self.shape.total_token, dtype=torch.bool, device=device)

    def _fill(self, at: Tensor, tokens: Tensor, lengths: Tensor, clock: Clock) -> None:
        """A head knows a position once the target's feature there and the token after it are known.

        So all of a prompt but its last token is committed, and a prompt of one token leaves nothing to draft from.
        """
        slots = self._slots[: tokens.shape[1]].expand(len(at), -1)
        # slots after a shorter prompt are overwritten before use
        causal = self._additive(self._later(slots[:1], tokens.shape[1]), self._types[0])
        self._target.cache.fill(at, slots)
        with clock.forward("verify"):
            _, features = self._target(tokens, causal.expand(len(at), -1, -1, -1), slots, keep=1)
        self._last[at] = tokens.gather(1, (lengths - 1).to(self._device).unsqueeze(1)).squeeze(1)
        self._drafter.commit(features, tokens.roll(-1, 1), lengths - 1, rows=at)

    def _keep(self, at: Tensor) -> None:
        self._target.cache.keep(at)
        self._drafter.keep(at)
        self._last = self._last[at]

    def _block(self, batch: RowState, clock: Clock) -> None:
        """One tree of every row: the head's forwards, one target forward, verification, bookkeeping."""
        nodes, device = self.shape.total_token, self._device
        drafted = self._drafter.grow(with_q=self.rule.needs_q)
        starts = (batch.length - batch.begin).astype(np.uint64)
        # a node has the number of the chain's offset that it would be, were it the only one on its level
        _, accept_u, next_u = block_uniforms(self.seed, batch.key, batch.sample, starts, nodes - 1)
        accept_u, next_u = (torch.from_numpy(u).to(device) for u in (np.roll(accept_u, 1, 1), next_u))
        levels = np.where(self._drafter.length.numpy() > 0, np.minimum(batch.room, self._levels), 0)
        root, levels = torch.from_numpy(np.stack([batch.length - 1, levels])).to(device).unsqueeze(-1)  # [rows, 1] each

        tokens = torch.cat([self._last.unsqueeze(1), drafted.tokens[:, 1:]], 1)  # [rows, nodes]
        ends = torch.isin(tokens, self._eos)
        ends[:, 0] = False  # a prompt may end in an end of sequence and go on all the same
        behind = (drafted.mask & ends.unsqueeze(1) & ~self._itself).any(-1)
        tree = Tree(tokens, drafted.parent, (drafted.depth <= levels) & ~behind, depth=self._levels)
        slots = root + self._slots[:nodes]
        visible = min(round_up(int(batch.length.max()) + nodes), len(self._slots))
        position = (root + drafted.depth).clamp_max(self.pair.context - 1)  # only padding lies beyond
        self._target.cache.at(slots, visible)
        mask = self._tree_mask(drafted.mask, root, slots, visible)
        with clock.forward("verify"):
            logits, features = self._target(tokens, mask, position, keep=0)
        p = self.warper(logits[..., : self.pair.vocab])  # [rows, nodes, vocab]
        q = self._q(drafted) if self.rule.needs_q else None
        verdict = self.rule.verify(tree, p, accept_u, q)

        following = draw(verdict.next, next_u).unsqueeze(1)  # [rows, 1]
        on = verdict.path >= 0  # [rows, levels]
        own = self._slots[1 : self._levels + 1]
        path = verdict.path.where(on, own)  # what is not on it stays where it is
        emitted = torch.cat([tokens.gather(1, path).where(on, following), following], 1)  # [rows, levels + 1]
        self._last = emitted.gather(1, verdict.accepted.unsqueeze(1)).squeeze(1)
        accepted = self._record(batch, tree, drafted, p, q, verdict, emitted, clock)
        counts = np.where(batch.prompt >= 0, accepted + 1, 0)  # rows that have just ended need no features
        self._drafter.length[torch.from_numpy(counts == 0)] = 0
        if new := int(counts.max()):
            self._target.cache.move(root + path[:, : new - 1], root + own[: new - 1])
            at = torch.nn.functional.pad(path, (1, 0))[:, :new].unsqueeze(-1)  # the root, and what was accepted
            features = features.gather(1, at.expand(-1, -1, features.shape[-1]))
            self._drafter.commit(features, emitted[:, :new], torch.from_numpy(counts))

    def _tree_mask(self, sees: Tensor, root: Tensor, slots: Tensor, visible: int) -> Tensor:
        """Additive mask [rows, 1, nodes, visible]: of the text all before the root, of the tree what `sees` says."""
        seen = (self._slots[:visible] < root).unsqueeze(1).repeat(1, slots.shape[1], 1)
        seen.scatter_(2, slots.unsqueeze(1).expand_as(sees), sees)
        return self._additive(~seen.unsqueeze(1), self._types[0])

    def _q(self, drafted: DraftedTree) -> Tensor:
        """The head's distributions after the warper [rows, nodes, vocab]; without meaning where it was not run."""
        warped = self.warper(drafted.log_q)  # [rows, expansions, draft vocabulary]
        ids = self.pair.draft.target_ids(torch.arange(warped.shape[-1], device=warped.device))
        q = warped.new_zeros(*warped.shape[:2], self.pair.vocab)
        q[..., ids] = warped
        return q[torch.arange(len(q), device=q.device).unsqueeze(1), drafted.expansion.clamp_min(0)]

    def _record(
        self,
        batch: RowState,
        tree: Tree,
        drafted: DraftedTree,
        p: Tensor,
        q: Tensor | None,
        verdict: TreeVerdict,
        emitted: Tensor,
        clock: Clock,
    ) -> NDArray[np.int64]:
        """Emit the tokens, log the step; returns how many nodes were accepted [rows]."""
        nodes, levels = self.shape.total_token, self._levels
        distorted = self._distortion(tree, p, q, verdict) if self.trace.distortion else {}
        columns = {
            "p": p.flatten(1).gather(1, tree.places(p.shape[-1])),
            "q": (drafted.score - drafted.score.gather(1, tree.above)).exp(),
            "accept_prob": verdict.accept_prob,
            "mass": verdict.mass,
            "threshold": verdict.threshold,
        }
        expected = tree.reach(verdict.accept_prob)[:, 1:].sum(1, keepdim=True)  # [rows, 1]
        numbers = torch.cat([x.float() for x in (expected, *columns.values(), *distorted.values())], 1)
        size = tree.drafted.sum(1, keepdim=True)
        # a head's broken distribution comes first wherever scores are sorted: a tree never misses it
        broken = is_broken(p), drafted.score.isnan().any(1, keepdim=True)
        whole = [verdict.accepted.unsqueeze(1), size, verdict.path, emitted, tree.tokens, drafted.depth]
        whole = torch.cat([*whole, verdict.tried, verdict.kept, tree.drafted, *broken], 1).cpu().numpy()
        numbers = numbers.cpu().numpy()
        widths = np.cumsum([1, 1, levels, levels + 1, nodes, nodes, nodes, nodes, nodes, nodes])
        accepted, size, path, tokens, token, depth, tried, kept, real, no_p, no_q = np.split(whole, widths, axis=1)
        if no_p.any() or no_q.any():
            real[:, 0] = 1
            self._refuse(batch, "target", (no_p > 0) & (real > 0))
            drew = (self._drafter.length.numpy() > 0) & (batch.room > 0)
            self._refuse(batch, "draft", (no_q > 0) & drew[:, None])
        logged = self._emit(batch, tokens, size[:, 0], accepted[:, 0])
        active, tried = logged.active, tried.astype(bool)
        decided = np.arange(levels) < (depth * tried).max(1, keepdims=True)
        of_nodes, of_places = np.split(numbers[:, 1:], [nodes * len(columns)], axis=1)

        def lists(names: tuple[str, ...], real: NDArray[np.bool_], *values: NDArray) -> Lists:
            return Lists(names, real[active], np.stack(values)[:, active])

        self.trace.add(
            logged.scalars,
            clock.lap(),
            numbers[active, 0],
            lists(("emitted",), np.arange(levels + 1) < logged.count[:, None], tokens),
            lists(("path",), path >= 0, path),
            lists(("token", "node", "depth"), tried, token, np.broadcast_to(np.arange(nodes), token.shape), depth),
            lists(("kept",), tried, kept.astype(bool)),
            lists(tuple(columns), tried, *np.split(of_nodes, len(columns), axis=1)),
            *([lists(tuple(distorted), decided, *np.split(of_places, len(distorted), axis=1))] if distorted else []),
        )
        return accepted[:, 0]

    def _distortion(self, tree: Tree, p: Tensor, q: Tensor | None, verdict: TreeVerdict) -> dict[str, Tensor]:
        """What the rule does to the target at the root and each accepted node with children, by column: [rows, levels].

        Nodes without children, and places behind the path, hold garbage.
        """
        place = torch.nn.functional.pad(verdict.path[:, :-1], (1, 0))  # [rows, levels]
        child = tree.drafted.unsqueeze(1) & (tree.above.unsqueeze(1) == place.unsqueeze(-1))  # [rows, levels, nodes]
        first = (~child).int().sort(dim=-1, stable=True).indices[..., : self.shape.top_k]
        tokens = tree.tokens.unsqueeze(1).expand_as(child).gather(2, first)
        children = tokens.where(child.gather(2, first), -1)
        at = torch.arange(len(p), device=p.device).unsqueeze(1), place.clamp_min(0)
        p, q = p[at], None if q is None else q[at]  # [rows, levels, vocab]
        chain = self.rule.chain
        return distortion(
            p,
            p,  # of the draft only the children count: what compares p with all of q is not asked for
            self.rule(p, children, q),
            target=chain.target(p) if chain.compares_truncated else None,
            allowed=chain.allowed(p),
            keys=[name for name in self.trace.distortion if name not in ("tv_pq", "coupling_loss")],
        )
