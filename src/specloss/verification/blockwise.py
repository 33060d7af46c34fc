"""Block verification (Sun et al. 2024): lossless, decides on the whole block at once and keeps more tokens."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from specloss.verification.distributions import normalise
from specloss.verification.rule import BlockVerdict, Rule, at_least_float32, check_block


class BlockwiseRule(Rule):
    """Keeps the longest prefix that any of its flips accepts: `tau = last i with u_i < h_i` (Sun et al. 2024, Alg. 2).

    `a_0 = 1`, `a_i = min(1, a_{i-1} p_i(x_i) / q_i(x_i))`; `S_i = sum([a_i p_{i+1} - q_{i+1}]+)`;
    `h_i = S_i / (S_i + 1 - a_i)` inside the block and `a_i` at its end. The next token comes from
    `norm([a_tau p_{tau+1} - q_{tau+1}]+)`, from `p` after a whole block.
    """

    per_token = False

    def __call__(self, p: Tensor, q: Tensor, param: float | None = None) -> NoReturn:
        """A block rule has no accepted mass and residual at one position: raises TypeError. Use `verify`."""
        raise TypeError(f"{self.name} decides on whole blocks and has no (y, rho) at one position; use verify()")

    def induced(self, p: Tensor, q: Tensor) -> NoReturn:
        """Raises TypeError, as calling does; the emitted text is distributed as the target's own."""
        self(p, q)

    def acceptance(self, p: Tensor, q: Tensor) -> NoReturn:
        """Raises TypeError, as calling does; acceptance depends on the whole block."""
        self(p, q)

    def verify(
        self,
        p: Tensor,
        q: Tensor,
        tokens: Tensor,
        drafted: Tensor,
        uniforms: Tensor,
        bonus_q: Tensor | None = None,
    ) -> BlockVerdict:
        """As `Rule.verify`; `accept_prob` holds `h_1 ... h_gamma`, and `y` and `rho` are None."""
        check_block(p, q)
        p, q = at_least_float32(p, q)
        batch, gamma, _ = q.shape
        position = torch.arange(gamma, device=q.device)
        real = position < drafted.unsqueeze(-1)  # [batch, gamma]
        x = tokens.where(real, 0).unsqueeze(-1)
        p_x, q_x = p[:, :-1].gather(-1, x).squeeze(-1), q.gather(-1, x).squeeze(-1)  # [batch, gamma]
        ratio = torch.where(q_x > 0, p_x / q_x, 0.0).where(real, 1.0).double()
        # a_i is a random walk in logarithms, reflected at 0: the walk minus its running maximum.
        walk = ratio.log().cumsum(-1)
        a = torch.exp(walk - walk.cummax(-1).values.clamp_min(0)) if gamma else ratio  # [batch, gamma]: a_1 ... a_gamma
        before = torch.cat([a.new_ones(batch, 1), a], -1)  # [batch, gamma + 1]: a_0 ... a_gamma
        excess = torch.addcmul(-q, before[:, :-1, None].to(q.dtype), p[:, :-1]).clamp_min(0)  # [batch, gamma, vocab]
        s = excess[:, 1:].sum(-1).double()  # [batch, gamma - 1]: S_1 ... S_{gamma - 1}
        inner = a[:, :-1]
        # S + 1 - a is zero only where a = 1 and p = q: keeping is certain then, at this position or at a later one.
        h = torch.where(s + 1 - inner > 0, s / (s + 1 - inner), 1.0)
        h = torch.cat([h, a[:, -1:]], -1)
        h = torch.where(position + 1 == drafted.unsqueeze(-1), a, h).where(real, 0.0)  # [batch, gamma]
        accepted = torch.where(uniforms < h, position + 1, 0).amax(-1) if gamma else drafted
        rows = torch.arange(batch, device=q.device)
        bonus = p[rows, drafted]
        if gamma == 0:
            return BlockVerdict(accepted, bonus, h.to(q.dtype), None, None)
        at = accepted.clamp_max(gamma - 1)
        residual = normalise(excess[rows, at], p[rows, at])
        whole = (accepted == drafted).unsqueeze(-1)
        return BlockVerdict(accepted, torch.where(whole, bonus, residual), h, None, None)

    def survival(self, accept_prob: Tensor) -> Tensor:
        """As `Rule.survival`: `P(tau >= i) = 1 - prod_{j >= i} (1 - h_j)`, [batch, gamma]."""
        return 1 - (1 - accept_prob).flip(-1).cumprod(-1).flip(-1)
