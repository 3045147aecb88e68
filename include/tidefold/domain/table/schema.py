"""The schemas of a log over time, and how rows of an older schema become rows of a newer one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidefold.domain.table.table_spec import Column, TableSpec, rename_columns

if TYPE_CHECKING:
    from tidefold.domain.log_state import LogState

# The schema of a log whose columns never changed.
FIRST = 1


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a log from some time on.

    ids: a permanent number for each column. A renamed column keeps its number; one that is dropped and added again
        gets a new one.
    instant, run: when it began, and with which run, for people.
    found: the numbers of columns that came from the source and are not configured.
    """

    id: int
    columns: tuple[Column, ...]
    ids: tuple[int, ...]
    instant: str = ""
    run: str = ""
    found: tuple[int, ...] = ()

    @property
    def named(self) -> dict[str, int]:
        """The id of each column, by its name."""
        return {column.name: number for column, number in zip(self.columns, self.ids, strict=True)}


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Where the values of a column come from in rows of an older schema.

    name: its name in the older schema; None: it did not exist.
    types: its types since then, the current one last.
    default: its value in rows older than the column.
    """

    name: str | None
    types: tuple[str, ...]
    default: str | None = None

    def is_same(self, column: Column) -> bool:
        """Whether a file can stay as it is. A file without the column shows null for it, under any name."""
        if self.name is None:
            return self.default is None
        return self.name == column.name and len(set(self.types)) == 1


def first_schema(columns: tuple[Column, ...]) -> Schema:
    """Returns the schema that a log begins with."""
    return Schema(FIRST, tuple(map(without_source_details, columns)), tuple(range(1, len(columns) + 1)))


def without_source_details(column: Column) -> Column:
    """Returns a column without the settings of its source: only what concerns its values in the table."""
    return replace(column, encoding="", aliases=(), optional=False)


def schemas_of(state: LogState) -> tuple[Schema, ...]:
    """Returns all known schemas of a log, oldest first; at least one."""
    return state.schemas or (first_schema(state.shape.columns),)


def shape_at(state: LogState, schema: int) -> TableSpec:
    """Returns the table definition of the log with this schema."""
    known = schemas_of(state)
    newest, wanted = known[-1], schema_of(known, schema)
    if wanted.id == newest.id:
        return state.shape
    there = {number: column.name for column, number in zip(wanted.columns, wanted.ids, strict=True)}
    names = {name: there[number] for name, number in newest.named.items() if number in there}
    return rename_columns(state.shape, wanted.columns, names)


def schema_of(schemas: Sequence[Schema], schema: int) -> Schema:
    """Returns the schema of that id."""
    return next(s for s in schemas if s.id == schema)


def column_origins(schemas: Sequence[Schema], older: int, newer: int) -> dict[str, ColumnOrigin]:
    """Returns the origin of each column of the newer schema in rows of the older one; empty: both are the same."""
    if older == newer or not schemas:
        return {}
    line = [s for s in schemas if older <= s.id <= newer]
    return {name: _former(line, number) for name, number in line[-1].named.items()}


def _former(line: Sequence[Schema], number: int) -> ColumnOrigin:
    having = [s.columns[s.ids.index(number)] for s in line if number in s.ids]
    types = tuple(column.type for column in having)
    there = number in line[0].ids
    return ColumnOrigin(having[0].name, types) if there else ColumnOrigin(None, types, having[0].default)


def must_rewrite(schemas: Sequence[Schema], older: int, newer: int) -> bool:
    """Whether files with rows of the older schema would show wrong values under the newer one."""
    if older == newer or not schemas:
        return False
    before, after = schema_of(schemas, older), schema_of(schemas, newer)
    # A dropped column is removed from the files too, because a later column may have the same name.
    if set(before.ids) - set(after.ids):
        return True
    found = column_origins(schemas, older, newer)
    return not all(found[column.name].is_same(column) for column in after.columns)


def find_dropped_columns(schemas: Sequence[Schema], older: int, newer: int) -> tuple[str, ...]:
    """Returns the columns of the older schema that the newer one lacks."""
    if older == newer or not schemas:
        return ()
    kept = schema_of(schemas, newer).ids
    return tuple(name for name, number in schema_of(schemas, older).named.items() if number not in kept)
