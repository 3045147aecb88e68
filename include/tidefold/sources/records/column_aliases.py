"""Resolves the names that records use for the columns of a log: their own, or former ones (`aliases`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tidefold.domain.table.table_spec import Column, TableSpec, rename_columns


def has_aliases(shape: TableSpec, *, of_key: bool = False) -> bool:
    """Whether any column (of the key) has aliases."""
    return any(c.aliases and (c.name in shape.key or not of_key) for c in shape.columns)


def resolve_aliases(shape: TableSpec, names: Collection[str]) -> TableSpec:
    """The table definition with the column names that a record uses. A column's own name wins over its aliases."""
    if not has_aliases(shape):
        return shape
    called = {column.name: _name_among(column, names) for column in shape.columns}
    columns = tuple(replace(column, name=called[column.name]) for column in shape.columns)
    return rename_columns(shape, columns, called)


def own_names(shape: TableSpec, names: Sequence[str]) -> list[str]:
    """The same names, with aliases replaced by the columns' own names."""
    own = {_name_among(column, names): column.name for column in shape.columns}
    return [own.get(name, name) for name in names]


def _name_among(column: Column, names: Collection[str]) -> str:
    found = next((alias for alias in column.aliases if alias in names), column.name)
    return column.name if column.name in names else found
