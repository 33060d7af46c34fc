"""Whether two models really have the same tokenizer. Imports neither torch nor transformers: it runs before any job."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from specloss.common.files import check_file
from specloss.models.checkpoint import Checkpoint, ModelError, locate
from specloss.models.vocabulary import vocabulary_fault

PROBE = "Natalia sold 48 clips; 37*04+58-09? 'Straße' 中文 \n\tdef f(x): return x"


def check_models(
    target: str,
    draft: str,
    target_revision: str | None = None,
    draft_revision: str | None = None,
    kind: str = "draft",
) -> None:
    """Check what can be checked about a pair without loading it. ModelError, in one line, names what is wrong."""
    checkpoints = (locate(target, target_revision), locate(draft, draft_revision))
    for checkpoint in checkpoints:
        checkpoint.check(tokenizer=checkpoint is checkpoints[0] or kind != "eagle3")
    backends = [_read_tokenizer(checkpoint) for checkpoint in checkpoints[: 1 if kind == "eagle3" else 2]]
    sizes = [_vocabulary(checkpoint) for checkpoint in checkpoints]
    if backends[0] and all(sizes):
        tokens = backends[0].get_vocab(with_added_tokens=True)
        added = {token.content for token in backends[0].get_added_tokens_decoder().values()}
        if fault := vocabulary_fault(*sizes, tokens, added, ends=()):
            raise ModelError(f"target {target} and draft {draft}: {fault}")
    if kind == "eagle3":  # a head has the target's tokenizer
        return
    if all(backends):
        difference = tokenizer_difference(*backends)
        if difference:
            raise ModelError(f"target {target} and draft {draft} have different tokenizers: {difference}")


def _vocabulary(checkpoint: Checkpoint) -> int | None:
    """Ids of a local folder's model, if its config says so; of others they are known once they are loaded."""
    if not checkpoint.local or checkpoint.gguf:
        return None
    text = checkpoint.config.get("text_config")
    size = (text if isinstance(text, dict) else checkpoint.config).get("vocab_size")
    return size if isinstance(size, int) else None  # whatever else it is, loading says


def _read_tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer of a local folder that has it as one file; others are compared once they are loaded."""
    file = Path(checkpoint.place, "tokenizer.json")
    if not checkpoint.local or checkpoint.gguf or not file.exists():
        return None
    try:
        check_file(file)
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{file} is not a tokenizer: {' '.join(str(error).split())}") from None


def tokenizer_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """How two tokenizers differ, in a few words; None if they agree on vocabulary and a probe text."""
    ours, theirs = (tokenizer.get_vocab(with_added_tokens=True) for tokenizer in (target, draft))
    for token in sorted(ours.keys() | theirs.keys()):
        if ours.get(token) != theirs.get(token):
            return (
                f"token {token!r} is {ours.get(token, 'absent')} in one and {theirs.get(token, 'absent')} in the other"
            )
    if target.encode(PROBE).ids != draft.encode(PROBE).ids:
        return "equal vocabularies, but they split a probe text differently"
    return None
