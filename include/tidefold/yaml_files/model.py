"""The base of all models of a file, and mistakes that a model's own validators find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Text = Annotated[str, Field(min_length=1)]
# The type of an error of pydantic that brings our own code, words and next step.
MISTAKE = "mistake"


class StrictModel(BaseModel):
    """A mapping of the file: unknown keys and lenient conversions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    # The page that explains the keys.
    page: ClassVar[str] = "docs/config.md"
    # Fields that the file does not name.
    implicit: ClassVar[tuple[str, ...]] = ()
    # Former name of a key -> its name now.
    renamed: ClassVar[Mapping[str, str]] = {}
    # Field with a pattern -> code, message and hint for a text that does not match it.
    mismatches: ClassVar[Mapping[str, tuple[str, str, str]]] = {}


def mistake(code: str, message: str, hint: str = "") -> PydanticCustomError:
    """An error for a validator to raise. The message continues the name of the key, as `is missing.`"""
    return PydanticCustomError(MISTAKE, "{message}", {"code": code, "message": message, "hint": hint})


def mistakes_below(errors: Mapping[tuple[str | int, ...], PydanticCustomError], value: Any) -> ValidationError:
    """One error for a validator to raise that names several places below its own."""
    details = [InitErrorDetails(type=error, loc=place, input=value) for place, error in errors.items()]
    return ValidationError.from_exception_data("value", details)


def spell_value(value: object) -> str:
    """Returns a value as YAML spells it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def suggest(word: object, known: Sequence[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """The hint that names the known word nearest to a mistyped one."""
    near = get_close_matches(str(word).lower(), known, n=1, cutoff=cutoff)
    return f"Did you mean `{near[0]}`?" if near else otherwise
