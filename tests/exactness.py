"""How far apart two computations of the same number may be: exact in float64, derived in float32.

Every tolerance of a test is one of four: `EXACT`, for what is computed in float64; `rounding`, for what two orders of
the same float32 sums give; that of a number which was printed (tables have six digits) or stored in fewer digits; or
statistical, with its rate of error. What decides by the largest of several numbers (greedy tokens, the nodes of a
tree) is tested in float64, where only an exact tie could be decided otherwise on another processor.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

EXACT = {"rtol": 0, "atol": 1e-12}
STORED = {"rtol": 2.0**-23, "atol": 1e-12}  # of float64 that differs by less than EXACT, stored as float32 in a log
UNIT = 2.0**-24  # a float32 operation is off by at most this share of its result


def assert_close(got: Tensor, expected: Tensor, terms: int) -> None:
    """AssertionError if two results that differ in the order of their sums, no more, are too far apart for their dtype.

    `terms` as `rounding` takes it.
    """
    tolerance = EXACT if expected.dtype == torch.float64 else {"rtol": 0, "atol": rounding(expected, terms)}
    torch.testing.assert_close(got, expected, **tolerance)


def rounding(values: Tensor, terms: int) -> float:
    """How far apart float32 results of the size of `values` may be that differ in the order of their sums.

    `terms` is the number of terms in all sums on the longest way from the inputs to a result: see `sums_of`. Each adds
    a rounding of at most UNIT of the size that the number has there. Sizes are those of the result, as norms keep them
    equal from layer to layer; the size is the largest |value|, as an entry near zero is a sum of terms that are not.
    Roundings are independent, uniform up to that limit: their sum over the way has a standard deviation of at most
    UNIT sqrt(terms / 3) of the size, and the difference of two computations sqrt(2) of that. The largest of 10,000
    normal deviates is beyond 6 of these once in 50,000 comparisons. An error of the mathematics, such as a wrong
    position or a stale key, is a share of the size itself: a thousand times more.
    """
    return 6 * UNIT * math.sqrt(2 * terms / 3) * float(values.abs().max())


def sums_of(config, length: int, layers: int | None = None) -> int:
    """Terms of the sums that a token's logits went through, in a Llama-like model over `length` tokens.

    In each layer: two norms and the four products of width or more (into queries and keys, out of attention, up, down),
    a score over a head's channels and a mean over the tokens; then the last norm and the product with the head.
    """
    width, inner = config.hidden_size, config.intermediate_size
    channels = getattr(config, "head_dim", None) or width // config.num_attention_heads
    layer = 2 * width + (width + channels + length + width + width + inner)
    return (config.num_hidden_layers if layers is None else layers) * layer + 2 * width


class InFloat64(TorchFunctionMode):
    """While it is entered, what is float64 stays so.

    Norms of transformers compute in float32 whatever they are given. A difference in the last bit of a float64 model
    is rounded away there or, rarely, becomes one in the last bit of float32; here neither happens.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            if func is Tensor.float:
                return args[0]
            if func is Tensor.to and torch.float32 in (*args[1:], *kwargs.values()):
                args = (args[0], *(torch.float64 if x == torch.float32 else x for x in args[1:]))
                kwargs = {name: torch.float64 if x == torch.float32 else x for name, x in kwargs.items()}
        return func(*args, **kwargs)
