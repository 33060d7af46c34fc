"""The decoding loop for a chain: draft gamma tokens, verify them in one target forward, emit, repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specloss.decoding.loop import Decoder, RowState, is_in, round_up
from specloss.decoding.recorder import Recorder
from specloss.decoding.trace import CHAIN_COLUMNS, Clock, Lists
from specloss.decoding.uniforms import block_uniforms
from specloss.decoding.warp import draw, is_broken
from specloss.models.calling.cache import RaggedCache
from specloss.models.calling.forward import Forward
from specloss.verification import Rule
from specloss.verification.distortion import distortion


@dataclass(kw_only=True)
class ChainDecoder(Decoder):
    """Speculative decoding with a draft model under one rule."""

    rule: Rule
    gamma: int
    recorder: Recorder | None = None

    @property
    def reach(self) -> int:
        """The last known token and the drafted ones."""
        return self.gamma + 1

    def _begin(self, rows: int, longest: int, clock: Clock) -> None:
        time, device = len(self._slots), self._device
        self._ids = torch.zeros(rows, time, dtype=torch.int64, device=device)
        self._target, self._draft = (
            Forward(model, RaggedCache(model.config.get_text_config().num_hidden_layers, rows, time, device))
            for model in (self.pair.target, self.pair.draft)
        )
        self._offsets = torch.arange(-2, self.gamma + 1, device=device)

    def _fill(self, at: Tensor, tokens: Tensor, lengths: Tensor, clock: Clock) -> None:
        self._ids[at, : tokens.shape[1]] = tokens
        slots = self._slots[: tokens.shape[1]].expand(len(at), -1)
        # slots after a shorter prompt are overwritten before use
        causal = self._masks(self._later(slots[:1], tokens.shape[1]))
        for name, forward, mask in zip(("verify", "draft"), (self._target, self._draft), causal, strict=True):
            forward.cache.fill(at, slots)
            with clock.forward(name):
                forward(tokens, mask.expand(len(at), -1, -1, -1), slots, keep=1)

    def _masks(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The target's mask and the draft's, one if they are of one type."""
        own, other = self._types
        mask = self._additive(hidden, own)
        return mask, mask if own == other else self._additive(hidden, other)

    def _keep(self, at: Tensor) -> None:
        self._ids = self._ids[at]
        self._target.cache.keep(at)
        self._draft.cache.keep(at)

    def _block(self, batch: RowState, clock: Clock) -> None:
        """One block of every row: gamma draft forwards, one target forward, verification, bookkeeping."""
        gamma, device = self.gamma, self._device
        drafted = np.minimum(gamma, batch.room)
        starts = (batch.length - batch.begin).astype(np.uint64)
        host = block_uniforms(self.seed, batch.key, batch.sample, starts, gamma)
        draft_u, accept_u, next_u = (torch.from_numpy(u).to(device) for u in host)
        length, drafted_t = torch.from_numpy(np.stack([batch.length, drafted])).to(device)
        # Queries of this block: the last two known tokens (the draft may lack the one before last), then the drafts.
        slots = length.unsqueeze(1) + self._offsets  # [rows, gamma + 3]
        at = slots[:, :-1].clamp_min(0)  # [rows, gamma + 2]
        visible = min(round_up(int(batch.length.max()) + gamma), self._ids.shape[1])
        mask, draft_mask = self._masks(self._later(at, visible))  # [rows, 1, gamma + 2, visible]
        position = at.clamp_max(self.pair.context - 1)  # only padding lies beyond

        known = self._ids.gather(1, at[:, :2])  # [rows, 2]
        feed, seen = known, slice(0, 2)
        block, qs = [known[:, 1]], []
        for i in range(gamma + self.rule.bonus_needs_q):
            self._draft.cache.at(at[:, seen], visible)
            with clock.forward("draft"):
                (logits,) = self._draft(feed, draft_mask[:, :, seen], position[:, seen], keep=1)
            qs.append(self.warper(logits[:, -1, : self.pair.vocab]))  # [rows, vocab]
            block.append(draw(qs[i], draft_u[:, i]))
            feed, seen = block[-1].unsqueeze(1), slice(i + 2, i + 3)
        tokens = torch.stack(block[: gamma + 1], 1)  # [rows, gamma + 1]: last known token, then the drafted ones
        all_q = torch.stack(qs, 1)  # [rows, gamma, vocab], or one more for the bonus
        q = all_q[:, :gamma]

        self._target.cache.at(at[:, 1:], visible)
        with clock.forward("verify"):
            (logits,) = self._target(tokens, mask[:, :, 1:], position[:, 1:], keep=0)
        p = self.warper(logits[..., : self.pair.vocab])  # [rows, gamma + 1, vocab]

        bonus_q = None
        if self.rule.bonus_needs_q:
            bonus_q = all_q[torch.arange(len(p), device=device), drafted_t]
        drafts = tokens[:, 1:]
        verdict = self.rule.verify(p, q, drafts, drafted_t, accept_u[:, :gamma], bonus_q)
        if self.recorder is not None:
            self.recorder.add(batch.prompt, batch.step, drafted, drafts, p, q)
        following = draw(verdict.next, next_u)  # [rows]
        kept = self._slots[: gamma + 1] < verdict.accepted.unsqueeze(1)
        emitted = torch.where(kept, torch.cat([drafts, following.unsqueeze(1)], 1), following.unsqueeze(1))
        self._ids.scatter_(1, slots[:, 2:], emitted)
        values = self._logged(p[:, :-1], q, drafts, verdict).float().cpu().numpy()
        broken = is_broken(p), is_broken(all_q)
        result = torch.cat([verdict.accepted.unsqueeze(1), drafts, emitted, *broken], 1).cpu().numpy()
        self._record(batch, drafted, result, values, clock)

    def _logged(self, p: Tensor, q: Tensor, drafts: Tensor, verdict: Any) -> Tensor:
        """Survival, then the trace's columns [1 + columns, rows, gamma]; garbage at positions that were not drafted."""
        x = drafts.unsqueeze(-1)
        columns = {
            "p": p.gather(-1, x).squeeze(-1),
            "q": q.gather(-1, x).squeeze(-1),
            "accept_prob": verdict.accept_prob,
        }
        wanted = [name for name in self.trace.distortion if name not in columns]
        if wanted:
            mass = None if verdict.y is None else (verdict.y, verdict.rho)
            columns |= distortion(p, q, self.rule, mass, keys=wanted)
        missing = torch.full_like(columns["p"], torch.nan)
        names = (*CHAIN_COLUMNS, *self.trace.distortion)
        return torch.stack([self.rule.survival(verdict.accept_prob), *(columns.get(name, missing) for name in names)])

    def _record(self, batch: RowState, drafted: NDArray, result: NDArray, values: NDArray, clock: Clock) -> None:
        """Emit the block's tokens, log the step. `result` [rows, n]: accepted, drafts, emitted, broken p, broken q."""
        gamma = self.gamma
        accepted, drafts, tokens = result[:, 0], result[:, 1 : gamma + 1], result[:, gamma + 1 : 2 * gamma + 2]
        broken, place = result[:, 2 * gamma + 2 :], np.arange(gamma + 1)
        if broken.any():
            no_p, no_q = broken[:, : gamma + 1], broken[:, gamma + 1 :]
            self._refuse(batch, "target", (no_p > 0) & (place <= drafted[:, None]))
            needed = drafted + self.rule.bonus_needs_q
            self._refuse(batch, "draft", (no_q > 0) & (place[: no_q.shape[1]] < needed[:, None]))
        emitted = self._emit(batch, tokens, drafted, accepted)
        active = emitted.active
        real = place[:gamma] < drafted[:, None]
        # a drafted end of sequence cuts the block, kept or not: nothing behind it could ever be emitted
        end = is_in(drafts, self.pair.eos_ids)
        expected = np.where(real & (end.cumsum(1) == end), values[0], 0).sum(1)
        self.trace.add(
            emitted.scalars,
            clock.lap(),
            expected[active],
            Lists(("emitted",), (place < emitted.count[:, None])[active], tokens[None, active]),
            Lists(("token",), real[active], drafts[None, active]),
            Lists((*CHAIN_COLUMNS, *self.trace.distortion), real[active], values[1:, active]),
        )
