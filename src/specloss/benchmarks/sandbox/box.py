"""Starting a program in isolation, from the trusted side: which files it may read, its limits, and its end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAUNCHER, INSIDE = HERE / "launcher", HERE / "inside"
LAYERS = ("namespaces", "user", "landlock", "seccomp")
TIME_IS_UP, NOT_ISOLATED = 124, 125  # exit statuses of the launcher
SYSTEM_LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
LOADER_CACHE = "/etc/ld.so.cache"
# the hash seed makes the order of sets, and with it verdicts, the same in every run; it excludes -I, all of whose
# other effects -s -P and an environment of our own have
PYTHON_FLAGS = ("-s", "-S", "-P", "-B")


class SandboxError(RuntimeError):
    """No isolation on this machine, or it failed; the message is one line fit for a user."""


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
    folder = tempfile.mkdtemp(prefix="specloss-box-")
    readable, listable = _python_files(tuple(packages))
    spec = {
        "layers": list(layers),
        "parent": os.getpid(),
        "folder": folder,
        "readable": readable,
        "listable": listable,
        "limits": asdict(limits),
        "command": [_interpreter(), *PYTHON_FLAGS, str(INSIDE), *program],
    }
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | streams
    environment = {
        "PATH": "/nowhere",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(listable),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [_interpreter(), "-I", "-S", "-B", str(LAUNCHER), json.dumps(spec)],
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
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _interpreter() -> str:
    """Python itself, not that of a virtual environment, whose packages are out of reach by this."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@cache
def _python_files(packages: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """What Python needs to read, and the folders of packages, of which only the names may be listed."""
    wanted = [_interpreter(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    libraries = sysconfig.get_config_var("LIBDIR")
    wanted += [libraries] if libraries else []
    wanted += [*SYSTEM_LIBRARIES, LOADER_CACHE, str(INSIDE)]
    parents = []
    for name in packages:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise SandboxError(f"the sandbox needs the package {name}, which is not installed")
        folder = os.path.dirname(os.path.realpath(spec.origin))
        parents.append(os.path.dirname(folder))
        wanted += [folder, f"{folder}.libs"]
    readable: list[str] = []
    for path in sorted({path for path in wanted if os.path.lexists(path)}, key=lambda path: path.count("/")):
        if not any(path == other or path.startswith(other + "/") for other in readable if not os.path.islink(other)):
            readable.append(path)
    return readable, list(dict.fromkeys(parents))
