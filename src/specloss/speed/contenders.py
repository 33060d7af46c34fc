"""What is measured, and the contenders: they take turns, and ratios are taken within a round."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import specloss

if TYPE_CHECKING:
    from specloss import LoadedPair

TEMPERATURE = 0.7
MAX_NEW_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Measured:
    """One contender in one round. Seconds: wall, CPU, and those that the trace knows: in both forwards, in the loop."""

    tokens: int
    target_calls: int
    seconds: float
    cpu_seconds: float
    forwards: float = float("nan")
    loop: float = float("nan")

    @property
    def speed(self) -> float:
        """Tokens/s."""
        return self.tokens / self.seconds

    @property
    def cpu_speed(self) -> float:
        """Tokens per second of this process's CPU time."""
        return self.tokens / self.cpu_seconds

    @property
    def tokens_per_call(self) -> float:
        """Output tokens for each forward of the target, prefill included."""
        return self.tokens / self.target_calls

    @property
    def outside(self) -> float:
        """Share of the wall time that is outside of the two models' forwards."""
        return 1 - self.forwards / self.seconds


Contender = Callable[[Sequence[str], int], Measured]


def take_turns(contenders: Mapping[str, Contender], prompts: Sequence[str], rounds: int) -> dict[str, list[Measured]]:
    """Every contender's measurements, a round after another; a shorter round before warms up and is not counted."""
    for number, (name, contender) in enumerate(contenders.items(), start=1):
        progress(f"warming up, {number} of {len(contenders)}: {name}")
        contender(prompts[:: max(1, len(prompts) // 8)], 0)
    measured: dict[str, list[Measured]] = {name: [] for name in contenders}
    for round_ in range(rounds):
        for name, contender in contenders.items():
            progress(f"round {round_ + 1} of {rounds}: {name}")
            measured[name].append(contender(prompts, round_))
    return measured


def by_specloss(pair: LoadedPair, batch_size: int, trace: str, **drafting: Any) -> Contender:
    """`specloss.decode`; `drafting` is its gamma or tree."""

    def run(prompts: Sequence[str], seed: int) -> Measured:
        begin = time.perf_counter(), time.process_time()
        decoded = specloss.decode(
            pair,
            prompts,
            temperature=TEMPERATURE,
            max_new_tokens=MAX_NEW_TOKENS,
            seed=seed,
            batch_size=batch_size,
            trace=trace,
            **drafting,
        )
        seconds = time.perf_counter() - begin[0], time.process_time() - begin[1]
        draft, verify, overhead = (
            sum(decoded.steps[column].to_pylist()) / 1e3 for column in ("draft_ms", "verify_ms", "overhead_ms")
        )
        tokens = sum(map(len, decoded.token_ids))
        # a call for each prompt and each of its blocks; in a batch they share forwards
        target_calls = decoded.steps.num_rows + len(prompts)
        return Measured(tokens, target_calls, *seconds, draft + verify, draft + verify + overhead)

    return run


def by_transformers(pair: LoadedPair, gamma: int | None) -> Contender:
    """Assisted generation as its documentation shows it, with a constant gamma; it takes one prompt at a time.

    Plain sampling from the target alone if gamma is None.
    """

    def run(prompts: Sequence[str], seed: int) -> Measured:
        import torch

        assistant = None if gamma is None else pair.draft
        if assistant is not None:
            config = assistant.generation_config
            config.num_assistant_tokens = gamma
            config.num_assistant_tokens_schedule = "constant"
            config.assistant_confidence_threshold = 0.0
        torch.manual_seed(seed)
        tokens = 0
        with _counting(pair.target) as calls, torch.inference_mode():
            begin = time.perf_counter(), time.process_time()
            for prompt in prompts:
                inputs = pair.tokenizer(prompt, return_tensors="pt").to(pair.device)
                output = pair.target.generate(
                    input_ids=inputs.input_ids,
                    attention_mask=inputs.attention_mask,
                    assistant_model=assistant,
                    do_sample=True,
                    temperature=TEMPERATURE,
                    top_k=0,
                    top_p=1.0,
                    max_new_tokens=MAX_NEW_TOKENS,
                    eos_token_id=list(pair.eos_ids),
                    pad_token_id=pair.eos_ids[0],
                )
                tokens += output.shape[1] - inputs.input_ids.shape[1]
                pair.tokenizer.decode(output[0], skip_special_tokens=True)
            seconds = time.perf_counter() - begin[0], time.process_time() - begin[1]
        return Measured(tokens, calls[0], *seconds)

    return run


@contextmanager
def _counting(model: Any) -> Iterator[list[int]]:
    """A list whose one number is how often the model's forward has been called inside."""
    calls = [0]

    def count(*_: Any) -> None:
        calls[0] += 1

    hook = model.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        hook.remove()


def table(measured: Mapping[str, Sequence[Measured]]) -> list[str]:
    """A line for each contender: medians over the rounds."""
    lines = [f"{'':34}{'tokens/s':>10}{'tokens/CPU s':>14}{'tokens':>8}{'tokens/target call':>20}"]
    for name, rounds in measured.items():
        speed, cpu_speed, tokens, calls = (
            statistics.median(getattr(one, key) for one in rounds)
            for key in ("speed", "cpu_speed", "tokens", "tokens_per_call")
        )
        lines.append(f"{name:34}{speed:10.0f}{cpu_speed:14.0f}{tokens:8.0f}{calls:20.2f}")
    return lines


def ratio(over: Sequence[Measured], under: Sequence[Measured], of: Callable[[Measured], float]) -> str:
    """`of` of one contender by that of another, within each round."""
    return spread([of(one) / of(other) for one, other in zip(over, under, strict=True)], "{:.2f}x")


def line(label: str, value: str, more: str = "") -> str:
    """A labelled number."""
    return f"{label:44}{value:26}{more}".rstrip()


def percent(shares: Iterable[float]) -> str:
    """Shares in percent, as `spread`."""
    return spread([100 * share for share in shares], "{:.1f}%")


def spread(values: Sequence[float], form: str) -> str:
    """Median (smallest to largest)."""
    low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def progress(text: str) -> None:
    """Say on standard error what is being done."""
    print(text, file=sys.stderr, flush=True)
