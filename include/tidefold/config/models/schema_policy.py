"""What may change in the columns of a log: `schema_evolution` of a log, and `aliases` and `default` of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from tidefold.domain.table.schema_evolution import ChangeKind, Policies, Policy
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.domain.table.table_spec_validation import Mistake
from tidefold.domain.table.type_conversion import parse_value
from tidefold.yaml_files.model import StrictModel, mistake

# Changes that only an edited configuration makes, and those that records can ask for as well.
_Configured: TypeAlias = Literal["evolve", "freeze"]
_Brought: TypeAlias = Literal["evolve", "quarantine", "freeze"]
_Added: TypeAlias = Literal["stop", "evolve", "quarantine", "freeze"]


class SchemaEntry(StrictModel):
    """The policy of each kind of change."""

    add: _Added = Field(default="stop", description="a new column, or a record with a column that is not configured")
    widen: _Configured = Field(default="evolve", description="a type that fits every value")
    rename: _Configured = Field(
        default="evolve", description="a new name for a column, with the old name among its aliases"
    )
    narrow: _Configured = Field(default="freeze", description="a type that fits only some values")
    drop: _Configured = Field(default="freeze", description="a column is removed")
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
