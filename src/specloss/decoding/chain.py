"""The decoding loop for a chain: draft gamma tokens, verify them in one target forward, emit, go on.

Rows of a batch are independent: each has its own length in the ragged caches, finished rows leave and waiting prompts
take their place. What a row emits depends on its prompt and its counter-keyed random numbers alone, up to the last
bits of the two models' forwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specloss.decoding.cache import RaggedCache
from specloss.decoding.clock import Clock
from specloss.decoding.forward import Forward
from specloss.decoding.recorder import Recorder
from specloss.decoding.trace import STOPS, Trace
from specloss.decoding.uniforms import block_uniforms, problem_key
from specloss.decoding.warp import Warper, draw
from specloss.models.pair import LoadedPair
from specloss.verification import Rule
from specloss.verification.distortion import distortion

EOS, LENGTH, CONTEXT = (STOPS.index(name) for name in ("eos", "length", "context"))
_SPAN = 32  # visible cache slots come in multiples of this: few distinct shapes, little masked work


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to continue. `problem` and `sample` key its random numbers; `index` is its place in the output."""

    ids: Sequence[int]
    problem: str
    index: int
    sample: int = 0


@dataclass(slots=True)
class _Batch:
    """What is known of each row, on the host; arrays [rows]. A row without a prompt (-1) computes garbage."""

    prompt: NDArray[np.int64]
    length: NDArray[np.int64]  # tokens so far, the prompt's included; the last one is in no cache yet
    begin: NDArray[np.int64]  # the prompt's length
    step: NDArray[np.int64]
    limit: NDArray[np.int64]  # length at which the row must stop
    key: NDArray[np.uint64]  # [rows, 2]
    sample: NDArray[np.uint64]

    @classmethod
    def empty(cls, rows: int) -> _Batch:
        ones = np.ones(rows, np.int64)
        key, sample = np.zeros((rows, 2), np.uint64), np.zeros(rows, np.uint64)
        return cls(-ones, ones, ones.copy(), 0 * ones, ones + 1, key, sample)

    def keep(self, rows: NDArray[np.int64]) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name)[rows])


@dataclass
class ChainDecoder:
    """Speculative decoding of a draft pair under one rule; settings as in `specloss.decode`."""

    pair: LoadedPair
    rule: Rule
    gamma: int
    warper: Warper
    max_new_tokens: int
    seed: int
    batch_size: int
    trace: Trace
    recorder: Recorder | None = None
    outputs: list[list[int]] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)

    @torch.inference_mode()
    def run(self, prompts: Sequence[Prompt]) -> None:
        """Decode all prompts into `outputs` and `stops` (codes of `trace.STOPS`), a place for each prompt in order.

        ValueError names a prompt that is empty, does not fit the models' context, or has ids that they do not share.
        """
        for prompt in prompts:
            self._check(prompt)
        context = self.pair.context
        self.outputs, self.stops = [[] for _ in prompts], [0 for _ in prompts]
        if not prompts:
            return
        rows = min(self.batch_size, len(prompts))
        longest = max(min(len(prompt.ids) + self.max_new_tokens, context) for prompt in prompts)
        time = _round_up(longest + self.gamma + 1)
        self._device = device = self.pair.device
        self._ids = torch.zeros(rows, time, dtype=torch.int64, device=device)
        self._target, self._draft = (
            Forward(model, RaggedCache(model.config.num_hidden_layers, rows, time, device))
            for model in (self.pair.target, self.pair.draft)
        )
        self._slots = torch.arange(time, device=device)
        self._offsets = torch.arange(-2, self.gamma + 1, device=device)
        self._visible = torch.zeros(1, dtype=self.pair.target.dtype, device=device)  # a mask's value there
        batch, waiting, clock = _Batch.empty(rows), deque(range(len(prompts))), Clock(device)
        while True:
            free = np.flatnonzero(batch.prompt < 0)
            if waiting and (len(free) >= max(1, rows // 8) or len(free) == len(batch.prompt)):
                self._admit(batch, free, waiting, prompts, clock)
            elif not waiting and len(free) == len(batch.prompt):
                return
            elif not waiting and len(free) * 4 >= len(batch.prompt):
                self._compact(batch)
            self._block(batch, clock)

    def _check(self, prompt: Prompt) -> None:
        name = prompt.problem if len(prompt.problem) < 60 else f"number {prompt.index}"
        if not 0 < len(prompt.ids) < self.pair.context:
            raise ValueError(
                f"prompt {name!r} has {len(prompt.ids)} tokens; it must have between 1 and {self.pair.context - 1}, "
                "one less than the models' context"
            )
        for token in (min(prompt.ids), max(prompt.ids)):
            if not 0 <= token < self.pair.vocab:
                raise ValueError(
                    f"prompt {name!r} has token id {token}; the models share ids 0 to {self.pair.vocab - 1}"
                )

    def _admit(
        self, batch: _Batch, free: NDArray, waiting: deque[int], prompts: Sequence[Prompt], clock: Clock
    ) -> None:
        """Put waiting prompts into free rows and fill their caches, all prompts of one call in one forward each."""
        taken = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
        rows = free[: len(taken)]
        lengths = np.array([len(prompts[i].ids) for i in taken])
        ids = np.zeros((len(taken), int(lengths.max())), np.int64)
        for row, i in zip(ids, taken, strict=True):
            row[: len(prompts[i].ids)] = prompts[i].ids
        batch.prompt[rows], batch.length[rows], batch.begin[rows], batch.step[rows] = taken, lengths, lengths, 0
        batch.limit[rows] = np.minimum(lengths + self.max_new_tokens, self.pair.context)
        batch.key[rows] = [problem_key(prompts[i].problem) for i in taken]
        batch.sample[rows] = [prompts[i].sample for i in taken]

        at = torch.from_numpy(rows).to(self._device)
        tokens = torch.from_numpy(ids).to(self._device)
        self._ids[at, : tokens.shape[1]] = tokens
        slots = self._slots[: tokens.shape[1]].expand(len(taken), -1)
        causal = self._mask(slots[:1], tokens.shape[1])  # what lies behind a shorter prompt is overwritten before use
        for name, forward in (("verify", self._target), ("draft", self._draft)):
            forward.cache.fill(at, slots)
            with clock.forward(name):
                forward(tokens, causal.expand(len(taken), -1, -1, -1), slots, keep=1)

    def _compact(self, batch: _Batch) -> None:
        """Let finished rows leave the batch."""
        rows = np.flatnonzero(batch.prompt >= 0)
        batch.keep(rows)
        at = torch.from_numpy(rows).to(self._device)
        self._ids = self._ids[at]
        self._target.cache.keep(at)
        self._draft.cache.keep(at)

    def _block(self, batch: _Batch, clock: Clock) -> None:
        """One block of every row: gamma draft forwards, one target forward, verification, bookkeeping."""
        gamma, device = self.gamma, self._device
        drafted = np.minimum(gamma, batch.limit - batch.length - 1)
        starts = (batch.length - batch.begin).astype(np.uint64)
        host = block_uniforms(self.seed, batch.key, batch.sample, starts, gamma)
        draft_u, accept_u, next_u = (torch.from_numpy(u).to(device) for u in host)
        length, drafted_t = torch.from_numpy(np.stack([batch.length, drafted])).to(device)
        # Queries of this block: the last two known tokens (the draft may lack the one before last), then the drafts.
        slots = length.unsqueeze(1) + self._offsets  # [rows, gamma + 3]
        at = slots[:, :-1].clamp_min(0)  # [rows, gamma + 2]
        visible = min(_round_up(int(batch.length.max()) + gamma), self._ids.shape[1])
        mask = self._mask(at, visible)  # [rows, 1, gamma + 2, visible]
        position = at.clamp_max(self.pair.context - 1)  # only padding lies beyond

        known = self._ids.gather(1, at[:, :2])  # [rows, 2]
        feed, seen = known, slice(0, 2)
        block, qs = [known[:, 1]], []
        for i in range(gamma + self.rule.bonus_needs_q):
            self._draft.cache.at(at[:, seen], visible)
            with clock.forward("draft"):
                logits = self._draft(feed, mask[:, :, seen], position[:, seen], keep=1)
            qs.append(self.warper(logits[:, -1, : self.pair.vocab]))  # [rows, vocab]
            block.append(draw(qs[i], draft_u[:, i]))
            feed, seen = block[-1].unsqueeze(1), slice(i + 2, i + 3)
        tokens = torch.stack(block[: gamma + 1], 1)  # [rows, gamma + 1]: last known token, then the drafted ones
        q = torch.stack(qs[:gamma], 1)  # [rows, gamma, vocab]

        self._target.cache.at(at[:, 1:], visible)
        with clock.forward("verify"):
            logits = self._target(tokens, mask[:, :, 1:], position[:, 1:], keep=0)
        p = self.warper(logits[..., : self.pair.vocab])  # [rows, gamma + 1, vocab]

        bonus_q = None
        if self.rule.bonus_needs_q:
            bonus_q = torch.stack(qs, 1)[torch.arange(len(p), device=device), drafted_t]
        drafts = tokens[:, 1:]
        verdict = self.rule.verify(p, q, drafts, drafted_t, accept_u[:, :gamma], bonus_q)
        if self.recorder is not None:
            self.recorder.add(batch.prompt, batch.step, drafted, drafts, p, q)
        following = draw(verdict.next, next_u)  # [rows]
        kept = self._slots[: gamma + 1] < verdict.accepted.unsqueeze(1)
        emitted = torch.where(kept, torch.cat([drafts, following.unsqueeze(1)], 1), following.unsqueeze(1))
        self._ids.scatter_(1, slots[:, 2:], emitted)
        values = self._logged(p[:, :-1], q, drafts, verdict).float().cpu().numpy()
        result = torch.cat([verdict.accepted.unsqueeze(1), drafts, emitted], 1).cpu().numpy()
        self._record(batch, drafted, result, values, clock)

    def _logged(self, p: Tensor, q: Tensor, drafts: Tensor, verdict: Any) -> Tensor:
        """The trace's columns [columns, rows, gamma]; positions that were not drafted hold garbage."""
        x = drafts.unsqueeze(-1)
        columns = {
            "p": p.gather(-1, x).squeeze(-1),
            "q": q.gather(-1, x).squeeze(-1),
            "accept_prob": verdict.accept_prob,
            "survival": self.rule.survival(verdict.accept_prob),
        }
        wanted = [name for name in self.trace.columns if name not in columns]
        if wanted:
            mass = None if verdict.y is None else (verdict.y, verdict.rho)
            columns |= distortion(p, q, self.rule, mass, keys=wanted)
        missing = torch.full_like(columns["p"], torch.nan)
        return torch.stack([columns.get(name, missing) for name in self.trace.columns])

    def _record(self, batch: _Batch, drafted: NDArray, result: NDArray, values: NDArray, clock: Clock) -> None:
        """Emit the block's tokens, stop rows, log the step. `result` [rows, 2 gamma + 2]: accepted, drafts, emitted."""
        gamma = self.gamma
        accepted, drafts, emitted = result[:, 0], result[:, 1 : gamma + 1], result[:, gamma + 1 :]
        count = accepted + 1
        end = _is_in(result[:, 1:], self.pair.eos_ids)
        drafted_end, emitted_end = end[:, :gamma], end[:, gamma:]
        place = np.arange(gamma + 1)
        ends = emitted_end & (place < count[:, None])
        ended = ends.any(1)
        count = np.where(ended, ends.argmax(1) + 1, count)
        position = batch.length - batch.begin
        batch.length += count
        stop = np.where(batch.length - batch.begin >= self.max_new_tokens, LENGTH, CONTEXT)
        stop = np.where(ended, EOS, np.where(batch.length >= batch.limit, stop, 0))
        active = np.flatnonzero(batch.prompt >= 0)
        scalars = np.stack([batch.prompt, batch.step, position, drafted, np.minimum(accepted, count), stop], 1)[active]
        emitted = np.where(place < count[:, None], emitted, -1)
        # a drafted end of sequence cuts the block, kept or not: nothing behind it could ever be emitted
        dead = drafted_end.cumsum(1) > drafted_end
        dead |= place[:gamma] >= drafted[:, None]
        expected = np.where(dead, 0, values[self.trace.columns.index("survival")]).sum(1)
        self.trace.add(scalars, clock.lap(), expected[active], drafts[active], emitted[active], values[:, active])
        batch.step += 1
        for row in active:
            self.outputs[batch.prompt[row]].extend(emitted[row, : count[row]].tolist())
            if stop[row]:
                self.stops[batch.prompt[row]] = int(stop[row])
                batch.prompt[row] = -1
        empty = batch.prompt < 0
        batch.length[empty], batch.begin[empty], batch.limit[empty] = 1, 1, 2

    def _mask(self, queries: Tensor, visible: int) -> Tensor:
        """Additive mask [rows, 1, queries, visible] from the slots of the queries [rows, queries]."""
        hidden = (self._slots[:visible] > queries.unsqueeze(-1)).unsqueeze(1)
        return self._visible.masked_fill(hidden, -torch.inf)


def _round_up(value: int) -> int:
    return -(-value // _SPAN) * _SPAN


def _is_in(tokens: NDArray[np.int64], ids: Sequence[int]) -> NDArray[np.bool_]:
    """`np.isin` for the one or two ids that end a sequence."""
    found = np.zeros(tokens.shape, bool)
    for token in ids:
        found |= tokens == token
    return found
