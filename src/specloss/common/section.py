"""The base of all sections of a config."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import UnionType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from specloss.common.address import has_secret
from specloss.common.files import shown_path
from specloss.common.yamlfile import ConfigError, as_written


class Section(BaseModel):
    """No unknown keys, no infinities, and nothing is converted: no texts or truth values that pass for numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


M = TypeVar("M", bound=Section)
MOST_VALUES = 100_000  # of a config
# what YAML calls them; `yes`, `no`, `on` and `off` are texts in YAML 1.2
WANTED = {
    "int_type": "Input should be a whole number",
    "float_type": "Input should be a number",
    "bool_type": "Input should be true or false",
}
_SECRETS = (
    "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or all of MLFLOW_TRACKING_URI, in the environment"
)


def validated(model: type[M], values: Any, source: str) -> M:
    """Plain values as `model`, the model of a whole config file. ConfigError, in one line, on the first fault."""
    source = shown_path(source)
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: expected a mapping of keys at the top, got {type(values).__name__}")
    if fault := _unfit(values):
        raise ConfigError(f"{source}: {fault}")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_one_line(error, model, values)}") from None


def _unfit(values: Any) -> str | None:
    """What no key can have, in words: texts that no file holds, and values without end, which aliases can make."""
    left = [(values, "")]
    for count, (value, at) in enumerate(left):
        if count > MOST_VALUES:
            return f"it has more than {MOST_VALUES:,} values (an alias within itself?)"
        if isinstance(value, str) and ("\0" in value or not _encodes(value)):
            return f"{at}: {_shown(value)} has a character that no file name or text can have"
        if isinstance(value, str) and has_secret(value):
            return f"{at or 'a key'}: an address with a password or token, which the results would show; {_SECRETS}"
        if isinstance(value, int) and abs(value) >= 2**63:
            return f"{at}: a whole number must be below 2^63, got {_shown(value)}"
        if isinstance(value, Mapping):
            left += [(key, at) for key in value] + [(entry, f"{at}.{key}".lstrip(".")) for key, entry in value.items()]
        elif isinstance(value, list | tuple | set):
            left += [(entry, f"{at}[{number}]") for number, entry in enumerate(value)]
    return None


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _shown(value: Any) -> str:
    """A value in a message, on one line and short."""
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."


def _one_line(error: ValidationError, model: type[Section], values: Any) -> str:
    """The first fault, unknown keys first (a misspelt key also makes the right one missing)."""
    faults: dict[tuple[int | str, ...], list[Any]] = {}  # by place; where a key may have several types, one for each
    for fault in sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden"):
        place = fault["loc"] if fault["type"] == "missing" else _place(values, fault["loc"])
        faults.setdefault(place, []).append(fault)
    place, (fault, *others) = next(iter(faults.items()))
    at = ".".join(str(part) for part in place)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    if fault["type"] == "extra_forbidden":
        known = _fields_at(model, fault["loc"][:-1])
        near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1, cutoff=0)
        return f"unknown key {at!r}; did you mean {near[0]!r}?{more}" if near else f"unknown key {at!r}{more}"
    if fault["type"] == "missing":
        return f"key {at!r} is missing{more}"
    wanted = [_wanted(fault), *(_wanted(other).removeprefix("Input should be ") for other in others)]
    value = fault["input"]
    typed = any(one["type"] in WANTED for one in (fault, *others))
    quoted = typed and isinstance(value, str) and isinstance(as_written(value), int | float)
    hint = ", a text: write it without quotes" if quoted else ""
    return f"{at}: {' or '.join(dict.fromkeys(wanted))}, got {_shown(value)}{hint}{more}"


def _wanted(fault: Any) -> str:
    return WANTED.get(fault["type"], fault["msg"].removeprefix("Value error, "))


def _place(values: Any, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """A fault's location as far as the values have it: pydantic adds the type that it tried, of several."""
    for depth, part in enumerate(location):
        try:
            values = values[part]
        except (LookupError, TypeError):
            return location[:depth]
    return location


def _fields_at(model: type[Section], location: tuple[int | str, ...]) -> list[str]:
    """The keys that `model` knows at a place in its values; none where there is no section."""
    found: Any = model
    for part in location:
        if isinstance(found, type) and issubclass(found, Section):
            field = found.model_fields.get(str(part))
            found = field.annotation if field else None
            if isinstance(found, UnionType):  # Section | None
                found = get_args(found)[0]
        else:  # dict[str, Section], list[Section]
            found = (get_args(found) or (None,))[-1]
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, Section) else []
