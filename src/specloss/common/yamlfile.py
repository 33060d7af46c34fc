"""YAML files as plain values: the one way in which configs are read. A key that stands twice is an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from specloss.common.files import FileError, read_text, shown_path
from specloss.common.oneline import OneLine

LARGEST = 1 << 20  # bytes of a config
PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float")}


class ConfigError(OneLine, ValueError):
    """Bad input; the message is one line fit for a user."""


def read_yaml(path: Path | str) -> Any:
    """The plain values of a YAML file. ConfigError, in one line, if it cannot be read or names a key twice."""
    try:
        loader = yaml.SafeLoader(read_text(path, LARGEST))
        root = loader.get_single_node()
        if twin := _twin(root):
            raise ConfigError(f"{shown_path(path)}: {twin}")
        return loader.construct_document(root) if root else None
    except FileError as error:
        raise ConfigError(str(error)) from None
    except ConfigError:
        raise
    # ValueError: what looks like a date and is none, or like a number and has thousands of digits
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{shown_path(path)}: not YAML: {' '.join(str(error).split())}") from None


def as_written(value: Any) -> Any:
    """What the texts in lists and mappings would be in a YAML file: of `--config` Snakemake keeps them as texts."""
    if isinstance(value, Mapping):
        return {key: as_written(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [as_written(entry) for entry in value]
    if isinstance(value, str):
        loader = yaml.SafeLoader("")
        tag = loader.resolve(yaml.ScalarNode, value, (True, False))
        return loader.construct_object(yaml.ScalarNode(tag, value)) if tag in PLAIN else value
    return value


def _twin(root: yaml.Node | None) -> str | None:
    """The first key that a mapping has twice, at any depth, in words: of two, YAML's readers silently take the last."""
    left, seen = [(root, "")], set()
    for node, at in left:
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += [(entry, f"{at}[{number}]") for number, entry in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                name, line = f"{at}.{key.value}".lstrip("."), key.start_mark.line + 1
                if (same := f"{key.tag} {key.value}") in lines:
                    return f"key {name!r} stands twice, in lines {lines[same]} and {line}; keep one of them"
                lines[same] = line
                left.append((value, name))
    return None
