"""The shape of drafted trees. Imports nothing: configs are checked against it before any work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeShape:
    """How trees grow: `top_k` children of the root, then `depth` rounds of `top_k` beams with `top_k` children each.

    A tree keeps the best `total_token` nodes, including the root. ValueError if there cannot be that many.
    """

    top_k: int = 10
    depth: int = 5
    total_token: int = 60

    def __post_init__(self) -> None:
        if self.top_k < 1 or self.depth < 0 or not 2 <= self.total_token <= 1 + self.candidates:
            raise ValueError(
                f"no tree of total_token {self.total_token} with top_k {self.top_k} and depth {self.depth}: "
                f"it must be from 2 to {1 + self.candidates}"
            )

    @property
    def candidates(self) -> int:
        """Nodes drafted, the root not counted."""
        return self.top_k + self.depth * self.top_k**2

    @property
    def levels(self) -> int:
        """Levels below the root."""
        return 1 + self.depth
