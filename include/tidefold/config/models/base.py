"""What all mappings of `tidefold.yaml` have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]


class Entry(BaseModel):
    """A mapping of the file: unknown keys and lenient conversions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
