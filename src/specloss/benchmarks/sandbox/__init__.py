"""A sandbox for model-written code, and tests whose verdict that code cannot forge.

The threat: code that a model wrote, which may be wrong in any way, or written to look right. It must not pass tests
that its function fails, see or change anything of the machine, disturb its neighbours, or outlive its trial.

The verdict. Code and tests run in two processes (`trial`). The code's process is asked for values, one call at a time,
and answers in plain data (`inside/wire`); the tests' process has the expected values, compares, and alone can write a
verdict. So nothing that the code does to its own process (`sys.exit`, `os._exit`, another `assert`, `print`,
`builtins`, NumPy, objects equal to all, frames, `gc`, `atexit`, writing to every handle) can amount to more than
answering with other values, and the expected values are not there to be found.

The machine. Each process starts in a box (`box`, `launcher`) of all layers that the machine allows (`isolation`):

- namespaces: its own processes, network (none), mounts, IPC; its root is a small memory disk with Python and the
  packages that the task needs, read-only, and an empty folder. Its end is the end of every process in it;
- user: not root, and a user that owns nothing else;
- landlock: the same files by an allow list, no TCP, no signals out of the box;
- seccomp: no new processes, no sockets, signals, mounts, shared memory, tracing;

and always: limits of CPU time, memory, file size, threads, open files; wall time; no environment, input or output.
One layer is enough for most promises; `isolation` says, by trying, which do not hold on a machine. Not defended
against: flaws of the kernel, and timing (code can measure how busy the machine is).
"""

from specloss.benchmarks.sandbox.box import Limits
from specloss.benchmarks.sandbox.errors import SandboxError
from specloss.benchmarks.sandbox.isolation import Isolation, Sandbox, isolation, permitted
from specloss.benchmarks.sandbox.trial import FaultyTests, TrialVerdict, run_tests

__all__ = [
    "FaultyTests",
    "Isolation",
    "Limits",
    "Sandbox",
    "SandboxError",
    "TrialVerdict",
    "isolation",
    "permitted",
    "run_tests",
]
