"""Counter-based random numbers: each draw is a function of its purpose, never of the order of calls.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) keyed by the seed and the sample,
counted by the problem, the position where the block starts, and the offset and purpose within the block. So a result
does not depend on batch size, actor, retry, or which cells run beside it. The block's start belongs in the counter:
block rules look ahead, and a discarded draft's draw must not come back.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = np.arange(10, dtype=np.uint64)[:, None, None] * np.array([[0x9E3779B9], [0xBB67AE85]], dtype=np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_BITS = np.uint64(32)
_NEXT = 1 << 16  # purpose bit of the counter's last word; offsets stay below it


def philox(counter: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Ten rounds of Philox4x32: `counter` [4, n] and `key` [2, n] of 32-bit words give [4, n] random words."""
    even, odd = counter[0::2], counter[1::2]  # words (0, 2) and (1, 3), each [2, n]
    for round_key in (key + _WEYL) & _LOW:  # [2, n] each
        product = even * _MULTIPLIERS
        even = (product >> _BITS)[::-1] ^ odd ^ round_key
        odd = (product & _LOW)[::-1]
    return np.stack([even[0], odd[0], even[1], odd[1]])


def problem_key(problem: str) -> tuple[int, int]:
    """Two 32-bit words that stand for a problem's id."""
    digest = hashlib.blake2b(problem.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def block_uniforms(
    seed: int, problems: NDArray[np.uint64], samples: NDArray[np.uint64], starts: NDArray[np.uint64], gamma: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """All draws of one block for each row: float64 in [0, 1) with 53 random bits.

    `problems` [rows, 2] from `problem_key`; `samples` and `starts` [rows] below 2^32. Returns `draft` [rows, gamma + 1]
    (which token is drafted), `accept` [rows, gamma + 1] (whether it is kept) and `next` [rows] (the token after the
    last kept one).
    """
    rows, width = len(starts), gamma + 2
    counter = np.empty((4, rows, width), dtype=np.uint64)
    counter[:2] = problems.T[:, :, None]
    counter[2] = starts[:, None]
    counter[3] = np.arange(width)
    counter[3, :, -1] = _NEXT
    key = np.empty((2, rows, width), dtype=np.uint64)
    key[0] = seed & 0xFFFFFFFF
    key[1] = samples[:, None] ^ np.uint64((seed >> 32) << 16 & 0xFFFFFFFF)
    words = philox(counter.reshape(4, -1), key.reshape(2, -1)).reshape(4, rows, width)
    first, second = _to_unit(words[0], words[1]), _to_unit(words[2], words[3])
    return first[:, :-1], second[:, :-1], first[:, -1]


def _to_unit(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.float64]:
    return ((high >> np.uint64(5)) * 67108864.0 + (low >> np.uint64(6))) / 9007199254740992.0
