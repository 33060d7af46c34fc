"""Python for the sandbox: the interpreter, its standard library, and the packages that a task declares, no more."""

from __future__ import annotations

import atexit
import glob
import os
import shutil
import sys
import sysconfig
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from specloss.benchmarks.sandbox.errors import SandboxError
from specloss.benchmarks.sandbox.folder import private_folder

INSIDE = Path(__file__).parent / "inside"
SYSTEM_LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
LOADER_CACHE = "/etc/ld.so.cache"
THIRD_PARTY = ("site-packages", "dist-packages")
LEFT_OUT = (*THIRD_PARTY, "test", "idlelib", "ensurepip", "config-*")  # of a copy


@dataclass(frozen=True, slots=True)
class Runtime:
    """Paths, all without links in them.

    `readable` are what may be read but for `hidden` in them; `packages` are the folders of packages, by the names that
    they are imported by (and beside them the folders of libraries that wheels bring); `inside` is the program.
    """

    interpreter: str
    stdlib: str
    inside: str
    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    packages: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@cache
def installed(packages: tuple[str, ...]) -> Runtime:
    """Python where it is installed: not that of a virtual environment, but its packages."""
    interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    stdlib = os.path.realpath(sysconfig.get_path("stdlib"))
    python = _shared_library()
    wanted = [interpreter, stdlib, sysconfig.get_config_var("LIBDIR") or stdlib, *python, *SYSTEM_LIBRARIES]
    wanted += [LOADER_CACHE, str(INSIDE)]
    readable: list[str] = []
    for path in sorted({path for path in wanted if os.path.lexists(path)}, key=lambda path: path.count("/")):
        if not any(_is_within(path, other) for other in readable if not os.path.islink(other)):
            readable.append(path)
    return Runtime(
        interpreter,
        stdlib,
        str(INSIDE),
        tuple(readable),
        tuple(sorted(_third_party(readable, stdlib))),
        tuple(path for name in packages for path in _package(name)),
        {"LD_LIBRARY_PATH": os.path.dirname(python[0])} if python else {},
    )


@cache
def public(packages: tuple[str, ...]) -> Runtime:
    """The same where every user can read it: a copy, which goes with this process, if it is somewhere private."""
    here = installed(packages)
    readable = tuple(filter(_is_public, here.readable))
    hidden = tuple(path for path in here.hidden if any(_is_within(path, os.path.realpath(other)) for other in readable))
    if all(map(_is_public, (here.interpreter, here.stdlib, here.inside, *_shared_library(), *here.packages))):
        return replace(here, readable=readable, hidden=hidden)
    copy = _public_folder()
    places = tuple(copy / "packages" / Path(path).name for path in here.packages)
    for source, target in zip(here.packages, places, strict=True):
        if not target.exists():
            _copy_folder(source, target)
    return Runtime(
        str(copy / "bin" / Path(here.interpreter).name),
        str(copy / "lib" / Path(here.stdlib).name),
        str(copy / "inside"),
        (*readable, str(copy)),
        hidden,
        tuple(map(str, places)),
        {"PYTHONHOME": str(copy), "LD_LIBRARY_PATH": str(copy / "lib")},
    )


@cache
def _public_folder() -> Path:
    """A copy of Python without packages, in a folder that goes with this process."""
    here = installed(())
    with ExitStack() as stack:
        copy = Path(stack.enter_context(private_folder()))
        atexit.register(stack.pop_all().close)
    _copy_folder(here.stdlib, copy / "lib" / Path(here.stdlib).name, LEFT_OUT)
    _copy_folder(here.inside, copy / "inside")
    (copy / "bin").mkdir(mode=0o755)
    for path, folder in ((here.interpreter, "bin"), *((path, "lib") for path in _shared_library())):
        os.chmod(shutil.copyfile(path, copy / folder / Path(path).name), 0o755)
    for folder in ("lib", "bin"):
        os.chmod(copy / folder, 0o755)
    (copy / "packages").mkdir()
    os.chmod(copy / "packages", 0o755)
    return copy


def _package(name: str) -> list[str]:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SandboxError(f"the sandbox needs the package {name}, which is not installed")
    folder = os.path.dirname(os.path.realpath(spec.origin))
    return [path for path in (folder, f"{folder}.libs") if os.path.isdir(path)]


def _shared_library() -> list[str]:
    """Where libpython was found; none if it is a part of the interpreter. It may be there by LD_LIBRARY_PATH alone."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libpython" in line}
    return sorted(path for path in paths if os.path.exists(path))


def _third_party(readable: list[str], stdlib: str) -> set[str]:
    """Folders of packages that are none of the standard library, and standard libraries of other Pythons."""
    found = {f"{stdlib}/{name}" for name in THIRD_PARTY}
    for folder in {os.path.realpath(path) for path in readable if os.path.isdir(path)}:
        for other in glob.glob(f"{folder}/python[0-9]*"):
            found |= {f"{other}/{name}" for name in THIRD_PARTY} if _is_within(stdlib, other) else {other}
    return {os.path.realpath(path) for path in found if os.path.isdir(path)}


def _copy_folder(source: str, target: Path, left_out: tuple[str, ...] = ()) -> None:
    # with their times, by which Python knows whether what it has compiled is still right
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out))
    for folder, _, files in os.walk(target):
        for path in (folder, *(f"{folder}/{file}" for file in files)):
            os.chmod(path, 0o755)


def _is_public(path: str) -> bool:
    """Whether every user may read it."""
    wanted = 0o005 if os.path.isdir(path) else 0o004
    parents = Path(os.path.realpath(path)).parents
    return os.stat(path).st_mode & wanted == wanted and all(os.stat(parent).st_mode & 0o001 for parent in parents)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
