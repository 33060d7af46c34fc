"""What all rules share: the bound rule, its closed forms, and the verification of a drafted block.

A token rule is a pure function `(p, q, param, **options) -> (y, rho)`; everything here is derived from that pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from specloss.verification.distributions import induced, normalise, speculative, truncate

COUPLINGS = ("native", "maximal")


@dataclass(frozen=True, slots=True)
class Range:
    """The valid values of a number, as a check (`in`) and as text (`str`)."""

    low: float
    high: float = float("inf")
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    def describe(self, name: str) -> str:
        """The interval around `name`: `0 < l <= 1`."""
        low = f"{self.low:g} {'<' if self.open_low else '<='} {name}"
        return low if self.high == float("inf") else f"{low} {'<' if self.open_high else '<='} {self.high:g}"


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword of a rule besides its parameter: a word or a number. `None` as default: the rule computes one."""

    default: Any
    valid: tuple[str, ...] | Range

    def describe(self, name: str) -> str:
        """The valid values of `name`: its interval, or its words."""
        return self.valid.describe(name) if isinstance(self.valid, Range) else f"{name} {' | '.join(self.valid)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    """One entry of the registry: a function and its properties.

    `exact` says that the induced distribution is the rule's own target for every (p, q): p itself, or p_A when
    `truncates`. `baseline_options` are the options that the matched baseline must share. `allowed(p, param,
    options)` gives the rule's set A and `ensemble(p, q, param)` the mixture that a bonus token may be drawn from.
    `grid` holds the values of the paper's tables (`in_paper`), or reasonable values to start with.
    """

    function: Callable[..., tuple[Tensor, Tensor]] | None
    param: str | None = None
    valid: Range | None = None
    grid: tuple[float | None, ...] = (None,)
    in_paper: bool = True
    matched_baseline: str | None = "standard_sd"
    baseline_options: tuple[str, ...] = ()
    exact: bool = False
    truncates: bool = False
    allowed: Callable[[Tensor, Any, Mapping[str, Any]], Tensor] | None = None
    ensemble: Callable[[Tensor, Tensor, Any], Tensor] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    build: type[Rule] | None = None  # a subclass of Rule for rules that are no token rules


@dataclass(frozen=True, slots=True)
class BlockVerdict:
    """What verification decided about a block of `gamma` draft tokens.

    `accepted` int64 [batch]: how many leading draft tokens are kept. `next` [batch, vocab]: the distribution of the
    token that follows them. `accept_prob` [batch, gamma]: the probability that each flip accepts, 0 beyond what was
    drafted. `y`, `rho` [batch, gamma, vocab]: the rule's accepted mass and residual at every position (meaningless
    beyond what was drafted); None for block rules, which have no such pair.
    """

    accepted: Tensor
    next: Tensor
    accept_prob: Tensor
    y: Tensor | None
    rho: Tensor | None


def at_least_float32(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Distributions [..., vocab]; half precision, whose sums may be off by a percent, is widened and renormalised."""
    half = (torch.bfloat16, torch.float16)
    return tuple(normalise(t.float(), t.float()) if t.dtype in half else t for t in tensors)


class Rule:
    """A verification rule with its parameter and options bound. Build it with `get_rule`, which checks them.

    Calling it gives `(y, rho)`; inputs are distributions [..., vocab], computed in float32 at least.
    """

    per_token = True  # whether the rule is a pair (y, rho) at one position; block rules are not

    def __init__(
        self,
        name: str,
        spec: RuleSpec,
        param: float | None,
        options: Mapping[str, Any],
        baseline: Rule | None = None,
    ) -> None:
        """`baseline` is the matched baseline, also bound; None for standard SD."""
        self.name = name
        self.spec = spec
        self.param = param
        self.options = MappingProxyType(dict(options))
        self.baseline = baseline
        # Coupling and bonus are the same for every rule and handled here; the function sees only its own options.
        self._arguments = {k: v for k, v in options.items() if k not in ("coupling", "bonus")}
        self._maximal = options.get("coupling") == "maximal"

    def __repr__(self) -> str:
        bound = [] if self.param is None else [f"{self.spec.param}={self.param:g}"]
        bound += [f"{k}={v}" for k, v in self.options.items() if v is not None]
        return f"{self.name}({', '.join(bound)})"

    @property
    def matched_baseline(self) -> str | None:
        """Name of the rule that this one is compared with: lossless decoding of the distribution it aims at."""
        return self.spec.matched_baseline

    @property
    def baseline_options(self) -> tuple[str, ...]:
        """Names of the options that the matched baseline must share with this rule."""
        return self.spec.baseline_options

    @property
    def compares_truncated(self) -> bool:
        """Whether it is compared with a truncated target p_A: truncation baselines are, and gates through theirs."""
        return self.spec.truncates or (self.baseline is not None and self.baseline.spec.truncates)

    @property
    def lossless(self) -> bool:
        """Whether the emitted text has exactly the target's distribution, for any p and q."""
        return self.spec.exact and not self.spec.truncates

    @property
    def bonus_needs_q(self) -> bool:
        """Whether the bonus token comes from a mixture with the draft, which must then run one position further."""
        return self.options.get("bonus") == "r"

    def __call__(self, p: Tensor, q: Tensor, param: float | None = None) -> tuple[Tensor, Tensor]:
        """Accepted mass and residual `(y, rho)`, each [..., vocab], at `param` (default: the bound one)."""
        p, q = at_least_float32(p, q)
        y, rho = self.spec.function(p, q, self.param if param is None else param, **self._arguments)
        return speculative(induced(y, rho), q) if self._maximal else (y, rho)

    def induced(self, p: Tensor, q: Tensor) -> Tensor:
        """Distribution of the emitted token, `pi = y + (1 - sum(y)) rho` [..., vocab]."""
        return induced(*self(p, q))

    def acceptance(self, p: Tensor, q: Tensor) -> Tensor:
        """Probability `alpha = sum(y)` [...] that a draft token is kept."""
        return self(p, q)[0].sum(-1)

    def allowed(self, p: Tensor) -> Tensor | None:
        """Mask [..., vocab] of the rule's set A, or None for a rule without one."""
        if self.spec.allowed is None:
            return None
        return self.spec.allowed(*at_least_float32(p), self.param, self.options)

    def target(self, p: Tensor, q: Tensor | None = None) -> Tensor:
        """The distribution [..., vocab] to compare with: p_A for truncation baselines and gates, p otherwise."""
        (p,) = at_least_float32(p)
        return truncate(p, self.allowed(p)) if self.compares_truncated else p

    def bonus(self, p: Tensor, q: Tensor | None = None) -> Tensor:
        """Distribution [..., vocab] of the bonus token after a fully kept block; `q` only if `bonus_needs_q`.

        Raises ValueError if `q` is needed but missing.
        """
        if self.bonus_needs_q:
            if q is None:
                raise ValueError(f"{self.name} with bonus=r needs the draft's distribution at the bonus position")
            return self.spec.ensemble(*at_least_float32(p, q), self.param)
        return self.target(p) if self.spec.truncates else at_least_float32(p)[0]

    def verify(
        self,
        p: Tensor,
        q: Tensor,
        tokens: Tensor,
        drafted: Tensor,
        uniforms: Tensor,
        bonus_q: Tensor | None = None,
    ) -> BlockVerdict:
        """Decide how much of each drafted block is kept, left to right until the first rejection.

        `p` [batch, gamma + 1, vocab] (last: the bonus position), `q` [batch, gamma, vocab], `tokens` int64
        [batch, gamma], `drafted` int64 [batch] (how many of them are real; the rest is padding of any content),
        `uniforms` float64 [batch, gamma] in [0, 1), `bonus_q` [batch, vocab] the draft's distribution at position
        `drafted` (only if `bonus_needs_q`). Token i is kept when `uniforms[i] < y(x) / q(x)`.
        Raises ValueError if the shapes do not fit or `bonus_q` is missing.
        """
        check_block(p, q)
        p, q = at_least_float32(p, q)
        y, rho = self(p[:, :-1], q)
        real = torch.arange(q.shape[1], device=q.device) < drafted.unsqueeze(-1)  # [batch, gamma]
        x = tokens.where(real, 0).unsqueeze(-1)  # [batch, gamma, 1]; padding may be no token at all
        y_x, q_x = y.gather(-1, x).squeeze(-1), q.gather(-1, x).squeeze(-1)  # [batch, gamma]
        accept_prob = torch.where(real & (q_x > 0), y_x / q_x, 0.0)
        accepted = (uniforms < accept_prob).cumprod(-1).sum(-1)  # [batch]
        rows = torch.arange(len(q), device=q.device)
        bonus = self.bonus(p[rows, drafted], bonus_q)  # [batch, vocab]
        if q.shape[1] == 0:
            return BlockVerdict(accepted, bonus, accept_prob, y, rho)
        whole = (accepted == drafted).unsqueeze(-1)  # [batch, 1]
        residual = rho[rows, accepted.clamp_max(q.shape[1] - 1)]
        return BlockVerdict(accepted, torch.where(whole, bonus, residual), accept_prob, y, rho)

    def survival(self, accept_prob: Tensor) -> Tensor:
        """Probability [batch, gamma] that the first i + 1 drafted tokens are all kept, from `accept_prob`."""
        return accept_prob.cumprod(-1)

    def expected_accepted(self, accept_prob: Tensor) -> Tensor:
        """Mean number [batch] of kept tokens given the drafted ones, from `BlockVerdict.accept_prob` [batch, gamma].

        It averages over the coin flips instead of tossing them, so block efficiency has less variance.
        """
        return self.survival(accept_prob).sum(-1)


def check_block(p: Tensor, q: Tensor) -> None:
    """ValueError unless `p` is [batch, gamma + 1, vocab] and `q` [batch, gamma, vocab]."""
    if p.ndim != 3 or q.ndim != 3 or p.shape != (q.shape[0], q.shape[1] + 1, q.shape[2]):
        shapes = f"got {list(p.shape)} and {list(q.shape)}"
        raise ValueError(f"verify needs p [batch, gamma + 1, vocab] and q [batch, gamma, vocab], {shapes}")
