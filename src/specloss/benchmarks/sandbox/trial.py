"""One trial: code under test and its tests, each in a box of its own, joined by two pipes of plain values."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from specloss.benchmarks.sandbox.box import NOT_ISOLATED, TIME_IS_UP, Limits, box
from specloss.benchmarks.sandbox.errors import SandboxError
from specloss.benchmarks.sandbox.isolation import Sandbox, permitted
from specloss.common.oneline import OneLine

OUT_OF_TIME = "out of time"
DEFAULT_LIMITS = Limits()


class FaultyTests(OneLine, ValueError):
    """Tests, or their imports, that fail whatever the answer is."""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """Whether all tests passed; `reason` says in a line why not."""

    passed: bool
    reason: str = ""


def run_tests(
    answer: str,
    tests: str,
    entry_point: str,
    *,
    imports: str = "",
    answer_imports: str = "",
    packages: Sequence[str] = ("numpy",),
    limits: Limits = DEFAULT_LIMITS,
    sandbox: Sandbox = "required",
    layers: Sequence[str] | None = None,
) -> TrialVerdict:
    """Whether `tests` (Python, which calls `entry_point`) run to their end with the function that `answer` defines.

    `imports` are run before the tests and `answer_imports` before the answer; both sides may import `packages`.
    `layers` are those of the machine (`isolation`) if not given, and must keep what is essential unless `sandbox` is
    unsafe. SandboxError if they do not, or a box cannot be made; FaultyTests for tests that are no Python.
    """
    if layers is None:
        layers = permitted(sandbox).layers
    task = {
        "answer": answer,
        "answer_imports": answer_imports,
        "imports": imports,
        "tests": tests,
        "entry_point": entry_point,
    }
    requests, replies = os.pipe(), os.pipe()
    ends = {*requests, *replies}
    captured = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        with (
            box(
                ["answer", str(requests[0]), str(replies[1])],
                layers,
                limits,
                (requests[0], replies[1]),
                packages,
            ) as tested,
            box(
                ["judge", str(requests[1]), str(replies[0])],
                layers,
                limits,
                (requests[1], replies[0]),
                packages,
                **captured,
            ) as judge,
        ):
            # so that each side sees the end of the other
            while ends:
                os.close(ends.pop())
            try:
                out, error = judge.communicate(json.dumps(task).encode(), limits.wall_seconds)
            except subprocess.TimeoutExpired:
                return TrialVerdict(False, OUT_OF_TIME)
            with suppress(subprocess.TimeoutExpired):
                # it ends by itself when its pipe does, unless it is up to something
                tested.wait(0.05)
    finally:
        while ends:
            os.close(ends.pop())
    return _verdict(out, error, judge.returncode, tested.returncode)


def _verdict(out: bytes, error: bytes, judge_status: int, answer_status: int) -> TrialVerdict:
    # what the code's process says of itself decides nothing: it could say anything
    if judge_status == NOT_ISOLATED or (judge_status == 0 and not out):
        said = (
            b"".join(error.splitlines()[:1]).decode(errors="replace")
            or f"exit statuses {judge_status}, {answer_status}"
        )
        raise SandboxError(f"the sandbox failed: {said}")
    if judge_status != 0:
        # values that take too long or too much memory to compare
        return TrialVerdict(False, f"the tests ended with exit status {judge_status}")
    verdict = json.loads(out)
    if "fault" in verdict:
        raise FaultyTests(f"the tests cannot be run: {' '.join(verdict['fault'].split())}")
    reason = " ".join(verdict["reason"].split())
    if not verdict["passed"] and answer_status in (128 + signal.SIGXCPU, 128 + signal.SIGKILL, TIME_IS_UP):
        reason = f"{OUT_OF_TIME} or memory: {reason}"
    return TrialVerdict(verdict["passed"], reason)
