"""YAML 1.2 as plain values: the one way in which configs are read and shown. A key that stands twice is an error."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from specloss.common.files import FileError, read_text, shown_path
from specloss.common.oneline import OneLine

LARGEST = 1 << 20  # bytes of a config
PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float")}


class ConfigError(OneLine, ValueError):
    """Bad input; the message is one line fit for a user."""


class _Constructor(SafeConstructor):
    """ruamel's own, with both lines of a key that stands twice in the message; ruamel's has the second alone."""

    def check_mapping_key(self, node: MappingNode, key_node: Node, mapping: Any, key: Any, value: Any) -> bool:
        if key in mapping:
            nodes = [other for other, _ in node.value]
            before = [n for n in nodes[: nodes.index(key_node)] if self.construct_object(n, deep=True) == key]
            lines = f"{before[-1].start_mark.line + 1} and {key_node.start_mark.line + 1}"
            raise DuplicateKeyError(problem=f"key {key!r} stands twice, in lines {lines}; keep one of them")
        return True


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    return yaml


def read_yaml(path: Path | str) -> Any:
    """The plain values of a YAML file. ConfigError, in one line, if it cannot be read or names a key twice."""
    try:
        return _yaml().load(read_text(path, LARGEST))
    except FileError as error:
        raise ConfigError(str(error)) from None
    except DuplicateKeyError as error:
        raise ConfigError(f"{shown_path(path)}: {error.problem}") from None
    # what looks like a date and is none, a number of thousands of digits, a tag whose text does not fit it
    except (YAMLError, RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{shown_path(path)}: not YAML: {' '.join(str(error).split())}") from None


def as_written(value: Any) -> Any:
    """What the texts in lists and mappings would be in a YAML file: of `--config` Snakemake keeps them as texts."""
    if isinstance(value, Mapping):
        return {key: as_written(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [as_written(entry) for entry in value]
    if isinstance(value, str):
        yaml = _yaml()
        tag = str(yaml.resolver.resolve(ScalarNode, value, (True, False)))
        try:
            return yaml.constructor.construct_object(ScalarNode(tag, value)) if tag in PLAIN else value
        except ValueError:  # a number of thousands of digits
            return value
    return value


def yaml_text(values: Any, *, ordered: bool = False, flow: bool = False, width: int = 80) -> str:
    """Plain values as YAML, a line each, or with `flow` the innermost ones together in lines of up to `width`.

    Keys stay in their own order; `ordered` sorts them.
    """
    yaml: Any = _yaml()  # whose attributes say None as their type
    text = StringIO()
    yaml.sort_base_mapping_type_on_output = ordered
    yaml.default_flow_style, yaml.width = None if flow else False, width
    yaml.dump(values, text)
    return text.getvalue()
