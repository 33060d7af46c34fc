"""Namespaces of its own: processes, network, mounts, IPC, host name; and a root folder with Python and little else."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from libc import call, syscall

_NEW = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "net": 0x40000000}
_NEW_USER = 0x10000000
NOBODY = 65534

_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH = 2
_AT_RECURSIVE, _MOUNT_SETATTR = 0x8000, 442  # the number is the same on every architecture
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


def enter(user: int | None) -> None:
    """Enter new namespaces, where the next child is the first process. `user` is whom root is to become in there."""
    flags = sum(_NEW.values())
    if os.geteuid() == 0:
        # not in every container is root allowed to
        with suppress(OSError):
            call("unshare", flags)
            return
    if user is not None:
        _enter_as_root(flags, user)
        return
    ids = {"uid": os.geteuid(), "gid": os.getegid()}
    call("unshare", flags | _NEW_USER)
    _write("/proc/self/setgroups", "deny")
    for kind, number in ids.items():
        _write(f"/proc/self/{kind}_map", f"{NOBODY} {number} 1")


def _enter_as_root(flags: int, user: int) -> None:
    """With a user namespace in which root and `user` are who they are outside, which only a process outside can say."""
    ready = os.pipe()
    outside = os.fork()
    if outside == 0:
        try:
            os.close(ready[1])
            if os.read(ready[0], 1):
                for kind in ("uid", "gid"):
                    _write(f"/proc/{os.getppid()}/{kind}_map", f"0 0 1\n{user} {user} 1")
                os._exit(0)
        finally:
            os._exit(1)
    call("unshare", flags | _NEW_USER)
    os.write(ready[1], b".")
    if os.waitpid(outside, 0)[1] != 0:
        raise OSError(errno.EPERM, "uid_map: Operation not permitted")
    for end in ready:
        os.close(end)


def make_root(root: str, disk_bytes: int) -> None:
    """Mount a memory disk of `disk_bytes` on `root`, an empty folder."""
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NO_SUID | _NO_DEVICES, f"size={disk_bytes},nr_inodes=4096,mode=755")


def show(root: str, readable: Sequence[str], hidden: Sequence[str], packages: Sequence[str]) -> None:
    """Put `readable`, read-only and without `hidden`, then `packages` and devices at their own paths below `root`."""
    for path in readable:
        _show(path, root + path, _NO_SUID | _NO_DEVICES)
    for path in hidden:
        # on nothing else than what is shown: root itself has the same paths
        if os.path.isdir(root + path) and os.path.realpath(root + path) == root + path:
            _mount("tmpfs", root + path, "tmpfs", _NO_SUID | _NO_DEVICES, "size=64k,nr_inodes=64,mode=755")
    for path in packages:
        _show(path, root + path, _NO_SUID | _NO_DEVICES)
    for path in DEVICES:
        _show(path, root + path, _NO_SUID)


def change_root(root: str) -> None:
    """Make `root` the root of the file system, and all else unreachable."""
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)


def _show(path: str, target: str, flags: int) -> None:
    if not os.path.lexists(path) or os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    _mount(path, target, None, _BIND | _RECURSIVE)
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY | flags, 0, 0, 0)
    try:
        syscall(
            *("mount_setattr", _MOUNT_SETATTR, -100, target.encode(), _AT_RECURSIVE),
            *(ctypes.byref(attributes), ctypes.sizeof(attributes)),
        )
    except OSError:
        # kernels before 5.12: the flags that the mount has must be repeated
        present = os.statvfs(target).f_flag & ~(os.ST_RDONLY | 0x20)
        _mount(None, target, None, _BIND | _REMOUNT | _READ_ONLY | flags | present)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    try:
        call("mount", _bytes(source), _bytes(target), _bytes(kind), flags, _bytes(data))
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source or kind} on {target})") from None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
