"""`pytest --cpu-times`: the CPU seconds that each test file takes, its processes included, the dearest first.

CPU time, unlike the time on the clock, says nearly the same on a busy machine. A process that outlives its parent (a
daemon) is counted while it lives under its first parent alone.
"""

from __future__ import annotations

from collections import Counter

import psutil
import pytest


class CpuTimes:
    """Adds up the CPU time per file in each process that runs tests; shows the sum in the one that reports."""

    def __init__(self):
        self.seconds = Counter()
        self.tests = Counter()
        self.seen = 0.0

    def pytest_collection_finish(self, session):
        self._charge("(start and collection)")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        try:
            return (yield)
        finally:
            spent = self._charge(item.location[0])
            self.tests[item.nodeid] += spent

    def _charge(self, name: str) -> float:
        now = used()
        spent, self.seen = max(0.0, now - self.seen), max(now, self.seen)
        self.seconds[name] += spent
        return spent

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cpu_times"] = [dict(self.seconds), dict(self.tests)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        seconds, tests = getattr(node, "workeroutput", {}).get("cpu_times", ({}, {}))
        self.seconds.update(seconds)
        self.tests.update(tests)

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section(f"CPU time: {sum(self.seconds.values()):.0f} s")
        for counted, least in ((self.seconds, 0.5), (self.tests, 2.0)):
            for name, spent in counted.most_common():
                if spent >= least:
                    terminalreporter.write_line(f"{spent:7.1f} s  {name}")
            terminalreporter.write_line("")


def used() -> float:
    """CPU seconds of this process, of those that it has waited for, and of its descendants that live."""
    this = psutil.Process()
    total = sum(this.cpu_times()[:4])
    for process in this.children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total
