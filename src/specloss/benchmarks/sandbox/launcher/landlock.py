"""Landlock: file access by an allow list, no TCP, no signals to others; for processes without any privilege.

The reference is the kernel's Documentation/userspace-api/landlock.rst; what an older kernel has not is left out.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence

from libc import NO_NEW_PRIVILEGES, prctl, syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
# rights known to each version of the interface: files; TCP; abstract sockets and signals
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP, _SCOPES = 0b11, 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict(
    folder: str, readable: Sequence[str], hidden: Sequence[str], packages: Sequence[str], listable: Sequence[str]
) -> None:
    """Allow this process and its children to read `readable` without `hidden`, and `packages`; to list `listable`; to

    do all in `folder`; and no more.
    """
    version = syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION)
    files = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
    ruleset = _Ruleset(files, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = ctypes.sizeof(ruleset) if version >= 6 else 16 if version >= 4 else 8
    handle = syscall("landlock_create_ruleset", _CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    for path in (*_without(readable, hidden), *packages):
        _allow(handle, path, files & (_EXECUTE | _READ_FILE | _READ_DIR))
    for path in listable:
        _allow(handle, path, files & _READ_DIR)
    for path in ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"):
        _allow(handle, path, files & (_READ_FILE | _WRITE_FILE | _TRUNCATE))
    _allow(handle, folder, files)
    prctl(NO_NEW_PRIVILEGES, 1)
    syscall("landlock_restrict_self", _RESTRICT_SELF, handle, 0)
    os.close(handle)


def _without(paths: Sequence[str], hidden: Sequence[str]) -> Iterator[str]:
    """What `paths` hold but for `hidden`: rules only ever add, so that what is around those is named piece by piece."""
    for path in map(os.path.realpath, paths):
        if not any(place.startswith(path + "/") for place in hidden):
            yield path
            continue
        # what a link in there leads to is allowed by its own place, or not at all
        inner = [entry.path for entry in os.scandir(path) if not entry.is_symlink()]
        yield from _without([entry for entry in inner if entry not in hidden], hidden)


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    parent = os.open(path, os.O_PATH)
    if not os.path.isdir(path):
        rights &= _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE
    rule = _Beneath(rights, parent)
    syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(parent)
