"""The rows and changes of one version of a Delta table, read from its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidefold.domain.log_state import Column, TableSpec
from tidefold.errors import InvalidInputError
from tidefold.sources.delta.log import DeltaCommit, FileAction
from tidefold.sources.files.parquet import instants
from tidefold.sources.records.columnar_changes import of_text
from tidefold.storage import Store
from tidefold.storage.delta_tables import open_table

# An absolute path or an address.
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
CHANGE = "_change_type"
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"


@dataclass(frozen=True, slots=True)
class Version:
    """A version to read."""

    store: Store
    commit: DeltaCommit
    shape: TableSpec

    def table(self, version: int) -> DeltaTable:
        """The table as it was at a version."""
        return open_table(self.store, "", version)


def snapshot_rows(table: DeltaTable, store: Store) -> pa.Table:
    """All rows of a table at one version, in no order. Raises TidefoldError for a file outside its folder.

    The store opens the files, and not deltalake: that one follows links, and a link may replace a file after any check.
    """
    schema, live = pa.schema(table.schema().to_arrow()), _find_live_rows(table)
    parts = [schema.empty_table()]
    for action in pa.table(table.get_add_actions()).to_pylist():
        name = unquote(action["path"])
        if _ELSEWHERE.match(name) or ".." in name.split("/"):
            raise InvalidInputError(
                "PATH_OUTSIDE_ROOT",
                f"`{name}` is outside the Delta table.",
                hint="It may be a shallow clone. Copy the table with its files.",
            )
        rows = _read_file(store, name)
        rows = rows.filter(_mask(live[name], rows)) if name in live else rows
        values, count = action.get("partition") or {}, rows.num_rows
        columns = {
            field.name: rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.repeat(pa.scalar(values.get(field.name), field.type), count)
            for field in schema
        }
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts)


def _read_file(store: Store, name: str) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(store.read(name)), coerce_int96_timestamp_unit="us") as file:
        return instants(file, file.read())


def read_changes(version: Version) -> pa.Table:
    """The changes of a version, with their kind in `_change_type`, always in the same order.

    Raises NotFoundError if a file was deleted.
    """
    commit = version.commit
    if commit.changes:
        parts = [_rows(version, action, None) for action in sorted(commit.changes, key=lambda a: a.name)]
    elif commit.has_vectors:
        parts = list(_by_vectors(version))
    else:
        gone = (_rows(version, action, DELETE) for action in sorted(commit.removed, key=lambda a: a.name))
        parts = [*gone, *(_rows(version, action, INSERT) for action in sorted(commit.added, key=lambda a: a.name))]
    if not parts:
        return pa.table({CHANGE: pa.array([], pa.string())})
    return pa.concat_tables(parts, promote_options="permissive")


def without_unchanged_keys(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, int]:
    """The rows without the preimages of updates, and how many these were.

    A preimage whose key no postimage has stays: the update changed the key, so it deletes the old one.
    """
    kinds = rows.column(CHANGE)
    # A column without chunks ends the process in `indices_nonzero` of pyarrow 18 to 21.
    old = pc.indices_nonzero(pc.equal(kinds, BEFORE).combine_chunks())
    if not len(old) or not key:
        return rows, 0
    new = rows.filter(pc.equal(kinds, AFTER)).select(list(key))
    marked = rows.take(old).select(list(key)).append_column("row", old)
    stay = set(marked.join(new, keys=list(key), join_type="left anti").column("row").to_pylist())
    gone = set(old.to_pylist()) - stay
    return rows.filter(pa.array([row not in gone for row in range(rows.num_rows)], pa.bool_())), len(gone)


def _rows(version: Version, action: FileAction, kind: str | None) -> pa.Table:
    """The rows of one file; `kind` None: the file has it."""
    rows = _read_file(version.store, action.name)
    columns = {name: rows.column(name) for name in rows.column_names}
    types = {name: column for column in version.shape.columns for name in (*column.aliases, column.name)}
    for name, text in (action.partition_values or {}).items():
        if name in types:
            columns[name] = _repeat_value(text, types[name], rows.num_rows)
    if kind is not None:
        columns[CHANGE] = pa.repeat(pa.scalar(kind), rows.num_rows)
    return pa.table(columns)


def _repeat_value(text: str | None, column: Column, count: int) -> pa.Array:
    """The value of a partition column, for all rows of a file."""
    value = None if text in (None, "") else text
    values, unfit = of_text(pa.array([value.encode() if value else None], pa.binary()), column)
    if len(unfit):
        raise ValueError(f"partition column {column.name} contains {text!r}, which is not a {column.type}")
    return pa.repeat(values[0], count)


def _by_vectors(version: Version) -> Iterator[pa.Table]:
    """Rows that are live in one of the two versions only, file by file."""
    commit = version.commit
    before = _find_live_rows(version.table(commit.version - 1)) if commit.version else {}
    after = _find_live_rows(version.table(commit.version))
    removed = {action.name: action for action in commit.removed}
    added = {action.name: action for action in commit.added}
    for name in sorted({*removed, *added}):
        rows = _rows(version, added.get(name) or removed[name], None)
        if CHANGE in rows.column_names:
            # Spark leaves it, without values, in data files that an update or a merge wrote.
            rows = rows.drop_columns(CHANGE)
        old = _mask(before.get(name, []), rows) if name in removed else _none(rows)
        new = _mask(after.get(name, []), rows) if name in added else _none(rows)
        for kind, mask in ((DELETE, pc.and_not(old, new)), (INSERT, pc.and_not(new, old))):
            live = rows.filter(mask)
            yield live.append_column(CHANGE, pa.repeat(pa.scalar(kind), live.num_rows))


def _find_live_rows(table: DeltaTable) -> dict[str, list[bool]]:
    """For each file with a deletion vector, which of its rows are live."""
    vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().to_pylist()
    root = table.table_uri.removeprefix("file://").rstrip("/")
    names = (row["filepath"].removeprefix("file://").removeprefix(root).lstrip("/") for row in vectors)
    return {unquote(name): row["selection_vector"] for name, row in zip(names, vectors, strict=True)}


def _mask(live: list[bool], rows: pa.Table) -> pa.Array:
    """A vector may be shorter than the file; the remaining rows are live."""
    return pa.array([*live, *([True] * (rows.num_rows - len(live)))], pa.bool_())


def _none(rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value=False), rows.num_rows)
