"""The columns of a log as `tidefold.yaml` has them: `name: type`, or `name: {type: ..., encoding: ...}`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tidefold.domain.table.types import PLAIN, canonical, parse_type
from tidefold.yaml_files.messages import explain_unknown_value
from tidefold.yaml_files.model import StrictModel, Text, mistake

_ENCODINGS = (
    *("base64", "string", "number", "boolean", "days", "iso", "micros", "millis", "nanos", "base64url", "hex"),
    *("text", "json", "decimal"),
)
_TYPE = {
    "anyOf": [
        {"enum": list(PLAIN)},
        {"type": "string", "pattern": r"^(decimal\(\d{1,2}, ?\d{1,2}\)|array<[a-z0-9(), ]+>)$"},
    ],
    "description": "type of the column's values",
}


def _type(value: Any) -> Any:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    try:
        parse_type(canonical(value))
    except ValueError as error:
        problem = explain_unknown_value(value, str(error).removeprefix("types are: "))
        raise mistake(*problem) from error
    return canonical(value)


ColumnType = Annotated[str, BeforeValidator(_type), WithJsonSchema(_TYPE)]


def _default(value: Any) -> Any:
    """Returns the default as text. YAML parses numbers and `true`, but only the column's type gives them a meaning."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


DefaultValue = Annotated[str, BeforeValidator(_default), WithJsonSchema({"type": ["string", "number", "boolean"]})]


class ColumnEntry(StrictModel):
    """A column with its type, and how the source writes its values."""

    type: ColumnType
    encoding: Annotated[str, WithJsonSchema({"enum": list(_ENCODINGS)})] = Field(
        default="", description="how the source writes the values; docs/debezium.md has a table"
    )
    aliases: list[Text] = Field(default=[], description="former names, under which records may still bring the column")
    default: DefaultValue | None = Field(
        default=None,
        description="value in rows older than the column, and in records that lack it; null: these have null",
    )
    comment: Text | None = Field(default=None, description="description of the column, for readers of the table")

    @property
    def optional(self) -> bool:
        """Whether records may lack the column: `default: null` allows it, no `default` does not."""
        return "default" in self.model_fields_set and self.default is None


def _column(value: Any) -> Any:
    if isinstance(value, dict):
        return ColumnEntry.model_validate(value)
    return ColumnEntry(type=_type(value))


ColumnValue = Annotated[
    ColumnEntry, BeforeValidator(_column), WithJsonSchema({"anyOf": [_TYPE, ColumnEntry.model_json_schema()]})
]
