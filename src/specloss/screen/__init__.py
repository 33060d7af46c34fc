"""Every rule on one decoded trace: what each would do at the positions that one decode visited.

    decode once (standard_sd) --record--> trace.parquet --screen--> screen.csv, screen.md --compare--> comparison.*

Draft tokens come from q whatever the rule is, so the acceptance probability `y(x) / q(x)` of a traced draft token
belongs to every rule, and along a block the expected number of kept tokens does too. Where blocks *start* does not: the
prefixes come from the traced policy. A screen estimates how rules rank before any is run; it replaces no run.

A trace holds the most probable tokens of p and q, the drafted token, and the exact sum of all others (the rest), which
the rules see as ONE more token. What that changes:

- Nothing, where the rest is zero: with `top_k: full`, a vocabulary that fits, or warpers that keep no more tokens.
- The drafted token is never pooled. Rules that look at p and q one token at a time (standard_sd, lenience,
  overshoot_ceiling, cos) have their exact acceptance probability there, so their expected BE is exact.
- The acceptance rate of those rules at a position is never lowered, and rises by at most `q_rest`. Their TV to p moves
  by at most `q_rest` too: it falls for cos, as pooling can only bring two distributions closer, and may rise for
  lenience, whose ceiling p / l lets more of the pooled draft through than of its tokens one by one.
- Rules with a min-p set (spec_cascade, the capping rules) accept the drafted token as they should wherever
  `p_rest <= max p`, but their acceptance rate is off where the pooled token enters A and none of its tokens would.
- Rules with sums over the vocabulary (the truncation baselines' norm(p 1_A), the entropy in eta, the D of
  adaptive_interpolation, cos_contrastive, the deferral rules) are approximate: the pooled token may enter A here
  too, and the pooled entropy is too low, by at most `p_rest` times the logarithm of how many were pooled.
- The block rule's S_i sums over the vocabulary as well and is fed forward: it is left out unless the rest is zero.

This module imports nothing heavy.
"""

from __future__ import annotations

from specloss.analysis.outputs import DRAWINGS
from specloss.common.oneline import OneLine

TRACE = "trace.parquet"
TABLES = ("screen.csv", "screen.md")
SCATTER = "screen_vs_runs"
COMPARISON = ("comparison.csv", "comparison.md", *(f"{SCATTER}.{suffix}" for suffix in DRAWINGS))


class ScreenError(OneLine, ValueError):
    """Bad input; the message is one line meant for users."""
