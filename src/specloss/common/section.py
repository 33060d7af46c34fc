"""The base of all sections of a config."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, field_validator


class Section(BaseModel):
    """No unknown keys, no infinities, and no texts or truth values that pass for numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _nothing_is_converted(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        made = handler(value)
        if _is_converted(value, made):
            raise ValueError(f"should be written as {json.dumps(made)}")
        return made


def _is_converted(value: Any, made: Any) -> bool:
    """Whether a text or truth value was made something else; but YAML has `1e-3` as a text, which may be a number."""
    if isinstance(value, list) and isinstance(made, list):
        return any(map(_is_converted, value, made))
    if isinstance(value, str):
        return isinstance(made, int) or (isinstance(made, float) and "e" not in value.lower())
    return isinstance(value, bool) and not isinstance(made, bool) and isinstance(made, int | float)
