"""Whether two models really have the same tokenizer. Imports neither torch nor transformers: it runs before any job."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tokenizers import Tokenizer

PROBE = "Natalia sold 48 clips; 37*04+58-09? 'Straße' 中文 \n\tdef f(x): return x"


class ModelError(ValueError):
    """A model that cannot be used; the message is one line fit for a user."""


def check_head(head: str) -> Path | None:
    """The folder of a local EAGLE-3 head, None for a hub id. ModelError for a folder that is missing or incomplete.

    A head has no tokenizer of its own.
    """
    folder = Path(head)
    if not folder.is_dir():
        if head.startswith((".", "/", "~")) or head.count("/") != 1 or folder.suffix in (".json", ".safetensors"):
            raise ModelError(f"{head}: no such model folder (a hub id would be 'owner/name')")
        return None
    if not (folder / "config.json").exists():
        raise ModelError(f"{head}: not a model folder, it has no config.json")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ModelError(f"{head}: the folder has no weights (model.safetensors)")
    return folder


def check_model(model: str) -> Path | None:
    """The folder of a local model, None for a hub id. ModelError for a folder that is missing or incomplete."""
    folder = check_head(model)
    if folder and not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise ModelError(f"{model}: the folder has no tokenizer (tokenizer.json); save one beside the weights")
    return folder


def fingerprint(model: str) -> str | None:
    """16 hex digits that tell a local model's weights from others under the same path; None for a hub id.

    Hashes names, sizes and both ends (1 MiB each) of the weight files: all of a small model, moments for a large one.
    """
    folder = Path(model)
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.bin")) + sorted(folder.glob("*.json")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
            file.seek(max(size - (1 << 20), 0))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def check_models(target: str, draft: str) -> None:
    """Check what can be checked of a pair without loading it. ModelError, in one line, names what is wrong."""
    files = [folder and folder / "tokenizer.json" for folder in (check_model(target), check_model(draft))]
    if all(file and file.exists() for file in files):
        difference = tokenizer_difference(*map(_read_tokenizer, files))
        if difference:
            raise ModelError(f"target {target} and draft {draft} have different tokenizers: {difference}")


def _read_tokenizer(file: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{file} is no tokenizer: {' '.join(str(error).split())}") from None


def tokenizer_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """What tells two tokenizers apart, in a few words; None if they are the same on vocabulary and a probe text."""
    ours, theirs = (tokenizer.get_vocab(with_added_tokens=True) for tokenizer in (target, draft))
    for token in sorted(ours.keys() | theirs.keys()):
        if ours.get(token) != theirs.get(token):
            return (
                f"token {token!r} is {ours.get(token, 'absent')} in one and {theirs.get(token, 'absent')} in the other"
            )
    if target.encode(PROBE).ids != draft.encode(PROBE).ids:
        return "equal vocabularies, but they split a probe text differently"
    return None
