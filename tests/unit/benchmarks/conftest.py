"""The tests of benchmarks share a measure of time."""

import time

import pytest


@pytest.fixture
def timed():
    """A call with a size: eight times the size may not take much more than eight times as long."""

    def check(call):
        def seconds(size):
            start = time.process_time()
            call(size)
            return time.process_time() - start

        seconds(100)  # what is compiled once
        assert seconds(240_000) < 20 * max(seconds(30_000), 0.05)

    return check
