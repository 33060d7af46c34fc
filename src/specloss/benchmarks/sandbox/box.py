"""Starting a program in isolation, from the trusted side: which files it may read, its limits, and its end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specloss.benchmarks.sandbox.folder import private_folder
from specloss.benchmarks.sandbox.runtime import installed, public

LAUNCHER = Path(__file__).parent / "launcher"
LAYERS = ("namespaces", "user", "landlock", "seccomp")
TIME_IS_UP, NOT_ISOLATED = 124, 125  # exit statuses of the launcher
# the hash seed makes the order of sets, and with it verdicts, the same in every run; it excludes -I, all of whose
# other effects -s -P and an environment of our own have
PYTHON_FLAGS = ("-s", "-S", "-P", "-B")


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one program. CPU time decides, so that a busy machine makes no verdict; wall time is for those that sleep."""

    cpu_seconds: int = 10
    wall_seconds: float = 40
    memory_bytes: int = 2 << 30
    disk_bytes: int = 64 << 20  # of its folder, and of one file
    threads: int = 16
    open_files: int = 64


@contextmanager
def box(
    program: Sequence[str],
    layers: Sequence[str],
    limits: Limits,
    pipes: Sequence[int] = (),
    packages: Sequence[str] = (),
    **streams: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python inside <program>` under `layers`; on leaving the context, it and all that it started are gone.

    `pipes` are handles that it inherits, by the same numbers; `packages` may be imported beside the standard library;
    `streams` are Popen's, /dev/null if not given.
    """
    here = installed(tuple(packages))
    # root of new namespaces shows what it can read to the box's user; else that user must be able to read it
    changes_user = os.geteuid() == 0 and "user" in layers and "namespaces" not in layers
    runtime = public(tuple(packages)) if changes_user else here
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | streams
    with private_folder() as folder:
        home, links = f"{folder}/home", f"{folder}/packages"
        spec = {
            "layers": list(layers),
            "parent": os.getpid(),
            "folder": folder,
            "home": home,
            "readable": runtime.readable,
            "hidden": runtime.hidden,
            "packages": runtime.packages,
            "links": {f"{links}/{os.path.basename(path)}": path for path in runtime.packages},
            "listable": [runtime.stdlib, links],
            "limits": asdict(limits),
            "command": [runtime.interpreter, *PYTHON_FLAGS, runtime.inside, *program],
        }
        environment = {
            "PATH": "/nowhere",
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": links,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            **runtime.environment,
        }
        process = subprocess.Popen(
            [here.interpreter, "-I", "-S", "-B", str(LAUNCHER), json.dumps(spec)],
            env=environment,
            pass_fds=tuple(pipes),
            start_new_session=True,
            cwd="/",
            **streams,
        )
        try:
            yield process
        finally:
            # the launcher ends only after all in the box has
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
