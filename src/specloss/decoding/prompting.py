"""From an item to the text and the token ids that both models are given.

Raw prompts are tokenized as the tokenizer does by itself. Messages go through the chat template of the target's
tokenizer, with the turn of the assistant opened. Either way the ids begin with exactly one beginning-of-sequence token
if the tokenizer has models that want one (a template may write it, and a tokenizer may add another), and they do not
depend on the day on which they are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from specloss.benchmarks import Item

TODAY = date(2024, 7, 26)  # for templates that write the date (Llama 3.2): a rerun must have the same tokens
_FORMATS = "".join(f" | replace('%{code}', '{TODAY:%{code}}')" for code in "aAbBdjmyYHIMpS")
# before a template: takes the place of the function that would give the real date
_TODAY_MACRO = f"{{% macro strftime_now(form) %}}{{{{ form{_FORMATS} }}}}{{% endmacro %}}"


class PromptError(ValueError):
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
