"""How an artefact was made: code version and commit, package versions. No heavy imports here."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import specloss

PACKAGES = ("torch", "transformers", "ray", "numpy", "pyarrow")


@cache
def code_version() -> dict[str, str | None]:
    """`version` of the package, and the git `commit` of its source tree (with `+changes`, or None outside of git)."""
    return {"version": specloss.__version__, "commit": _commit(Path(specloss.__file__).parent)}


@cache
def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that have a say in the tokens, those that are installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _commit(package: Path) -> str | None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie in someone else's repository
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


# types in which tokens do not depend on the rows of a batch: forwards of other shapes differ in the last bits, which in
# these decide nothing but exact ties
EXACT = ("float32", "float64")
