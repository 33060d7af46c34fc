"""A filter of system calls that allows what `calls` lists: no new processes, sockets, signals, mounts, namespaces.

One process is all that there can be, so its own limits of memory and CPU time are limits of the whole. Threads are
allowed. What is refused fails with EPERM; calls that are newer than the C library's fallbacks, with ENOSYS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from calls import AARCH64, X86_64
from libc import NO_NEW_PRIVILEGES, SET_SECCOMP, prctl

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x15, 0x35, 0x45
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, little-endian
_FILTER = 2
# from here on numbers are the same on every architecture, and no C library needs any of them
_RECENT = 424
_MACHINES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}  # AUDIT_ARCH, calls

_CLONE_THREAD, _UNIX, _STREAM, _SOCKET_TYPE = 0x10000, 1, 1, 0xF
_TERMINAL = (0x5401, 0x5413, 0x802C542A)  # TCGETS, TIOCGWINSZ, TCGETS2: asked by isatty and open
_HANDLES = (0x541B, 0x5421, 0x5450, 0x5451)  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_DUPLICATE, _FLAGS, _LOCKS = (0, 1030), (1, 2, 3, 4), (5, 6, 7, 36, 37, 38)
_THREAD_NAME, _NAME_OF_MEMORY = (15, 16), 0x53564D41
# call -> which argument, under which mask (None: any bit of the value), must have one of which values
CONDITIONAL = {
    "clone": [(0, None, (_CLONE_THREAD,))],
    # nothing about signals, leases, or the size of a pipe, which is no memory of the process
    "fcntl": [(1, 0xFFFFFFFF, (*_DUPLICATE, *_FLAGS, *_LOCKS))],
    "ioctl": [(1, 0xFFFFFFFF, (*_TERMINAL, *_HANDLES))],
    # it must not outlive its launcher, which prctl could undo
    "prctl": [(0, 0xFFFFFFFF, (*_THREAD_NAME, _NAME_OF_MEMORY))],
    "prlimit64": [(0, 0xFFFFFFFF, (0,))],  # of itself
    # for event loops; datagrams could be sent elsewhere
    "socketpair": [(0, 0xFFFFFFFF, (_UNIX,)), (1, _SOCKET_TYPE, (_STREAM,))],
}
_SENDS = "sendto"  # allowed without an address, which takes 64 bits


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install() -> None:
    """Filter the calls of this process and its children from here on. OSError on a machine of another architecture."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"seccomp: no table of system calls for {machine}")
    code = program(machine)
    loaded = _Program(len(code) // 8, code)
    prctl(NO_NEW_PRIVILEGES, 1)
    prctl(SET_SECCOMP, _FILTER, ctypes.byref(loaded))


def program(machine: str) -> bytes:
    """The filter's instructions, 8 bytes each."""
    architecture, allowed = _MACHINES[machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name, number in allowed.items():
        if name == _SENDS:
            checks = [(_ARGUMENTS + 8 * 4 + half, 0xFFFFFFFF, (0,)) for half in (0, 4)]
        else:
            checks = [(_ARGUMENTS + 8 * place, mask, values) for place, mask, values in CONDITIONAL.get(name, [])]
        block = [instruction for check in checks for instruction in _require(*check)] + [(_RETURN, 0, 0, _ALLOW)]
        code += [(_JUMP_EQUAL, 0, len(block), number), *block]
    code += [
        # where the flags of clone3 are, a filter cannot look; C libraries fall back to clone. The 32-bit interface of
        # x86-64, which has the same calls under numbers from 2^30 on, is refused with it
        (_JUMP_AT_LEAST, 0, 1, _RECENT),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _require(offset: int, mask: int | None, values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Refuse unless the argument at `offset` has one of `values`; without a mask, unless it has a bit of them."""
    compare = _JUMP_ANY_BIT if mask is None else _JUMP_EQUAL
    code = [(_LOAD, 0, 0, offset)] + ([(_AND, 0, 0, mask)] if mask not in (None, 0xFFFFFFFF) else [])
    code += [(compare, len(values) - number, 0, value) for number, value in enumerate(values)]
    return [*code, (_RETURN, 0, 0, _FAIL | errno.EPERM)]
