"""EvalPlus' comparison of what a function returned with what was expected of it.

Source: `unsafe_execute` and `_special_oracle` of evalplus 0.3.1 (Apache-2.0, parts from human-eval, MIT), told in other
words. Values that are not equal may be close, if they are of one type and as long, where floats are expected;
once that was so in a task, later values of it may be close as well. Some tasks have a comparison of their own. One
difference: values of different shapes are never close, which NumPy's broadcasting allows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

RELATIVE, ABSOLUTE = 1e-7, 1e-6  # for floats
AS_SETS = {
    "similar_elements",
    "find_char_long",
    "common_in_nested_lists",
    "extract_singly",
    "larg_nnum",
    "intersection_array",
    "find_dissimilar",
    "Diff",
}
# what is expected is whether there is a match, which may be a truth value or any object
AS_MATCHES = {"check_str", "text_match_three", "text_starta_endb"}


class Comparison:
    """The comparison of one task; it keeps the tolerance from one value to the next."""

    def __init__(self, entry_point: str, namespace: Mapping[str, Any]) -> None:
        """`namespace` is that of the tests, where the arguments of the last call are under `inp`."""
        self.entry_point, self.namespace, self.tolerance = entry_point, namespace, 0.0

    def check(self, out: Any, exp: Any, atol: float) -> None:
        """AssertionError if `out` is not what was expected; other errors if it cannot be compared."""
        same = self._is_same(out, exp, atol or self.tolerance)
        if not (atol or self.tolerance) and _is_floats(exp):
            self.tolerance = ABSOLUTE
        tolerance = atol or self.tolerance
        if not same and tolerance:
            assert type(out) is type(exp) and _are_close(out, exp, tolerance), f"out: {out}, exp: {exp}"
        else:
            assert same, f"out: {out}, exp: {exp}"

    def _is_same(self, out: Any, exp: Any, tolerance: float) -> Any:
        if self.entry_point in AS_SETS:
            return set(out) == set(exp)
        if self.entry_point in AS_MATCHES:
            return (out if isinstance(out, bool) else out is not None) == exp
        same = out == exp
        if self.entry_point == "surface_Area":
            return same or abs(out - _surface_by_height(*self.namespace["inp"])) <= tolerance
        if self.entry_point == "digit_distance_nums":
            return same or out == _padded_distance(*self.namespace["inp"])
        return same


def _is_floats(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(entry, float) for entry in value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return value.dtype in (numpy.float64, numpy.float32)
    return isinstance(value, float)


def _are_close(out: Any, exp: Any, tolerance: float) -> bool:
    import numpy

    return numpy.shape(out) == numpy.shape(exp) and bool(numpy.allclose(out, exp, rtol=RELATIVE, atol=tolerance))


def _surface_by_height(base: float, height: float) -> int:
    """Task 581, with the height of the pyramid, not of its sides."""
    slant = math.sqrt((base / 2) ** 2 + height**2)
    return round(base**2 + 4 * (base * slant) / 2)


def _padded_distance(first: Any, second: Any) -> int:
    """Task 558, with the shorter number padded with zeros on the left."""
    width = max(len(str(first)), len(str(second)))
    return sum(abs(int(a) - int(b)) for a, b in zip(str(first).zfill(width), str(second).zfill(width), strict=True))
