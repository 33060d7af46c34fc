"""A wheel that carries a GGUF file, as a test's own package index."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from gguf_files import write_gguf


def write_wheel(folder: Path, member: str = "tiny_model/tiny.gguf") -> dict[str, str]:
    """Write a wheel of a package `tiny-model` that has a GGUF file, and code that must never run; its recipe."""
    folder.mkdir(exist_ok=True)
    write_gguf(folder / "tiny.gguf")
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    about = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "tiny.gguf", member)
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return {
        "package": "tiny-model==1.0",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "member": "tiny_model/tiny.gguf",
    }
