"""From an item to the text and the token ids that both models are given.

Raw prompts are tokenized as the tokenizer does by itself. Messages go through the chat template of the target's
tokenizer, with the turn of the assistant opened. Either way the ids begin with exactly one beginning-of-sequence token
if the tokenizer has models that want one (a template may write it, and a tokenizer may add another), and they do not
depend on the day on which they are made.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from specloss.benchmarks import Item
from specloss.models.checkpoint import Checkpoint, locate
from specloss.oneline import OneLine

TODAY = date(2024, 7, 26)  # for templates that write the date (Llama 3.2): a rerun must have the same tokens
_TURNS = 500  # tokens that a template may add to a chat of a few messages
_FORMATS = "".join(f" | replace('%{code}', '{TODAY:%{code}}')" for code in "aAbBdjmyYHIMpS")
# before a template: takes the place of the function that would give the real date
_TODAY_MACRO = f"{{% macro strftime_now(form) %}}{{{{ form{_FORMATS} }}}}{{% endmacro %}}"


class PromptError(OneLine, ValueError):
    """An item that cannot become a prompt; the message is one line fit for a user."""


def encode(tokenizer: Any, item: Item, chat: str = "template") -> tuple[str, list[int]]:
    """(text, token ids) of an item's prompt under a tokenizer of transformers.

    `chat` is how messages become text: `template`, or `plain`: their contents with an empty line between them.
    PromptError for messages and a tokenizer without a chat template, or with one that refuses them.
    """
    if not item.messages:
        text = item.prompt or ""
        return text, _one_beginning(tokenizer, tokenizer(text).input_ids)
    if chat == "plain":
        text = "\n\n".join(message["content"] for message in item.messages)
        return text, _one_beginning(tokenizer, tokenizer(text).input_ids)
    text = render(tokenizer, item.messages, item.where or item.id)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return text, _one_beginning(tokenizer, ids, added=tokenizer("a").input_ids[:1])


def check_prompts(items: Sequence[Item], chat: str, target: str, draft: str, trust_remote_code: bool = False) -> None:
    """Encode what may not fit, if the target is a local folder; of others the tokens are known once it is loaded.

    PromptError for a chat that its tokenizer has no template for, and for a prompt that does not fit the contexts of
    target and draft, as far as they are local.
    """
    checkpoint = locate(target)
    contexts = [_context(found) for found in (checkpoint, locate(draft)) if found.local and not found.gguf]
    if not checkpoint.local or checkpoint.gguf or not contexts:
        return
    context = min(contexts)
    doubtful = [item for number, item in enumerate(items) if _doubtful(item, context, chat, first=number == 0)]
    if not doubtful:
        return
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint.place, trust_remote_code=trust_remote_code)
    tokenizer.model_max_length = sys.maxsize  # or it would warn, beside our own error
    for item in doubtful:
        check_length(item, len(encode(tokenizer, item, chat)[1]), context)


def check_length(item: Item, tokens: int, context: float) -> None:
    """PromptError for a prompt without tokens, or without room for one more behind it."""
    if not 0 < tokens < context:
        raise PromptError(
            f"{item.where or item.id}: the prompt has {tokens} tokens; it must have between 1 and {context - 1}, one "
            "less than the models' context"
        )


def _doubtful(item: Item, context: float, chat: str, first: bool) -> bool:
    """Whether a prompt must be encoded to know that it is good: no tokenizer makes more tokens than there are bytes."""
    texts = [message["content"] for message in item.messages] or [item.prompt or ""]
    templated = bool(item.messages) and chat == "template"
    return (first and templated) or sum(len(text.encode()) + 8 for text in texts) + _TURNS * templated >= context


def _context(checkpoint: Checkpoint) -> float:
    config = checkpoint.config.get("text_config") or checkpoint.config
    return config.get("max_position_embeddings") or float("inf")


def render(tokenizer: Any, messages: Sequence[Mapping[str, str]], where: str) -> str:
    """The text of the chat template, the assistant's turn opened. PromptError begins with `where`."""
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            f"{where}: the prompt is a chat, but the target's tokenizer has no chat template; use an instruct model, "
            "or set the benchmark's key 'chat' to 'plain'"
        )
    try:
        template = tokenizer.get_chat_template()
        return tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            chat_template=_TODAY_MACRO + template if "strftime_now" in template else template,
            tokenize=False,
            add_generation_prompt=True,
            date_string=TODAY.strftime("%d %b %Y"),
        )
    except Exception as error:  # a template can raise whatever it likes
        raise PromptError(f"{where}: the target's chat template fails: {' '.join(str(error).split())}") from None


def _one_beginning(tokenizer: Any, ids: list[int], added: Sequence[int] = ()) -> list[int]:
    """`ids` with one beginning-of-sequence token where there are several, or none where the tokenizer adds one."""
    begin = tokenizer.bos_token_id
    if begin is None:
        return ids
    start = next((place for place, token in enumerate(ids) if token != begin), len(ids))
    wanted = start > 0 or list(added) == [begin]
    return [begin] * wanted + ids[start:]
