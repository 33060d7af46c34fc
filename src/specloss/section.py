"""The base of all sections of a config."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """No unknown keys, no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
