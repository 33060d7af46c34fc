"""System calls that Python has no name for. Each raises OSError, with the call's name, when the kernel refuses."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

_LIBC = ctypes.CDLL(None, use_errno=True)

SET_DEATH_SIGNAL, CAPABILITY_DROP, SET_SECCOMP, SET_SUBREAPER, NO_NEW_PRIVILEGES = 1, 24, 22, 36, 38


def call(name: str, *arguments: int | bytes | object) -> int:
    """A function of the C library, with integers passed as longs."""
    return _checked(name, getattr(_LIBC, name)(*map(_argument, arguments)))


def syscall(name: str, number: int, *arguments: int | bytes | object) -> int:
    """A system call by its number."""
    _LIBC.syscall.restype = ctypes.c_long
    return _checked(name, _LIBC.syscall(ctypes.c_long(number), *map(_argument, arguments)))


def prctl(option: int, value: int | object = 0, third: object = 0) -> int:
    """prctl(2)."""
    return call("prctl", option, value, third, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent goes. Changing the user clears it, so call it after that."""
    prctl(SET_DEATH_SIGNAL, signal.SIGKILL)


def leave_keyring() -> None:
    """Have a new, empty session keyring; where the kernel refuses that, it refuses keys altogether."""
    number = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
    join_session_keyring = 1
    if number is not None:
        with suppress(OSError):
            syscall("keyctl", number, join_session_keyring, None)


def _argument(value: int | bytes | object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
