"""Grading many answers: each different one once, in worker processes, and on from where a killed one stopped."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specloss import benchmarks
from specloss.benchmarks import Grade
from specloss.scoring.grade import GradingError, grade_all

MODULE = """
import os, signal, threading, time
from pathlib import Path
from specloss.benchmarks import Grade
SLOW_GRADING = True
def load(): return []
def grade(text, reference, log="", die=""):
    signal.setitimer(signal.ITIMER_REAL, 60)  # works in main threads alone
    signal.setitimer(signal.ITIMER_REAL, 0)
    if log:
        with open(log, "a") as file:
            file.write(f"{os.getpid()} {text}\\n")
    if text == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "wait" and not Path(die).exists():
        time.sleep(1000)
    return Grade(text == reference, text or None, {"long": len(text) > 3})
"""


@pytest.fixture
def task(tmp_path, monkeypatch):
    """A slow benchmark that notes each grading in a log."""
    (tmp_path / "slow_task.py").write_text(MODULE)
    (tmp_path / "sitecustomize.py").write_text(
        "from specloss import benchmarks\nbenchmarks.MODULES['slow_task'] = 'slow_task'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(benchmarks.MODULES, "slow_task", "slow_task")
    yield "slow_task"
    sys.modules.pop("slow_task", None)


def log_of(path):
    return [line.split() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("workers", [1, 2])
def test_each_different_answer_is_graded_once_and_grades_come_in_order(task, tmp_path, workers):
    answers = [(str(n % 12), str(n % 3)) for n in range(48)]
    log = tmp_path / "log"
    grades = grade_all(task, answers, {"log": str(log)}, workers, tmp_path / "partial")
    assert grades == [Grade(text == reference, text, {"long": False}) for text, reference in answers]
    graded = log_of(log)
    assert len(graded) == len(set(answers))
    assert (os.getpid() in {int(pid) for pid, _ in graded}) == (workers == 1)


def test_graded_answers_are_not_graded_again_and_a_line_cut_short_does_not_matter(task, tmp_path):
    answers, log, partial = [(str(n), "1") for n in range(6)], tmp_path / "log", tmp_path / "partial"
    first = grade_all(task, answers[:4], {"log": str(log)}, 1, partial)
    partial.write_text(partial.read_text()[:-10])
    assert grade_all(task, answers, {"log": str(log)}, 1, partial)[:4] == first
    assert [text for _, text in log_of(log)] == ["0", "1", "2", "3", "3", "4", "5"]


def test_grades_of_another_grading_are_not_used(task, tmp_path):
    log, partial = tmp_path / "log", tmp_path / "partial"
    grade_all(task, [("1", "1")], {"log": str(log)}, 1, partial)
    grade_all(task, [("1", "1")], {"log": str(log), "die": "x"}, 1, partial)
    assert len(log_of(log)) == 2
    partial.write_text("\0 no json\n")
    assert grade_all(task, [("1", "1")], {}, 1, partial) == [Grade(True, "1", {"long": False})]


def test_a_worker_that_is_killed_ends_in_one_line_and_loses_nothing(task, tmp_path):
    log, partial = tmp_path / "log", tmp_path / "partial"
    answers = [(str(n), "1") for n in range(8)]
    with pytest.raises(GradingError, match="finished grades are kept"):
        grade_all(task, [*answers, ("kill", "")], {"log": str(log)}, 2, partial)
    kept = len(partial.read_text().splitlines()) - 1
    log.unlink()
    grade_all(task, answers, {"log": str(log)}, 1, partial)
    assert (len(log_of(log)) if log.exists() else 0) == len(answers) - kept


def alive(pids):
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="workers follow their parent on Linux alone")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_grading_leaves_no_worker_and_goes_on_where_it_was(task, tmp_path, number):
    log, partial, done = tmp_path / "log", tmp_path / "partial", tmp_path / "done"
    answers = [*((str(n), "1") for n in range(10)), ("wait", "1"), ("wait", "2")]
    program = f"""
from pathlib import Path
from specloss.scoring.grade import grade_all
if __name__ == "__main__":
    grade_all("slow_task", {answers!r}, {{"log": {str(log)!r}, "die": {str(done)!r}}}, 2, Path({str(partial)!r}))
"""
    (tmp_path / "run.py").write_text(program)
    grading = subprocess.Popen(
        [sys.executable, str(tmp_path / "run.py")],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by what runs in background
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        started = [text for _, text in log_of(log)] if log.exists() else []
        if started.count("wait") == 2 and len(partial.read_text().splitlines()) == 11:
            break
        time.sleep(0.05)
    workers = {int(pid) for pid, _ in log_of(log)}
    grading.send_signal(number)
    grading.wait(30)
    while alive(workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(workers) == 2 and alive(workers) == []
    done.touch()
    log.unlink()
    grades = grade_all(task, answers, {"log": str(log), "die": str(done)}, 1, partial)
    assert [grade.answer for grade in grades] == [text for text, _ in answers]
    assert [text for _, text in log_of(log)] == ["wait", "wait"]


def test_the_header_says_what_the_kept_grades_are_of(task, tmp_path):
    grade_all(task, [("1", "1")], {}, 1, tmp_path / "partial")
    header = json.loads((tmp_path / "partial").read_text().splitlines()[0])
    assert header["task"] == task and set(header) == {"task", "grading", "code"}
