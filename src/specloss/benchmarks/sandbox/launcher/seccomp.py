"""A filter of system calls: no new processes, sockets, signals, mounts, namespaces; nothing that outlives the process.

Denied calls fail with EPERM. Threads are allowed. One process is all that there can be, so its own limits of memory
and CPU time are limits of the whole.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from libc import NO_NEW_PRIVILEGES, SET_DEATH_SIGNAL, SET_SECCOMP, prctl

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little-endian
_CLONE_THREAD, _FILTER, _X32 = 0x10000, 2, 0x40000000

# numbers from 424 on are the same on every architecture
_EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_open": 434, "pidfd_getfd": 438, "mount_setattr": 442,
    "memfd_secret": 447,
}  # fmt: skip
_X86_64 = {
    "shmget": 29, "socket": 41, "fork": 57, "vfork": 58, "kill": 62, "semget": 64, "msgget": 68, "ptrace": 101,
    "setpgid": 109, "setsid": 112, "rt_sigqueueinfo": 129, "pivot_root": 155, "chroot": 161, "mount": 165,
    "umount2": 166, "tkill": 200, "tgkill": 234, "mq_open": 240, "add_key": 248, "request_key": 249, "keyctl": 250,
    "unshare": 272, "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "memfd_create": 319, "bpf": 321, "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = {
    "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "ptrace": 117, "kill": 129, "tkill": 130,
    "tgkill": 131, "rt_sigqueueinfo": 138, "setpgid": 154, "setsid": 157, "mq_open": 180, "msgget": 186,
    "semget": 190, "shmget": 194, "socket": 198, "add_key": 217, "request_key": 218, "keyctl": 219,
    "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "open_by_handle_at": 265, "setns": 268,
    "process_vm_readv": 270, "process_vm_writev": 271, "memfd_create": 279, "bpf": 280, "userfaultfd": 282,
    "unshare": 97,
}  # fmt: skip
_CLONE3 = 435
# AUDIT_ARCH, denied calls, clone, prctl
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64 | _EVERYWHERE, 56, 157),
    "aarch64": (0xC00000B7, _AARCH64 | _EVERYWHERE, 220, 167),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install() -> None:
    """Filter the calls of this process and its children from here on. OSError on a machine of another architecture."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"seccomp: no table of system calls for {machine}")
    code = _program(*_MACHINES[machine])
    program = _Program(len(code) // 8, code)
    prctl(NO_NEW_PRIVILEGES, 1)
    prctl(SET_SECCOMP, _FILTER, ctypes.byref(program))


def _program(architecture: int, denied: dict[str, int], clone: int, prctl_number: int) -> bytes:
    deny = _FAIL | errno.EPERM
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        # the 32-bit interface of x86-64 has the same calls under other numbers
        (_JUMP_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, deny),
        # clone3 keeps its flags in memory, where a filter cannot look; C libraries fall back to clone
        (_JUMP_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
        (_JUMP_EQUAL, 0, 4, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, deny),
        # it must not outlive its launcher, which prctl could undo
        (_JUMP_EQUAL, 0, 4, prctl_number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, 1, SET_DEATH_SIGNAL),
        (_RETURN, 0, 0, deny),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for number in denied.values():
        code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, deny)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)
