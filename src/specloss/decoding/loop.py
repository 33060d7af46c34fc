"""What the decoding loops for chains and trees share: rows that come and go, and what a block emits.

Rows of a batch are independent: each has its own length in the ragged caches, finished rows leave and waiting prompts
take their place. What a row emits depends only on its prompt and its counter-keyed random numbers, up to the last
bits of the models' forwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specloss.common.oneline import OneLine
from specloss.decoding.trace import STOPS, Clock, Trace
from specloss.decoding.uniforms import problem_key
from specloss.decoding.warp import Warper
from specloss.models.pair import LoadedPair

EOS, LENGTH, CONTEXT = (STOPS.index(name) for name in ("eos", "length", "context"))
_SPAN = 32  # visible cache slots come in multiples of this: few distinct shapes, little masked work


class LogitsError(OneLine, ValueError):
    """A model's logits make no distribution; the message is one line meant for users."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to continue. `problem` and `sample` key its random numbers; `index` is its place in the output."""

    ids: Sequence[int]
    problem: str
    index: int
    sample: int = 0

    @property
    def name(self) -> str:
        """For messages."""
        return repr(self.problem) if len(self.problem) < 60 else f"number {self.index}"


@dataclass(slots=True)
class RowState:
    """What is known of each row, on the host; arrays [rows]. A row without a prompt (-1) computes garbage."""

    prompt: NDArray[np.int64]
    length: NDArray[np.int64]  # tokens so far, the prompt's included; the last one is in no cache yet
    begin: NDArray[np.int64]  # the prompt's length
    step: NDArray[np.int64]
    limit: NDArray[np.int64]  # length at which the row must stop
    key: NDArray[np.uint64]  # [rows, 2]
    sample: NDArray[np.uint64]

    @classmethod
    def empty(cls, rows: int) -> RowState:
        """A batch of rows without a prompt."""
        ones = np.ones(rows, np.int64)
        key, sample = np.zeros((rows, 2), np.uint64), np.zeros(rows, np.uint64)
        return cls(-ones, ones, ones.copy(), 0 * ones, ones + 1, key, sample)

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Drop all other rows."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name)[rows])

    @property
    def room(self) -> NDArray[np.int64]:
        """Tokens [rows] that can be drafted, so that the one after them still fits."""
        return self.limit - self.length - 1


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a block added. `active` [n]: the rows that had a prompt; the others are of all rows."""

    active: NDArray[np.int64]
    scalars: NDArray[np.int64]  # [n, 6], as `Trace.add` takes them
    count: NDArray[np.int64]  # [rows], emitted tokens


@dataclass(kw_only=True)
class Decoder(ABC):
    """Speculative decoding of a pair, in blocks; settings as in `specloss.decode`."""

    pair: LoadedPair
    warper: Warper
    max_new_tokens: int
    seed: int
    batch_size: int
    trace: Trace
    outputs: list[list[int]] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)

    @property
    @abstractmethod
    def reach(self) -> int:
        """Cache slots that a block writes from a row's last known token on."""

    @abstractmethod
    def _begin(self, rows: int, longest: int, clock: Clock) -> None:
        """Make room for `rows` texts of up to `longest` tokens."""

    @abstractmethod
    def _fill(self, at: Tensor, tokens: Tensor, lengths: Tensor, clock: Clock) -> None:
        """Fill the rows `at` [n] with new texts: `tokens` [n, width], of which `lengths` [n], on the host, are real."""

    @abstractmethod
    def _keep(self, at: Tensor) -> None:
        """Drop all rows except `at` [n] from what `_begin` made."""

    @abstractmethod
    def _block(self, batch: RowState, clock: Clock) -> None:
        """One block of every row: draft, one target forward, verification, bookkeeping."""

    @torch.inference_mode()
    def run(self, prompts: Sequence[Prompt]) -> None:
        """Decode all prompts into `outputs` and `stops` (codes of `trace.STOPS`), a place for each prompt in order.

        ValueError names a prompt that is empty, does not fit the models' context, or has ids that they do not share;
        LogitsError one whose logits make no distribution.
        """
        for prompt in prompts:
            self._check(prompt)
        context = self.pair.context
        self.outputs, self.stops = [[] for _ in prompts], [0 for _ in prompts]
        if not prompts:
            return
        rows = min(self.batch_size, len(prompts))
        longest = max(min(len(prompt.ids) + self.max_new_tokens, context) for prompt in prompts)
        self._device = device = self.pair.device
        self._slots = torch.arange(round_up(longest + self.reach), device=device)
        self._prompts = prompts
        # asking a model for its type walks through it; a mask's value where something is seen, by type
        self._types = self.pair.target.dtype, self.pair.draft.dtype
        self._seen = {dtype: torch.zeros(1, dtype=dtype, device=device) for dtype in self._types}
        batch, waiting, clock = RowState.empty(rows), deque(range(len(prompts))), Clock(device)
        self._begin(rows, longest, clock)
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
        if not 0 < len(prompt.ids) < self.pair.context:
            raise ValueError(
                f"prompt {prompt.name} has {len(prompt.ids)} tokens; it must have between 1 and "
                f"{self.pair.context - 1}, one less than the models' context"
            )
        for token in (min(prompt.ids), max(prompt.ids)):
            if not 0 <= token < self.pair.vocab:
                raise ValueError(
                    f"prompt {prompt.name} has token id {token}; the models share ids 0 to {self.pair.vocab - 1}"
                )

    def _admit(
        self, batch: RowState, free: NDArray, waiting: deque[int], prompts: Sequence[Prompt], clock: Clock
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
        at, tokens = (torch.from_numpy(values).to(self._device) for values in (rows, ids))
        self._fill(at, tokens, torch.from_numpy(lengths), clock)

    def _compact(self, batch: RowState) -> None:
        """Let finished rows leave the batch."""
        rows = np.flatnonzero(batch.prompt >= 0)
        batch.keep(rows)
        self._keep(torch.from_numpy(rows).to(self._device))

    def _emit(self, batch: RowState, emitted: NDArray, drafted: NDArray, accepted: NDArray) -> Emitted:
        """Append each row's first `accepted` + 1 of the tokens `emitted` [rows, n], up to an end of sequence, and end
        the rows that are done."""
        count = accepted + 1
        ends = is_in(emitted, self.pair.eos_ids) & (np.arange(emitted.shape[1]) < count[:, None])
        ended = ends.any(1)
        count = np.where(ended, ends.argmax(1) + 1, count)
        position = batch.length - batch.begin
        batch.length += count
        stop = np.where(batch.length - batch.begin >= self.max_new_tokens, LENGTH, CONTEXT)
        stop = np.where(ended, EOS, np.where(batch.length >= batch.limit, stop, 0))
        active = np.flatnonzero(batch.prompt >= 0)
        scalars = np.stack([batch.prompt, batch.step, position, drafted, np.minimum(accepted, count), stop], 1)[active]
        batch.step += 1
        for row in active:
            self.outputs[batch.prompt[row]].extend(emitted[row, : count[row]].tolist())
            if stop[row]:
                self.stops[batch.prompt[row]] = int(stop[row])
                batch.prompt[row] = -1
        empty = batch.prompt < 0
        batch.length[empty], batch.begin[empty], batch.limit[empty] = 1, 1, 2
        return Emitted(active, scalars, count)

    def _refuse(self, batch: RowState, role: str, broken: NDArray[np.bool_]) -> None:
        """LogitsError if a row with a prompt has one of `broken` [rows, n]: logits of the pair's `role`."""
        rows = np.flatnonzero(broken.any(1) & (batch.prompt >= 0))
        if not len(rows):
            return
        row = rows[0]
        dtype = str(getattr(self.pair, role).dtype).removeprefix("torch.")
        called = " ".join(filter(None, (role, self.pair.names.get(role))))
        cure = "; float16 ends at 65,504: take bfloat16 or float32" if dtype == "float16" else ""
        raise LogitsError(
            f"{called} in {dtype}: its logits are not finite (NaN, +inf, or nothing but -inf) for prompt "
            f"{self._prompts[batch.prompt[row]].name} at step {batch.step[row]}{cure}"
        )

    def _later(self, queries: Tensor, visible: int) -> Tensor:
        """Which slots [rows, 1, queries, visible] are behind those of the queries [rows, queries]."""
        return (self._slots[:visible] > queries.unsqueeze(-1)).unsqueeze(1)

    def _additive(self, hidden: Tensor, dtype: torch.dtype) -> Tensor:
        """A model's mask from what is hidden, of the model's own type: attention takes no other."""
        return self._seen[dtype].masked_fill(hidden, -torch.inf)


def round_up(value: int) -> int:
    """To a multiple of the visible span."""
    return -(-value // _SPAN) * _SPAN


def is_in(tokens: NDArray[np.int64], ids: Sequence[int]) -> NDArray[np.bool_]:
    """`np.isin` for the one or two ids that end a sequence."""
    found = np.zeros(tokens.shape, bool)
    for token in ids:
        found |= tokens == token
    return found
