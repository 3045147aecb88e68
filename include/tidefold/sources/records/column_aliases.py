"""Under which names a record brings the columns of a log: their own, or former ones (`aliases`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tidefold.domain.table.table_spec import Column, TableSpec, rename_columns


def has_aliases(shape: TableSpec, *, of_key: bool = False) -> bool:
    """Whether any column, or any of the key, has further names."""
    return any(c.aliases and (c.name in shape.key or not of_key) for c in shape.columns)


def resolve_aliases(shape: TableSpec, names: Collection[str]) -> TableSpec:
    """The shape with its columns called as among these names; what has both of its names keeps its own."""
    if not has_aliases(shape):
        return shape
    called = {column.name: _name_among(column, names) for column in shape.columns}
    columns = tuple(replace(column, name=called[column.name]) for column in shape.columns)
    return rename_columns(shape, columns, called)


def own_names(shape: TableSpec, names: Sequence[str]) -> list[str]:
    """The same names, former ones replaced by those of today."""
    own = {_name_among(column, names): column.name for column in shape.columns}
    return [own.get(name, name) for name in names]


def _name_among(column: Column, names: Collection[str]) -> str:
    found = next((alias for alias in column.aliases if alias in names), column.name)
    return column.name if column.name in names else found
