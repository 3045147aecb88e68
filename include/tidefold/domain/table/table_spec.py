"""The shape of a log: its key, its columns, what orders its changes, and how changes of one key are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

# Orders: a connector's own (source positions that never go back), the place in the stream of who writes the log, the
# offset alone, the version of a Delta table, or columns of the rows.
POSTGRESQL, MYSQL, MARIADB = "postgresql", "mysql", "mariadb"
SQLSERVER, ORACLE, MONGODB = EXPERIMENTAL = ("sqlserver", "oracle", "mongodb")
ARRIVAL, POSITION, VERSION, COLUMNS = "arrival", "position", "version", "columns"
# In `order`: the time in the name of the file, or its number; no column.
FILE = "file"
# How many numbers make up an order of each kind; of `columns` as many as there are.
ORDER_WIDTH = {
    POSTGRESQL: 2,
    MYSQL: 3,
    MARIADB: 3,
    ARRIVAL: 1,
    POSITION: 0,
    VERSION: 2,
    SQLSERVER: 5,
    ORACLE: 1,
    MONGODB: 2,
}

# System columns of a table, where its engine needs them: the place of the change that made the row, as a list of whole
# numbers, and from when to when a version of it was valid.
ORDER, VALID_FROM, VALID_TO = "_order", "_valid_from", "_valid_to"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a log's table.

    name, type: see `domain.table.types`.
    encoding: how the source writes its values; empty: in the usual way for the type.
    aliases: former names, under which records may still bring it.
    default: its value, as text, in rows from before the column.
    optional: a record may lack it; the value is then null.
    """

    name: str
    type: str
    encoding: str = ""
    aliases: tuple[str, ...] = ()
    default: str | None = None
    optional: bool = False

    @property
    def may_lack(self) -> bool:
        """Whether a record may come without it."""
        return self.optional or self.default is not None


class Engine(StrEnum):
    """How several changes of one key become a row.

    `last`: the change with the highest position is the row.
    `first`: the change with the lowest position is the row.
    `partial`: each column has its last given value.
    `aggregate`: a function for each column merges the values.
    `history`: each change is a version with its time of validity.
    `append`: there is no key, and every change is a row.
    """

    LAST = "last"
    FIRST = "first"
    PARTIAL = "partial"
    AGGREGATE = "aggregate"
    HISTORY = "history"
    APPEND = "append"


class Deletes(StrEnum):
    """How a delete is handled: it removes the row, does not count, or is quarantined."""

    APPLY = "apply"
    IGNORE = "ignore"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Group:
    """Columns updated together, by the order that `order` columns of the same change say; none: by its place."""

    columns: tuple[str, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """How changes of one key are merged. `groups` are for partial updates, `aggregates` name (column, function)."""

    engine: Engine = Engine.LAST
    deletes: Deletes = Deletes.APPLY
    groups: tuple[Group, ...] = ()
    aggregates: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The definition of a log's table. It never changes silently.

    key: names of the key columns; empty: rows have no key.
    columns: the user's columns.
    order: what orders the changes: a connector's positions, `arrival`, `position`, `version` or `columns`.
    key_groups: number of key groups; once the log has data, only a plan changes it.
    buckets: number of data files of a snapshot.
    order_by: the columns that order the log, if `order` is `columns`.
    merge: how changes of one key become a row.
    spread: how many of the first key columns decide the key group; 0: all.
    ignored: names that records may have besides the columns; the log leaves them out.
    reading: the options of the source by which it reads values, where they are not the defaults; None: unknown.
    """

    key: tuple[str, ...]
    columns: tuple[Column, ...]
    order: str
    key_groups: int
    buckets: int
    order_by: tuple[str, ...] = ()
    merge: Merge = Merge()
    spread: int = 0
    ignored: tuple[str, ...] = ()
    reading: tuple[tuple[str, str], ...] | None = None

    @property
    def spread_key(self) -> tuple[str, ...]:
        """The key columns that decide the key group."""
        return self.key[: self.spread] if self.spread else self.key

    @property
    def order_width(self) -> int:
        """How many numbers make up the order of a change."""
        return len(self.order_by) if self.order == COLUMNS else ORDER_WIDTH[self.order]

    @property
    def orders_by_file(self) -> bool:
        """Whether the last number of the order is that of the file."""
        return self.order_by[-1:] == (FILE,)

    @property
    def column_order(self) -> tuple[str, ...]:
        """The columns among what orders the log."""
        return tuple(name for name in self.order_by if name != FILE)

    @property
    def source_ordered(self) -> bool:
        """Whether changes of a key can only come in the order that counts, so that a table need not keep it."""
        return self.order != COLUMNS

    @property
    def replaces_rows(self) -> bool:
        """Whether a change that contains its whole row replaces the existing one, whatever that contains."""
        return self.merge.engine is Engine.LAST and self.source_ordered

    @property
    def clears_by_columns(self) -> bool:
        """Whether a change that empties the table has a place among the changes, by columns of theirs."""
        return self.merge.engine is Engine.LAST and not self.source_ordered and not self.orders_by_file

    @property
    def marks_rows(self) -> bool:
        """Whether a fold may mark replaced rows as deleted: a key has one row, and its change needs no other row."""
        return self.merge.engine not in (Engine.HISTORY, Engine.APPEND)

    @property
    def accepts_late(self) -> bool:
        """Whether a change finds its right place also when newer ones of its key were folded before."""
        return not self.source_ordered or self.merge.engine in (Engine.HISTORY, Engine.APPEND)

    @property
    def keeps_unsent(self) -> bool:
        """Whether a row keeps the value of a column that the source did not send with a change."""
        return self.merge.engine is Engine.PARTIAL or self.replaces_rows

    @property
    def stores_order(self) -> bool:
        """Whether each row of the table contains the position of its change."""
        engine = self.merge.engine
        return engine is Engine.HISTORY or (not self.source_ordered and engine in (Engine.LAST, Engine.FIRST))

    @property
    def needs_sidecar(self) -> bool:
        """Whether there is more to keep than rows: of deleted keys, or of single columns, the place of their change."""
        engine = self.merge.engine
        if engine is Engine.PARTIAL:
            return not self.source_ordered or any(group.order for group in self.merge.groups)
        return engine is Engine.HISTORY or (not self.source_ordered and engine is Engine.LAST)

    @property
    def table_key(self) -> tuple[str, ...]:
        """Returns the columns that identify a row of the table; empty: there are none."""
        return (*self.key, ORDER) if self.merge.engine is Engine.HISTORY else self.key

    @property
    def table_columns(self) -> tuple[Column, ...]:
        """The columns that readers see: the user's, then those that the engine needs."""
        system = [Column(ORDER, "array<long>")] if self.stores_order else []
        if self.merge.engine is Engine.HISTORY:
            system += [Column(VALID_FROM, self._validity), Column(VALID_TO, self._validity)]
        return (*self.columns, *system)

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns that readers see."""
        return {column.name: column.type for column in self.table_columns}

    @property
    def _validity(self) -> str:
        """Returns the type of validity: that of the one column that orders the log, else of commit times."""
        types = {column.name: column.type for column in self.columns}
        return types[self.column_order[0]] if len(self.column_order) == 1 else "timestamp"


def rename_columns(shape: TableSpec, columns: tuple[Column, ...], names: Mapping[str, str]) -> TableSpec:
    """The table definition with other columns.

    names: the new name of each column that the definition mentions. A column without one is no longer mentioned.
    """

    def rename(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names[name] for name in columns if name in names)

    groups = (Group(rename(g.columns), rename(g.order)) for g in shape.merge.groups)
    aggregates = tuple(sorted((names[name], how) for name, how in shape.merge.aggregates if name in names))
    merge = replace(shape.merge, groups=tuple(g for g in groups if g.columns), aggregates=aggregates)
    order_by = tuple(names.get(name, name) for name in shape.order_by if name in names or name == FILE)
    return replace(shape, key=rename(shape.key), columns=columns, order_by=order_by, merge=merge)
