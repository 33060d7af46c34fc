"""Tries, from inside, what must not work, and says on stdout what did. A request (JSON) on stdin names the targets.

None of it does harm where it works: values are set to what they are, and what is attacked is there for that.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any

Attempts = Iterable[Callable[[], Any]]

_LIBC = ctypes.CDLL(None, use_errno=True)
_SEIZE = 0x4206
_SET_OWNER, _SET_SIGNAL = 8, 10  # of fcntl
_PIDFD_GETFD = 438
_IOPRIO = {"x86_64": (251, 252), "aarch64": (30, 31)}  # set, get
_VSOCK = 40
_CAPABILITIES_VERSION = 0x20080522


def main(waits: int = 0) -> None:
    """Write a JSON object: promise of the sandbox -> whether it holds here.

    With `waits`, be what is attacked: say that it is there, and wait for the end of stdin.
    """
    if waits:
        print("ready", flush=True)
        sys.stdin.read()
        return
    request = json.load(sys.stdin)
    limits = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    space = os.statvfs(".")
    kept = {
        "files": not any_works(on_file(request["file"])),
        "network": not any_works(on_network(request)),
        "signals": not any_works(on_process(request["process"])),
        "verdict": not any_works(on_process(request["judge"])),
        "user": os.getuid() != 0 and not any_works(on_user()),
        "processes": request["ends_all"] or not any_works([_fork]),
        "disk": space.f_blocks * space.f_frsize <= 2 * request["disk_bytes"],
        "limits": all(resource.getrlimit(limit)[1] != resource.RLIM_INFINITY for limit in limits)
        # connections that nobody accepts hold memory of the kernel
        and not any_works([_listen]),
    }
    print(json.dumps(kept))


def any_works(attempts: Attempts) -> bool:
    """Whether any of the attempts comes through."""
    return any(map(works, attempts))


def works(attempt: Callable[[], Any]) -> bool:
    """Whether an attempt raises no OSError, or one that says that only the file system cannot do it."""
    try:
        attempt()
    except OSError as error:
        return error.errno in (errno.EOPNOTSUPP, errno.EFAULT)
    return True


def on_file(path: str) -> Attempts:
    """Read, change, list, add, move, remove."""
    folder = os.path.dirname(path)
    yield lambda: open(path).close()
    yield lambda: open(path, "a").close()
    yield lambda: os.truncate(path, 4)
    yield lambda: os.listdir(folder)
    yield lambda: os.chmod(path, 0o666)
    yield lambda: os.utime(path)
    yield lambda: os.setxattr(path, "user.specloss", b"1")
    yield lambda: os.chown(path, os.getuid(), os.getgid())
    yield lambda: _call("inotify_add_watch", _call("inotify_init1", 0), path.encode(), 1)
    yield lambda: os.mkdir(path + ".folder")
    yield lambda: os.symlink(path, path + ".link")
    yield lambda: os.link(path, "link")
    yield lambda: os.rename(path, path + ".moved")
    yield lambda: os.unlink(path)


def on_network(request: dict[str, Any]) -> Attempts:
    """Connect and send to what listens on this machine, by each kind of address; reach its shared memory."""
    here = ("127.0.0.1", request["port"])
    yield lambda: socket.create_connection(here, 1).close()
    yield lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b".", here)
    yield lambda: socket.socket(socket.AF_UNIX).connect(request["stream"])
    yield lambda: socket.socket(socket.AF_UNIX).connect("\0" + request["abstract"])
    yield lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b".", request["datagram"])
    yield lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b".", request["datagram"])
    yield lambda: socket.socketpair()[0].sendto(b".", request["stream"])
    # to the host of a virtual machine; no namespace holds it
    yield lambda: socket.socket(_VSOCK, socket.SOCK_STREAM).close()
    if request["segment"] >= 0:
        _LIBC.shmat.restype = ctypes.c_long
        yield lambda: _call("shmat", request["segment"], None, 0)


def on_process(pid: int) -> Attempts:
    """Signal, change, read and trace a process; in a namespace of its own, its number is nobody's."""
    if pid in (1, os.getpid(), os.getppid()):
        return
    yield lambda: os.kill(pid, 0)
    yield lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, resource.prlimit(pid, resource.RLIMIT_NOFILE))
    yield lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
    yield lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid))
    yield lambda: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    if numbers := _IOPRIO.get(os.uname().machine):
        yield lambda: _call("syscall", numbers[0], 1, pid, _call("syscall", numbers[1], 1, pid))
    yield lambda: _choose_signal(pid)
    yield lambda: _read_memory(pid)
    yield lambda: _call("ptrace", _SEIZE, pid, 0, 0)
    yield lambda: _call("syscall", _PIDFD_GETFD, os.pidfd_open(pid), 0, 0)
    for name in ("environ", "mem", "fd/0"):
        yield lambda name=name: open(f"/proc/{pid}/{name}", "rb").close()


def on_user() -> Attempts:
    """Become root, or what only root may do."""
    yield lambda: os.setuid(0)
    yield lambda: os.setgroups([0])
    yield lambda: os.chroot("/")
    yield _use_capabilities


def _use_capabilities() -> None:
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    _call("capget", header, sets)
    if not any(sets):
        raise PermissionError(errno.EPERM, "no capabilities")


def _choose_signal(pid: int) -> None:
    """Have the kernel send a signal of our choice when a pipe is ready, which it never is."""
    reading = os.pipe()[0]
    fcntl.fcntl(reading, _SET_SIGNAL, signal.SIGURG)
    fcntl.fcntl(reading, _SET_OWNER, pid)


def _read_memory(pid: int) -> None:
    buffer = ctypes.create_string_buffer(1)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 1)
    # an address where nothing is: EFAULT is the answer to those who may read
    remote = (ctypes.c_void_p * 2)(0, 1)
    _call("process_vm_readv", pid, local, ctypes.c_long(1), remote, ctypes.c_long(1), ctypes.c_long(0))


def _call(name: str, *arguments: Any) -> int:
    result = getattr(_LIBC, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _listen() -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("listener")
    listener.listen()
