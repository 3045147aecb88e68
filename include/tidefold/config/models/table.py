"""How a log becomes a table: its columns, its merge engine, and what happens when columns change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tidefold.config.models.units import count_seconds
from tidefold.domain.table.schema_evolution import ChangeKind, Policies, Policy
from tidefold.domain.table.table_spec import FILE, Deletes, Engine, Group, Merge, TableSpec
from tidefold.domain.table.table_spec_validation import Mistake, inexact
from tidefold.domain.table.types import PLAIN, SQL_NAMES, canonical, parse_type, parse_value
from tidefold.yaml_files.messages import StrictModel, Text, explain_unknown_value, mistake

_ENCODINGS = (
    *("base64", "string", "number", "boolean", "days", "iso", "micros", "millis", "seconds", "nanos"),
    *("base64url", "hex", "text", "json", "decimal"),
)
_TYPE = {
    "anyOf": [
        {"enum": list(PLAIN)},
        {"type": "string", "pattern": r"^(decimal\(\d{1,2}, ?\d{1,2}\)|array<[a-z0-9(), ]+>)$"},
    ],
    "description": "type of the column's values",
}
_SPAN = re.compile(r"[1-9]\d{0,8}[smhd]", re.ASCII)
# Apache Paimon's name of an engine -> ours. Ledgers, messages and reports have ours.
_PAIMON = {
    "deduplicate": Engine.LAST,
    "first-row": Engine.FIRST,
    "partial-update": Engine.PARTIAL,
    "aggregation": Engine.AGGREGATE,
}
# Changes that only an edited configuration makes, and those that records can ask for as well.
_Configured: TypeAlias = Literal["evolve", "freeze"]
_Brought: TypeAlias = Literal["evolve", "quarantine", "freeze"]
_Added: TypeAlias = Literal["stop", "evolve", "quarantine", "freeze"]


def _type(value: Any) -> Any:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    try:
        parse_type(canonical(value))
    except ValueError as error:
        code, message, hint = explain_unknown_value(value, str(error).removeprefix("types are: "))
        meant = SQL_NAMES.get(value.partition("(")[0].strip().lower())
        raise mistake(code, message, f"Did you mean `{meant}`?" if meant else hint) from error
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
        default="", description="how the source writes the values; docs/reference/debezium.md has a table"
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


class GroupEntry(StrictModel):
    """Columns that a partial update sets together."""

    columns: list[Text] = Field(min_length=1, description="columns that are updated together")
    order: list[Text] = Field(
        default=[], description="columns that decide whether they are newer than the stored values"
    )


def _read_engine(value: Any) -> Any:
    return _PAIMON.get(value, value) if isinstance(value, str) else value


def _read_merge(value: Any) -> Any:
    return {"engine": value} if isinstance(value, str) else value


class MergeEntry(StrictModel):
    """How several changes of one key become a row: the merge engine and its settings."""

    engine: Annotated[
        Engine,
        BeforeValidator(_read_engine),
        WithJsonSchema({"enum": [*Engine, *_PAIMON]}),
    ] = Field(
        default=Engine.LAST,
        strict=False,
        description="last, first, partial, aggregate, history or append; the first four may also be written with "
        "Apache Paimon's names: deduplicate, first-row, partial-update and aggregation",
    )
    deletes: Deletes | None = Field(
        default=None, strict=False, description="apply, ignore or quarantine; default: apply if that gives exact rows"
    )
    groups: list[GroupEntry] = Field(default=[], description="partial updates: columns with an order of their own")
    aggregates: dict[str, Text] = Field(default={}, description="column: function that merges its values")

    def merge(self, source_ordered: bool) -> Merge:
        """Returns the merge rules in the form that the fold uses."""
        groups = tuple(Group(tuple(g.columns), tuple(g.order)) for g in self.groups)
        merge = Merge(self.engine, self.deletes or Deletes.APPLY, groups, tuple(sorted(self.aggregates.items())))
        exact = self.deletes or not inexact(merge, source_ordered)
        return merge if exact else replace(merge, deletes=Deletes.QUARANTINE)


# For the JSON Schema.
_MergeInput = MergeEntry | Engine | Literal["deduplicate", "first-row", "partial-update", "aggregation"]
MergeValue = Annotated[MergeEntry, BeforeValidator(_read_merge, json_schema_input_type=_MergeInput)]


def _check_span(value: Any) -> Any:
    if (type(value) is int and value > 0) or (isinstance(value, str) and _SPAN.fullmatch(value)):
        return value
    message = "must be a time such as 36h or 7d, or a whole number greater than zero."
    raise mistake("CONFIG_WRONG_TYPE", message)


class LateEntry(StrictModel):
    """How long deletes are remembered, and how older changes are handled."""

    renamed: ClassVar[Mapping[str, str]] = {"horizon": "allowed_lateness"}

    allowed_lateness: Annotated[
        Any,
        BeforeValidator(_check_span),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"pattern": f"^{_SPAN.pattern}$"}]}),
    ] = Field(
        description="how far below the highest order a change may lie, and how long deletes are remembered: 36h, 7d, "
        "or a whole number"
    )
    policy: Literal["accept", "quarantine"] = Field(
        default="quarantine", description="how an older change is handled: quarantined, or accepted and folded"
    )

    def lateness(self, type_: str) -> int | None:
        """The allowed lateness in the unit of a column's order numbers; None when it does not fit the type."""
        if isinstance(self.allowed_lateness, int):
            return self.allowed_lateness if type_ in ("int", "long") else None
        seconds = count_seconds(self.allowed_lateness)
        if type_ == "date":
            return seconds // 86_400 if seconds % 86_400 == 0 else None
        return seconds * 1_000_000 if type_ == "timestamp" else None


def _ordering(value: Any) -> Any:
    if value == FILE:
        return [FILE]
    if isinstance(value, str) or (isinstance(value, list) and value and all(isinstance(v, str) and v for v in value)):
        return value
    raise mistake("CONFIG_WRONG_TYPE", "must be the name of an order, or a list of columns.")


OrderValue = Annotated[
    Any,
    BeforeValidator(_ordering),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class SchemaEntry(StrictModel):
    """The policy of each kind of change."""

    add: _Added = Field(default="stop", description="a new column, or a record with a column that is not configured")
    widen: _Configured = Field(default="evolve", description="a type that fits every value")
    rename: _Configured = Field(
        default="evolve", description="a new name for a column, with the old name among its aliases"
    )
    narrow: _Configured = Field(default="freeze", description="a type that fits only some values")
    drop: _Configured = Field(default="freeze", description="a column is removed")
    read: _Configured = Field(
        default="freeze",
        description="an option of the source, or an encoding, that reads values in another way; rows in the log stay",
    )
    retype: _Brought = Field(default="quarantine", description="another type, or a record with a value of another type")

    @property
    def policies(self) -> Policies:
        """Returns the policies in the form that the ledger's checks use."""
        return Policies(**{kind: Policy(getattr(self, kind)) for kind in ChangeKind})


def _short(value: Any) -> Any:
    if value == "quarantine":
        hint = "Write it for each kind of change: `schema_evolution: {add: quarantine}`."
        raise mistake("CONFIG_UNKNOWN_VALUE", "accepts `quarantine` only for `add` and `retype`.", hint)
    return {kind.value: value for kind in ChangeKind} if value in ("evolve", "freeze") else value


SchemaValue = Annotated[
    SchemaEntry, BeforeValidator(_short, json_schema_input_type=SchemaEntry | Literal["evolve", "freeze"])
]


def change_mistakes(shape: TableSpec) -> Iterator[Mistake]:
    """Yields ambiguous aliases, and defaults that are not a value of the column or have no exact meaning."""
    taken = {column.name.casefold(): column.name for column in shape.columns}
    for column in shape.columns:
        for i, alias in enumerate(column.aliases):
            other = taken.setdefault(alias.casefold(), column.name)
            if other != column.name or alias in (column.name, *column.aliases[:i]):
                hint = "A former name can belong to one column only."
                yield "COLUMN_ALIAS", ("columns", column.name, "aliases", i), f"is already a name of `{other}`.", hint
    for column in shape.columns:
        if column.name in shape.key and column.encoding in ("json", "decimal") and column.type == "string":
            hint = "Leave `encoding` out. The values of key columns are read as text."
            yield "COLUMN_ENCODING", ("columns", column.name, "encoding"), "is not allowed for a key column.", hint
    for i, name in enumerate(shape.ignored):
        if name.casefold() in taken:
            hint = "Remove it from `ignored` or from `columns`."
            yield "COLUMN_IGNORED", ("ignored", i), f"is also column `{taken[name.casefold()]}` of the log.", hint
    yield from _defaults(shape)


def _defaults(shape: TableSpec) -> Iterator[Mistake]:
    for column in (c for c in shape.columns if c.may_lack):
        at = ("columns", column.name, "default")
        if column.name in shape.key:
            yield (
                "COLUMN_DEFAULT",
                at,
                "has no effect: a key column exists from the beginning.",
                "Remove it.",
            )
        elif column.optional:
            continue
        elif shape.merge.engine in (Engine.PARTIAL, Engine.AGGREGATE):
            hint = "Remove it. Existing rows have null until a change sets the column."
            yield "COLUMN_DEFAULT", at, f"has no exact meaning with the engine `{shape.merge.engine}`.", hint
        else:
            yield from _value(column.type, column.default or "", at)


def _value(type_: str, text: str, at: tuple[str, ...]) -> Iterator[Mistake]:
    try:
        parse_value(type_, text)
    except ValueError as error:
        hint = "For example 0, 1.50, true, 2026-01-31, 2026-01-31T12:00:00Z."
        yield "COLUMN_DEFAULT", at, f"does not fit: {error}.", hint
