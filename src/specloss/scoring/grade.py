"""Grading many answers: each distinct one once, slow ones in parallel, resuming where a killed grading stopped.

Workers are processes and grade in their main threads: graders may set alarms (math-verify does) and start processes.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

from specloss.benchmarks import Grade, get_benchmark
from specloss.common.files import write_text
from specloss.common.oneline import OneLine, plain
from specloss.common.processes import die_with_parent
from specloss.common.provenance import code_version

Answer = tuple[str, str | None]  # text, reference

ANSWERS_PER_WORKER = 4  # fewer are not worth the start of a process
SECONDS_BETWEEN_LINES = 10.0


class GradingError(OneLine, RuntimeError):
    """Grading ended early; the message is one line meant for users."""


def grade_all(
    task: str, answers: Sequence[Answer], grading: Mapping[str, Any], workers: int, partial: Path, label: str = ""
) -> list[Grade]:
    """The grades of `answers` by the benchmark `task`, in their order.

    Of a slow benchmark, finished grades are kept in `partial` until the caller removes it, and a later call with the
    same task, grading and code begins with them. Long work says on stderr how far it is; `label` names it.
    """
    keys = [_key(answer) for answer in answers]
    todo = dict(zip(keys, answers, strict=True))
    if not get_benchmark(task).slow:
        grades = {key: grade_one(task, answer, grading) for key, answer in todo.items()}
        return [grades[key] for key in keys]
    grades = _resume(partial, {"task": task, "grading": dict(grading), "code": code_version()})
    left = {key: answer for key, answer in todo.items() if key not in grades}
    said = time.monotonic()
    with partial.open("a", encoding="utf-8") as file:
        for key, grade in _grade(task, left, grading, workers):
            grades[key] = grade
            file.write(json.dumps({"key": key, **_to_dict(grade)}) + "\n")
            file.flush()
            if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                done = sum(key in grades for key in todo)
                print(plain(f"score  {done}/{len(todo)} answers  {label}"), file=sys.stderr, flush=True)
    return [grades[key] for key in keys]


def _grade(
    task: str, answers: Mapping[str, Answer], grading: Mapping[str, Any], workers: int
) -> Iterator[tuple[str, Grade]]:
    """Grade in `workers` processes, or in this one where that is enough; the order is that of finishing."""
    workers = min(workers, math.ceil(len(answers) / ANSWERS_PER_WORKER))
    if workers <= 1:
        for key, answer in answers.items():
            yield key, grade_one(task, answer, grading)
        return
    # not fork: pyarrow has threads, and what this process knows is not for children that start untrusted code
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (os.getpid(),))
    try:
        futures = {pool.submit(grade_one, task, answer, dict(grading)): key for key, answer in answers.items()}
        for future in as_completed(futures):
            yield futures.pop(future), future.result()
    except BrokenProcessPool:
        raise GradingError(
            "a grading process was killed; finished grades are kept, and the next run continues from them"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            # of an interrupted grading: it could go on for minutes
            worker.kill()
            worker.join()


def _start_worker(parent: int) -> None:
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches all: one traceback is enough


def grade_one(task: str, answer: Answer, grading: Mapping[str, Any]) -> Grade:
    """The grade of one answer. What its text makes a grader raise counts against it alone, as a parse failure.

    Errors for users (no sandbox, faulty tests) are not the text's: they end the grading.
    """
    if threading.current_thread() is not threading.main_thread():
        raise GradingError("graders set alarms, which are for main threads: grade in one")
    try:
        grade = get_benchmark(task).grade(*answer, **grading)
    except OneLine:
        raise
    except Exception as error:  # hostile text: recursion, digits without end, half a surrogate pair
        return Grade(False, None, error=type(error).__name__)
    if grade.answer is not None and not grade.answer.isascii():
        # a file takes no half of a surrogate pair
        return replace(grade, answer=grade.answer.encode("utf-8", "backslashreplace").decode())
    return grade


def _key(answer: Answer) -> str:
    return hashlib.sha256(json.dumps(answer).encode()).hexdigest()


def _resume(partial: Path, header: Mapping[str, Any]) -> dict[str, Grade]:
    """The grades of an earlier try of the same kind, if there was one; trims `partial` to complete lines."""
    first, *lines = partial.read_text(encoding="utf-8").splitlines() if partial.exists() else [""]
    grades, kept = {}, [json.dumps(header)]
    if first == kept[0]:
        for line in lines:
            try:
                entry = json.loads(line)
                key = entry.pop("key")
                grades[key] = Grade(**entry)
            except (ValueError, TypeError, KeyError, AttributeError):
                break  # cut short while it was written
            kept.append(line)
    write_text(partial, "\n".join(kept) + "\n")
    return grades


def _to_dict(grade: Grade) -> dict[str, Any]:
    return {**{name: getattr(grade, name) for name in ("correct", "answer", "error")}, "scores": dict(grade.scores)}
