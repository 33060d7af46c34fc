"""Trees against chains and against the target alone, on the same target and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

PLAIN = "plain, batch 1"
BATCHES = (1, 32)


def measure_trees(
    chains: LoadedPair, trees: LoadedPair, prompts: Sequence[str], gamma: int, tree: Mapping[str, int], rounds: int
) -> dict[str, list[Measured]]:
    """Every contender's measurements, a round after another. The two pairs have the same target."""
    contenders: dict[str, Contender] = {PLAIN: by_transformers(chains, None)}
    for size in BATCHES:
        contenders[f"chain, batch {size}"] = by_specloss(chains, size, "full", gamma=gamma)
        contenders[f"tree, batch {size}"] = by_specloss(trees, size, "full", tree=tree)
    return take_turns(contenders, prompts, rounds)


def report_trees(measured: Mapping[str, Sequence[Measured]]) -> list[str]:
    """Lines to print."""
    lines = [*table(measured), "", "median over the rounds (smallest to largest)"]
    for size in BATCHES:
        tree, chain = f"tree, batch {size}", f"chain, batch {size}"
        lines.append(line(f"tree against chain, batch {size}", ratio(measured[tree], measured[chain], _speed)))
    for name in ("chain, batch 1", "tree, batch 1"):
        lines.append(line(f"{name} against plain", ratio(measured[name], measured[PLAIN], _speed)))
    for name, rounds in measured.items():
        if name != PLAIN:
            lines.append(line(f"outside all forwards, {name}", percent(one.outside for one in rounds)))
            lines.append(line("  of the loop alone", percent(1 - one.forwards / one.loop for one in rounds)))
    return [*lines, "", *_LEGEND.splitlines()]


def _speed(measured: Measured) -> float:
    return measured.speed


_LEGEND = """\
Plain: transformers' generate with the target alone, sampling at the same temperature. Ratios are of tokens/s. Outside
all forwards: share of the wall time that is not within calls of the target, the draft or the head; choosing a tree's
nodes from the head's output counts as outside."""
