"""What the documentation takes from the code: `{{ facts: RULE }}` becomes the rule's parameter and options."""

from __future__ import annotations

import re
from typing import Any

from specloss.verification import RULES, TREE_FORMS, valid_options, valid_tree_options


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return re.sub(r"\{\{ facts: (\w+) \}\}", lambda found: facts(found[1]), markdown)


def facts(name: str) -> str:
    """The registry's line for a rule, as a Markdown table."""
    spec = RULES[name]
    rows = []
    if spec.param:
        grid = ", ".join(f"{value:g}" for value in spec.grid if value is not None)
        tried = f"the paper's grid: {grid}" if spec.in_paper else f"values to start with: {grid}"
        rows.append(("parameter", f"`{spec.valid.describe(spec.param)}`; {tried}"))
    else:
        rows.append(("parameter", "none"))
    rows += [("option", _option(key, option)) for key, option in valid_options(name).items()]
    if name in TREE_FORMS:
        known = valid_options(name)
        extra = {key: option for key, option in valid_tree_options(name).items() if key not in known}
        rows += [("option on trees", _option(key, option)) for key, option in extra.items()]
    rows.append(("matched baseline", f"`{spec.matched_baseline}`" if spec.matched_baseline else "none"))
    rows.append(("form on trees", "yes" if name in TREE_FORMS else "no"))
    return "\n".join(["| | |", "| --- | --- |", *(f"| {head} | {text} |" for head, text in rows)])


def _option(key: str, option: Any) -> str:
    valid = option.valid
    words = " or ".join(f"`{word}`" for word in valid) if isinstance(valid, tuple) else f"`{valid.describe(key)}`"
    default = "computed by the rule" if option.default is None else f"`{option.default}`"
    return f"`{key}`: {words}; default {default}"
