"""Namespaces of its own: processes, network, mounts, IPC, host name; and a root folder with Python and little else."""

from __future__ import annotations

import ctypes
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


def enter() -> bool:
    """Enter new namespaces; the next child is the first process in its own. Whether a user namespace was needed."""
    flags = sum(_NEW.values())
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        # not in every container is root allowed to
        with suppress(OSError):
            call("unshare", flags)
            return False
    call("unshare", flags | _NEW_USER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{NOBODY} {user} 1")
    _write("/proc/self/gid_map", f"{NOBODY} {group} 1")
    return True


def change_root(root: str, folder: str, readable: Sequence[str], disk_bytes: int, owner: int | None) -> None:
    """Make `root` (an empty folder) the root of the file system: a memory disk of `disk_bytes` that has nothing but

    `readable` (at their own paths, read-only), four devices, and the empty `folder`, which is the working folder
    afterwards. `owner` is the user that `folder` is for.
    """
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NO_SUID | _NO_DEVICES, f"size={disk_bytes},nr_inodes=4096,mode=755")
    for path in readable:
        _show(path, root + path, _NO_SUID | _NO_DEVICES)
    for path in DEVICES:
        _show(path, root + path, _NO_SUID)
    os.makedirs(root + folder, 0o700)
    if owner is not None:
        os.chown(root + folder, owner, owner)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)
    os.chdir(folder)


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
