"""Starts one program in isolation, waits for it, and ends everything that it left behind.

    python <this folder> '{"layers": [...], "command": [...], ...}'      (`specloss.benchmarks.sandbox.box` writes it)

Each layer that is asked for must succeed, else nothing is started (exit status 125 and a line on stderr). Exit status:
the program's, 128 + n if signal n killed it, 124 if the time was up. SIGTERM ends it all at once. Only the standard
library: this runs without site-packages.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import landlock
import namespaces
import seccomp
from libc import CAPABILITY_DROP, NO_NEW_PRIVILEGES, SET_SUBREAPER, die_with_parent, leave_keyring, prctl

TIME_IS_UP, NOT_ISOLATED = 124, 125
# systemd's range for users without a name: nobody's files are theirs
USERS = range(61184, 65520)
# where the limit of threads counts all that the user has elsewhere: room for those to come
ROOM = 1000


class _End(Exception):
    """The time is up, or SIGTERM."""


def main() -> None:
    """Isolate, start, wait, end."""
    spec = json.loads(sys.argv[1])
    try:
        die_with_parent()
        if os.getppid() != spec["parent"]:
            sys.exit(NOT_ISOLATED)
        # what it makes on the way to the working folder is for the program's user as well
        os.umask(0o022)
        # when the machine runs out of memory, this goes first
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        user = USERS.start + os.getpid() % len(USERS) if os.geteuid() == 0 and "user" in spec["layers"] else None
        if os.geteuid() != 0 and not ("namespaces" in spec["layers"] and _counts_per_namespace()):
            spec["limits"]["threads"] += _tasks_of_user() + ROOM
        if "namespaces" not in spec["layers"]:
            _furnish("", spec, user)
            sys.exit(_supervise(spec, user))
        namespaces.enter(user)
        sys.exit(_wait_for_first_process(spec, user))
    except OSError as error:
        _refuse(error)


def _furnish(root: str, spec: dict[str, Any], user: int | None) -> None:
    """Make, below `root`, the empty working folder, for `user`, and the folder of links to packages; go there."""
    os.makedirs(root + spec["home"], 0o700)
    if user is not None:
        os.chown(root + spec["home"], user, user)
    for link, package in spec["links"].items():
        os.makedirs(os.path.dirname(root + link), exist_ok=True)
        os.symlink(package, root + link)
    os.chdir(root + spec["home"])


def _wait_for_first_process(spec: dict[str, Any], user: int | None) -> int:
    """Start the first process of the new namespace: when it ends, the kernel kills all others in there."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready[0])
        os.close(go[1])
        try:
            die_with_parent()
            os.write(ready[1], b".")
            # the parent could have gone before the line above: then there is nothing to read here
            if os.read(go[0], 1):
                os.close(ready[1])
                os.close(go[0])
                root = spec["folder"]
                namespaces.make_root(root, spec["limits"]["disk_bytes"])
                namespaces.show(root, spec["readable"], spec["hidden"], spec["packages"])
                _furnish(root, spec, user)
                namespaces.change_root(root)
                os.chdir(spec["home"])
                os._exit(_supervise(spec, user))
        except OSError as error:
            _refuse(error)
        finally:
            os._exit(NOT_ISOLATED)

    def end(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    os.close(ready[1])
    os.close(go[0])
    os.read(ready[0], 1)
    os.write(go[1], b".")
    return _exit_status(os.waitpid(child, 0)[1])


def _supervise(spec: dict[str, Any], user: int | None) -> int:
    """Start the program as a child; its exit status once it is gone, and everything that it started with it."""

    def end(*_: object) -> NoReturn:
        raise _End

    prctl(SET_SUBREAPER, 1)
    child = 0
    try:
        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, spec["limits"]["wall_seconds"])
        child = os.fork()
        if child == 0:
            _become(spec, user)
        while True:
            pid, status = os.wait()
            if pid == child:
                return _exit_status(status)
    except _End:
        return TIME_IS_UP
    finally:
        if child:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _end_children()


def _become(spec: dict[str, Any], user: int | None) -> NoReturn:
    """Give up everything, then become the program."""
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o077)
        _limit(spec["limits"])
        if os.geteuid() == 0:
            # root in a user namespace of its own has these as well
            for capability in range(64):
                with suppress(OSError):
                    prctl(CAPABILITY_DROP, capability)
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        die_with_parent()
        # in the one that was inherited may be the keys of the user
        leave_keyring()
        prctl(NO_NEW_PRIVILEGES, 1)
        if "landlock" in spec["layers"]:
            # in a root of its own, what is hidden is not there
            hidden = [] if "namespaces" in spec["layers"] else spec["hidden"]
            landlock.restrict(spec["home"], spec["readable"], hidden, spec["packages"], spec["listable"])
        if "seccomp" in spec["layers"]:
            seccomp.install()
        os.execve(spec["command"][0], spec["command"], dict(os.environ))
    except OSError as error:
        _refuse(error)
    finally:
        os._exit(NOT_ISOLATED)


def _limit(limits: dict[str, float]) -> None:
    seconds = int(limits["cpu_seconds"])
    for what, soft, hard in (
        # the first can be caught, the second cannot
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_AS, limits["memory_bytes"], limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["disk_bytes"], limits["disk_bytes"]),
        (resource.RLIMIT_NPROC, limits["threads"], limits["threads"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_STACK, 8 << 20, 8 << 20),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        ceiling = resource.getrlimit(what)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(what, (int(soft), int(hard)))


def _end_children() -> None:
    """Kill and reap every descendant: orphans become children of this process, which is their subreaper."""
    while True:
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Children of this process; all others of the namespace where there is no /proc, which makes it the first there."""
    if not os.path.exists("/proc/self/stat"):
        return [-1]
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat") as file:
            # the command, in brackets, may hold spaces and brackets of its own
            if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _counts_per_namespace() -> bool:
    """Whether a user namespace counts its own threads: from Linux 5.14 on."""
    return tuple(map(int, platform.release().split("-")[0].split(".")[:2])) >= (5, 14)


def _tasks_of_user() -> int:
    """Threads of all processes of this user, as far as they can be seen."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self") else []):
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _exit_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _refuse(error: OSError) -> NoReturn:
    place = f" ({error.filename})" if error.filename else ""
    os.write(2, f"{error.strerror or error}{place}\n".encode())
    os._exit(NOT_ISOLATED)


main()
