"""Where a model is: a local folder, a GGUF file, or the hub. Imports neither torch nor transformers."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specloss.common.files import FileError
from specloss.common.oneline import OneLine
from specloss.models.sizes import check_config, check_folder, check_gguf

WEIGHTS = ("*.safetensors", "*.bin")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_EXTRAS = {"gptq": ("gptq", ("optimum", "gptqmodel"))}  # by quantisation method: our extra, and what it installs


class ModelError(OneLine, ValueError):
    """A model that cannot be used; the message is one line meant for users."""


@dataclass(frozen=True)
class Checkpoint:
    """A model as a config names it. `place` is a folder or a hub id, `gguf` the file in it, if it is one."""

    name: str
    place: str
    gguf: str | None
    local: bool
    revision: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """For `from_pretrained`, after `place`."""
        # transformers looks for a GGUF file in the working directory first
        return {"gguf_file": str(self.file.resolve())} if self.gguf else {"revision": self.revision}

    @property
    def file(self) -> Path:
        """The local GGUF file."""
        return Path(self.place, self.gguf or "")

    def check(self, tokenizer: bool = True) -> None:
        """Check the local files without loading them. ModelError if any is missing, incomplete or damaged.

        An EAGLE-3 head has no `tokenizer` of its own.
        """
        if not self.local:
            return
        if self.gguf:
            self.header  # noqa: B018  reading it is the check
            return
        folder = Path(self.place)
        if not (folder / "config.json").exists():
            raise ModelError(f"{self.name}: not a model folder, it has no config.json")
        if not any(path for pattern in WEIGHTS for path in folder.glob(pattern)):
            raise ModelError(f"{self.name}: the folder has no weights (model.safetensors)")
        if tokenizer and not any((folder / name).exists() for name in TOKENIZERS):
            raise ModelError(f"{self.name}: the folder has no tokenizer (tokenizer.json); save one beside the weights")
        self.check_sizes()
        check_quantization(self.name, self.config.get("quantization_config"))

    @property
    def weight_bytes(self) -> int:
        """Size of the local files with weights."""
        files = [self.file] if self.gguf else [path for kind in WEIGHTS for path in Path(self.place).glob(kind)]
        return sum(path.stat().st_size for path in files)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The local folder's `config.json`. ModelError if it is not a JSON object."""
        try:
            return check_config(Path(self.place, "config.json"))
        except FileError as error:
            raise ModelError(f"no model config: {error}") from None

    @cached_property
    def header(self) -> Any:
        """A `gguf.GGUFReader` of the local GGUF file. ModelError, in one line, if it is damaged or truncated."""
        from gguf import GGUFReader

        self.check_sizes()
        try:
            return GGUFReader(self.file)
        except (ValueError, IndexError, KeyError, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"{self.name}: a damaged or truncated GGUF file ({reason})") from None

    def check_sizes(self) -> None:
        """ModelError for local files that declare more than they have, or than a model can have; before a library
        is given them."""
        if not self.local:
            return
        try:
            check_gguf(self.file) if self.gguf else check_folder(Path(self.place))
        except FileError as error:
            raise ModelError(str(error)) from None


def locate(model: str, revision: str | None = None) -> Checkpoint:
    """Find what a config names. ModelError for a local path where nothing exists.

    `model` is a folder, a GGUF file, a hub id `owner/name`, or a GGUF file on the hub, `owner/name/FILE.gguf`.
    """
    path = Path(model)
    gguf = path.name if path.suffix.lower() == ".gguf" else None
    parts = model.split("/")
    if path.is_file() if gguf else path.is_dir():
        if revision:
            raise ModelError(f"{model}: revision {revision!r} is for models on the hub; this one is here")
        return Checkpoint(model, str(path.parent if gguf else path), gguf, local=True)
    if gguf:
        if len(parts) < 3 or Path(parts[0]).exists() or parts[0] in ("", ".", "..", "~"):
            raise ModelError(f"{model}: no such GGUF file (one on the hub would be 'owner/name/{gguf}')")
        return Checkpoint(model, "/".join(parts[:2]), "/".join(parts[2:]), local=False, revision=revision)
    if len(parts) != 2 or parts[0] in ("", ".", "..", "~") or path.suffix in (".json", ".safetensors"):
        raise ModelError(f"{model}: no such model folder (a hub id would be 'owner/name')")
    return Checkpoint(model, model, None, local=False, revision=revision)


def check_quantization(model: str, quantization: Any) -> None:
    """ModelError if a checkpoint's `quantization_config` needs an optional extra that is not installed."""
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    extra, packages = _EXTRAS.get(str(method), ("", ()))
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ModelError(
            f"{model}: a {str(method).upper()} checkpoint, which needs {' and '.join(missing)}; "
            f"pip install 'specloss[{extra}]', or -e '.[{extra}]' in a clone"
        )


def fingerprint(model: str) -> str | None:
    """16 hex digits that distinguish a local model's weights from others at the same path; None for the hub.

    Hashes names, sizes and both ends (1 MiB each) of the weight files: all of a small model, moments for a large one.
    """
    path = Path(model)
    if path.is_dir():
        files = [file for pattern in (*WEIGHTS, "*.json") for file in sorted(path.glob(pattern)) if file.is_file()]
    elif path.is_file():
        files = [path]
    else:
        return None
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(1 << 20))
            opened.seek(max(size - (1 << 20), 0))
            digest.update(opened.read())
    return digest.hexdigest()[:16]
