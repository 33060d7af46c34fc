"""From an item to the text and token ids that both models get: one way, for benchmarks and the API alike.

Raw prompts are tokenized as the tokenizer does by default. Messages go through the chat template of the target's
tokenizer, with the turn of the assistant opened. Either way the ids begin with exactly one beginning-of-sequence token
if the tokenizer has models that want one (a template may write it, and a tokenizer may add another), and they do not
depend on the day on which they are made.

A template may have no system role: it refuses such a message (Gemma, early Mistral) or drops it. The system's text is
then put at the start of the first user's turn.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import takewhile
from typing import Any, NamedTuple

from specloss.benchmarks import Item
from specloss.common.oneline import OneLine
from specloss.models.checkpoint import locate
from specloss.models.context import pair_context

TODAY = date(2024, 7, 26)  # for templates that write the date (Llama 3.2): a rerun must have the same tokens
_TURNS = 500  # tokens that a template may add to a chat of a few messages
_FORMATS = "".join(f" | replace('%{code}', '{TODAY:%{code}}')" for code in "aAbBdjmyYHIMpS")
# before a template: takes the place of the function that would give the real date
_TODAY_MACRO = f"{{% macro strftime_now(form) %}}{{{{ form{_FORMATS} }}}}{{% endmacro %}}"


Messages = Sequence[Mapping[str, str]]
_PROBE = "Sesquipedalian"


class PromptError(OneLine, ValueError):
    """An item that cannot become a prompt; the message is one line meant for users."""


class Encoded(NamedTuple):
    """A prompt. `system_text` says where the template puts the system's text; None without a system message."""

    text: str
    ids: list[int]
    system_text: str | None = None


def encode(tokenizer: Any, item: Item, chat: str = "template") -> tuple[str, list[int]]:
    """(text, token ids) of an item's prompt under a tokenizer of transformers.

    `chat` is how messages become text: `template`, or `plain`: their contents with an empty line between them.
    PromptError for messages and a tokenizer without a chat template, or with one that refuses them.
    """
    return prepare(tokenizer, item, chat)[:2]


def prepare(tokenizer: Any, item: Item, chat: str = "template") -> Encoded:
    """As `encode`, and says where the system's message went."""
    if not item.messages:
        text = item.prompt or ""
        return Encoded(text, tokenize(tokenizer, text))
    if chat == "plain":
        text = "\n\n".join(message["content"] for message in item.messages)
        return Encoded(text, tokenize(tokenizer, text))
    text, system_text = _render(tokenizer, item.messages, item.where or item.id)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return Encoded(text, _one_beginning(tokenizer, ids, added=tokenizer("a").input_ids[:1]), system_text)


def tokenize(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a raw prompt, or of a chat that is already rendered."""
    return _one_beginning(tokenizer, tokenizer(text).input_ids)


def check_prompts(
    items: Sequence[Item],
    chat: str,
    kind: str,
    target: str,
    draft: str,
    trust_remote_code: bool = False,
    context: int | None = None,
) -> None:
    """Encode what may not fit, if the target is a local folder; of others the tokens are known once it is loaded.

    PromptError for a chat that its tokenizer has no template for, and for a prompt that does not fit the context of the
    pair, of this `kind` and with this `context` of its own, as far as its models are local.
    """
    checkpoint = locate(target)
    found = [x.config if x.local and not x.gguf else None for x in (checkpoint, locate(draft))]
    if found[0] is None:
        return
    context = pair_context(kind, *found, context)
    doubtful = [item for number, item in enumerate(items) if _doubtful(item, context, chat, first=number == 0)]
    if not doubtful:
        return
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint.place, trust_remote_code=trust_remote_code)
    tokenizer.model_max_length = sys.maxsize  # or it would warn, beside our own error
    for item in doubtful:
        check_length(item, len(encode(tokenizer, item, chat)[1]), context)


def check_length(item: Item, tokens: int, context: int) -> None:
    """PromptError for a prompt without tokens, or without room for one more behind it."""
    if not 0 < tokens < context:
        raise PromptError(
            f"{item.where or item.id}: the prompt has {tokens} tokens; it must have between 1 and {context - 1}, one "
            "less than the models' context"
        )


def _doubtful(item: Item, context: int, chat: str, first: bool) -> bool:
    """Whether a prompt must be encoded to know that it fits: no tokenizer makes more tokens than there are bytes."""
    texts = [message["content"] for message in item.messages] or [item.prompt or ""]
    templated = bool(item.messages) and chat == "template"
    return (first and templated) or sum(len(text.encode()) + 8 for text in texts) + _TURNS * templated >= context


def _render(tokenizer: Any, messages: Messages, where: str) -> tuple[str, str | None]:
    """The text of the chat template, the assistant's turn opened, and where it has the system's text, if there is any.

    PromptError begins with `where`.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            f"{where}: the prompt is a chat, but the target's tokenizer has no chat template; use an instruct model, "
            "or set the benchmark's key 'chat' to 'plain'"
        )
    system = [message["content"] for message in takewhile(lambda message: message["role"] == "system", messages)]
    try:
        try:
            text = _applied(tokenizer, messages)
        except Exception:
            if not system or _has_system_role(tokenizer):
                raise
        else:
            if all(said.strip() in text for said in system) or _has_system_role(tokenizer):
                return text, "own role" if system else None
        return _applied(tokenizer, _told_by_the_user(messages, system)), "before the first user message"
    except Exception as error:  # a template can raise whatever it likes
        raise PromptError(f"{where}: the target's chat template fails: {' '.join(str(error).split())}") from None


def _applied(tokenizer: Any, messages: Messages) -> str:
    template = tokenizer.get_chat_template()
    return tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        chat_template=_TODAY_MACRO + template if "strftime_now" in template else template,
        tokenize=False,
        add_generation_prompt=True,
        date_string=TODAY.strftime("%d %b %Y"),
    )


def _has_system_role(tokenizer: Any) -> bool:
    """Whether the template writes what a system message says."""
    try:
        return _PROBE in _applied(tokenizer, [{"role": "system", "content": _PROBE}, {"role": "user", "content": "a"}])
    except Exception:  # a template can raise whatever it likes
        return False


def _told_by_the_user(messages: Messages, system: Sequence[str]) -> Messages:
    """The messages without the leading system's, whose texts stand before the first user's."""
    others = [dict(message) for message in messages[len(system) :]]
    first = next((message for message in others if message["role"] == "user"), None)
    if first is None:
        raise ValueError("it has no system role, and there is no user message to put the system's text into")
    first["content"] = "\n\n".join([*system, first["content"]])
    return others


def _one_beginning(tokenizer: Any, ids: list[int], added: Sequence[int] = ()) -> list[int]:
    """`ids` with one beginning-of-sequence token where there are several, or none where the tokenizer adds one."""
    begin = tokenizer.bos_token_id
    if begin is None:
        return ids
    start = next((place for place, token in enumerate(ids) if token != begin), len(ids))
    wanted = start > 0 or list(added) == [begin]
    return [begin] * wanted + ids[start:]
