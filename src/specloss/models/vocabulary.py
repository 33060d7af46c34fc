"""Which ids a pair shares, and whether its tokenizer and ends of sequence use only those."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def vocabulary_fault(
    target: int, draft: int, tokens: Mapping[str, int], added: Collection[str], ends: Sequence[int]
) -> str | None:
    """What lies outside of the ids that models of vocabularies of size `target` and `draft` share; None if nothing.

    Padded vocabularies may differ: no token has the ids behind. But the target must be able to say every token of the
    tokenizer that it has, and to end: mass outside of the shared ids is cut off, silently. An `added` token that the
    target itself has no id for (a padding token of somebody's fine-tuning) can only come from a prompt, which is then
    refused by name, so that it may stay.
    """
    shared = min(target, draft)
    known = f"the models share ids 0 to {shared - 1:,}"
    if outside := [token for token in ends if not 0 <= token < shared]:
        return (
            f"end of sequence {outside[0]}: {known}, so that no text could end there; set the pair's key eos to ids or "
            "tokens that they share"
        )
    far = {token: i for token, i in tokens.items() if i >= shared and (i < target or token not in added)}
    if far:
        token, i = min(far.items(), key=lambda entry: entry[1])
        size = f"target {target:,}, draft {draft:,}"
        return f"{known} ({size}), but the tokenizer has {len(far):,} tokens behind, from {token!r} ({i}) on"
    return None
