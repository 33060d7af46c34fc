"""Every rule on one trace, in one pass: what each would accept and do to the distribution, without decoding again.

At a traced position the draft token x ~ q is kept by a rule with probability `a = y(x) / q(x)`. Within a block

- `be_expected` = mean over full blocks of 1 + sum over k of prod over i <= k of a_i, up to the first drafted end of
  sequence: the column of that name in `summary.parquet`, given where the traced policy started its blocks. For the
  traced rule itself it is that column.
- `alpha`, `tv_pi_p`, ... are means over positions, each weighted with the probability that the rule gets that far in
  the block (prod of a_j before it): the expectation of the summary's means over decided positions.
- `be_expected_maximal`, `alpha_maximal`: the same of the rule's maximal coupling, `y = min(q, pi)`, whose output
  distribution at each drafted position is the same pi.

Averaging the coin flips leaves the draft tokens and prefixes as the only noise: `be_expected_se` is the standard error
of the mean over problems as clusters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from specloss.experiment.plan import Plan
from specloss.screen.recording import Positions, RecordingFile
from specloss.verification import RULES, Rule, distortion, get_rule
from specloss.verification.distributions import induced

QUANTITIES = ("alpha", "tv_pi_p", "overshoot", "tv_pi_target", "coupling_loss")
BLOCKS = 512  # of a batch


@dataclass(frozen=True, slots=True)
class ScreenedSetting:
    """A rule at one value of its parameter, under its label in tables."""

    method: str
    rule: str
    param: float | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Rule:
        """The bound rule."""
        return get_rule(self.rule, self.param, **self.options)


def registry_grid() -> list[ScreenedSetting]:
    """Every registered rule over its grid."""
    return [ScreenedSetting(name, name, param) for name, spec in RULES.items() for param in spec.grid]


def screened_settings(plan: Plan, grid: str) -> list[ScreenedSetting]:
    """What is screened: the experiment's settings, and with `grid` "all" every registered rule's grid before them."""
    own = [ScreenedSetting(c.method, c.settings["rule"], c.param, c.settings["options"]) for c in plan.cells]
    chosen = (registry_grid() if grid == "all" else []) + own
    unique = {(s.method, s.param): s for s in chosen}  # a label of the experiment may be a rule with options
    return list(unique.values())


def screen(trace: RecordingFile, settings: Sequence[ScreenedSetting], blocks: int = BLOCKS) -> pd.DataFrame:
    """A row per setting, `blocks` target calls at a time.

    Block rules have no quantities at a position, and are left out where the trace pools tokens.
    """
    p_rest, q_rest = trace.rest()
    exact = not (p_rest.any() or q_rest.any())
    rules = {number: setting.build() for number, setting in enumerate(settings)}
    rules = {number: rule for number, rule in rules.items() if rule.per_token or exact}
    sums = {number: _Sums(trace.problems()) for number in rules}
    with torch.inference_mode():
        for positions in trace.batches(blocks):
            for number, rule in rules.items():
                _add(sums[number], rule, positions, trace.gamma)
    about = {name: trace.about[name] for name in ("pair", "benchmark")}
    rows = []
    for number in rules:
        setting = settings[number]
        options = json.dumps(setting.options, sort_keys=True) if setting.options else ""
        keys = {"method": setting.method, "rule": setting.rule, "param": setting.param, "options": options}
        rows.append(about | keys | sums[number].ratios())
    table = pd.DataFrame(rows).assign(p_rest=_mean(p_rest), q_rest=_mean(q_rest))
    return table.astype({"param": float})


class _Sums:
    """Sums over the trace for one setting, those of BE by problem."""

    def __init__(self, problems: NDArray[np.int64]) -> None:
        self.problems = problems
        self.full = np.zeros(len(problems))
        self.be = {coupling: np.zeros(len(problems)) for coupling in ("", "_maximal")}
        self.weight = {coupling: 0.0 for coupling in self.be}
        self.quantities: dict[str, float] = {}

    def add_blocks(self, coupling: str, kept: NDArray[np.float64], positions: Positions, gamma: int) -> None:
        """`kept` [blocks]: the expected number of kept tokens."""
        at = np.searchsorted(self.problems, positions.index)
        full = positions.drafted == gamma
        self.be[coupling] += np.bincount(at, (1 + kept) * full, len(self.problems))
        if not coupling:
            self.full += np.bincount(at, full, len(self.problems))

    def add_mean(self, name: str, weighted: NDArray[np.float64]) -> None:
        self.quantities[name] = self.quantities.get(name, 0.0) + float(weighted.sum())

    def ratios(self) -> dict[str, float]:
        full, groups = self.full.sum(), len(self.problems)
        be = {coupling: _ratio(values.sum(), full) for coupling, values in self.be.items()}
        spread = np.square(self.be[""] - be[""] * self.full).sum()
        error = _ratio(np.sqrt(spread * _ratio(groups, groups - 1)), full)
        columns = {"be_expected": be[""], "be_expected_se": error}
        columns |= {name: _ratio(self.quantities.get(name, np.nan), self.weight[""]) for name in QUANTITIES}
        whole = bool(self.weight["_maximal"])
        columns["be_expected_maximal"] = be["_maximal"] if whole else np.nan
        columns["alpha_maximal"] = _ratio(self.quantities.get("alpha_maximal", np.nan), self.weight["_maximal"])
        return columns | {"problems": groups, "full_blocks": int(full)}


def _add(sums: _Sums, rule: Rule, at: Positions, gamma: int) -> None:
    if not rule.per_token:
        sums.add_blocks("", _kept_by_block_rule(rule, at, gamma), at, gamma)
        return
    y, rho = rule(at.p, at.q)
    found = distortion(at.p, at.q, rule, (y, rho), keys=QUANTITIES)
    best = torch.minimum(at.q, induced(y, rho))
    found["alpha_maximal"] = found["alpha"] + found["coupling_loss"]
    for coupling, mass in (("", y), ("_maximal", best)):
        accept = _at(mass, at.slot) / _at(at.q, at.slot)  # [positions]; a drafted token has mass in q
        reach = _reach(accept.double().numpy(), at, gamma)  # [blocks, gamma + 1]
        sums.add_blocks(coupling, reach[:, 1:].sum(1), at, gamma)
        decides = reach[at.block, at.offset] * (at.offset < at.last[at.block])
        sums.weight[coupling] += float(decides.sum())
        for name in ("alpha_maximal",) if coupling else QUANTITIES:
            sums.add_mean(name, decides * found[name].double().numpy())


def _reach(accept: NDArray[np.float64], at: Positions, gamma: int) -> NDArray[np.float64]:
    """P(at least i tokens are kept) [blocks, gamma + 1] for i = 0 ... gamma; 0 past a drafted end of sequence."""
    each = np.zeros((len(at.drafted), gamma + 1))
    each[:, 0] = 1
    each[at.block, at.offset + 1] = np.where(at.offset < at.last[at.block], accept, 0)
    return each.cumprod(1)


def _kept_by_block_rule(rule: Rule, at: Positions, gamma: int) -> NDArray[np.float64]:
    """Expected number of kept tokens [blocks] up to a drafted end of sequence, `P(tau >= i)` summed."""
    blocks, width = len(at.drafted), at.p.shape[-1]
    p, q = torch.zeros(blocks, gamma + 1, width), torch.zeros(blocks, gamma, width)  # bonus and padding: no matter
    tokens, uniforms = torch.zeros(blocks, gamma, dtype=torch.int64), torch.zeros(blocks, gamma, dtype=torch.float64)
    block, offset = torch.from_numpy(at.block), torch.from_numpy(at.offset)
    p[block, offset], q[block, offset], tokens[block, offset] = at.p, at.q, at.slot
    # The slots of two positions are different tokens, which is all the same to a rule that sums within positions.
    h = rule.verify(p, q, tokens, torch.from_numpy(at.drafted), uniforms).accept_prob
    survival = rule.survival(h.double()).numpy()  # [blocks, gamma]: P(tau >= i), i = 1 ... gamma
    return np.where(np.arange(gamma) < at.last[:, None], survival, 0).sum(1)


def _at(mass: Tensor, slot: Tensor) -> Tensor:
    return mass.gather(-1, slot.unsqueeze(-1)).squeeze(-1)


def _ratio(above: float, below: float) -> float:
    return float(above) / float(below) if below else float("nan")


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0
