"""Chains against transformers' own assisted generation, with batching, and what the trace and the loop cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specloss.speed.contenders import (
    Contender,
    Measured,
    by_specloss,
    by_transformers,
    line,
    percent,
    ratio,
    table,
    take_turns,
)

if TYPE_CHECKING:
    from specloss import LoadedPair


def measure_decoding(pair: LoadedPair, prompts: Sequence[str], gamma: int, rounds: int) -> dict[str, list[Measured]]:
    """Every contender's measurements, a round after another."""
    contenders: dict[str, Contender] = {
        "transformers, batch 1": by_transformers(pair, gamma),
        "specloss, batch 1": by_specloss(pair, 1, "full", gamma=gamma),
        "specloss, batch 1, light trace": by_specloss(pair, 1, "light", gamma=gamma),
        "specloss, batch 32": by_specloss(pair, 32, "full", gamma=gamma),
        "specloss, batch 32, light trace": by_specloss(pair, 32, "light", gamma=gamma),
    }
    return take_turns(contenders, prompts, rounds)


def report_decoding(measured: dict[str, list[Measured]]) -> list[str]:
    """Lines to print."""
    lines = table(measured)

    def add(label: str, value: str, more: str = "") -> None:
        lines.append(line(label, value, more))

    def compare(over: str, under: str, of: Callable[[Measured], float]) -> str:
        return ratio(measured[over], measured[under], of)

    one, many, theirs = "specloss, batch 1", "specloss, batch 32", "transformers, batch 1"
    lines += ["", "median over the rounds (smallest to largest)"]
    add("batch 1 against transformers", compare(one, theirs, lambda m: m.speed), "aim: 1.5x or more")
    add("  by CPU time", compare(one, theirs, lambda m: m.cpu_speed))
    add("  in target calls/s", compare(one, theirs, lambda m: m.target_calls / m.seconds))
    add("batch 32 against batch 1", compare(many, one, lambda m: m.speed), "aim: 6x or more")
    add("  by CPU time", compare(many, one, lambda m: m.cpu_speed))
    for name in (one, many):
        label = name.removeprefix("specloss, ")
        light = f"{name}, light trace"
        add(f"outside both forwards, {label}", percent(m.outside for m in measured[name]), "aim: 15 % or less")
        add("  of the loop alone", percent(1 - m.forwards / m.loop for m in measured[name]))
        add("  of the loop alone, light trace", percent(1 - m.forwards / m.loop for m in measured[light]))
        add(f"full against light trace, {label}", compare(name, light, lambda m: m.speed))
    return [*lines, "", *_LEGEND.splitlines()]


_LEGEND = """\
Tokens/s: output tokens by the wall time of the whole call, tokenizing and making texts included. Ratios are of tokens/s
if nothing else is said; CPU time is this process's, and tells more than wall time while the machine does other things.
Outside both forwards: share of that wall time that is not within calls of the target or the draft (prefill counts as
forward): warping, drawing, verification, trace, masks, cache bookkeeping between the calls, and the tables at the end.
Of the loop alone: from steps.parquet, overhead_ms / (draft_ms + verify_ms + overhead_ms).
Tokens/target call: a prefill counts as a call; transformers merges it with a prompt's first block, specloss does not.
In a batch, each row's part in a forward counts as a call of its own."""
