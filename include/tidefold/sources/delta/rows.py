"""The rows and changes of one version of a Delta table, read from its files."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.delta.deletion_vectors import Places, decode_text, decode_vector
from tidefold.errors import InvalidInputError
from tidefold.sources.delta.log import DeletionVector, DeltaCommit, DeltaLog, FileAction, make_damaged_error
from tidefold.sources.delta.source_version import SourceColumn, SourceVersion, read_files
from tidefold.sources.files.parquet import instants
from tidefold.sources.records.columnar_values import convert_texts
from tidefold.storage import Store

# An absolute path or an address.
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
CHANGE = "_change_type"
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
# A vector in a file stands behind its length and before its checksum; its name is the last 20 characters of the path.
_WORD, _UUID = 4, 20


def snapshot_rows(store: Store, table: SourceVersion, files: Sequence[FileAction]) -> pa.Table:
    """The live rows of these files of a table. Raises TidefoldError."""
    parts = (
        rows.filter(pa.array(_find_live(store, file, rows)))
        for file in files
        for rows in [_read_file(store, table, file)]
    )
    return pa.concat_tables([table.schema.empty_table(), *parts], promote_options="permissive")


def read_changes(log: DeltaLog, commit: DeltaCommit, table: SourceVersion) -> pa.Table:
    """The changes of a version, with their kind in `_change_type`, always in the same order.

    Raises NotFoundError if a file was deleted.
    """
    if commit.changes:
        files = sorted(commit.changes, key=lambda file: file.name)
        parts = [_read_file(log.store, table, file, kinds=True) for file in files]
    else:
        parts = list(_compare_files(log, commit, table))
    empty = table.schema.append(pa.field(CHANGE, pa.string())).empty_table()
    return pa.concat_tables([empty, *parts], promote_options="permissive")


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


def _compare_files(log: DeltaLog, commit: DeltaCommit, table: SourceVersion) -> Iterator[pa.Table]:
    """Rows that are live in one of the two versions only, file by file."""
    store = log.store
    removed = {action.name: action for action in commit.removed}
    added = {action.name: action for action in commit.added}
    if table.partitions and any(action.partition_values is None for action in commit.removed):
        before = {file.name: file for file in read_files(log, commit.version - 1)}
        removed = {name: before.get(name, action) for name, action in removed.items()}
    for name in sorted({*removed, *added}):
        rows = _read_file(store, table, added.get(name) or removed[name])
        none = np.zeros(rows.num_rows, bool)
        old = _find_live(store, removed[name], rows) if name in removed else none
        new = _find_live(store, added[name], rows) if name in added else none
        for kind, mask in ((DELETE, old & ~new), (INSERT, new & ~old)):
            live = rows.filter(pa.array(mask))
            yield live.append_column(CHANGE, pa.repeat(pa.scalar(kind), live.num_rows))


def _read_file(store: Store, table: SourceVersion, action: FileAction, *, kinds: bool = False) -> pa.Table:
    """All rows of a file, with the columns of the table; with the kinds of changes if the file has them.

    The store opens the file: it follows no link, which may replace a file after any check.
    """
    name = action.name
    if _ELSEWHERE.match(name) or ".." in name.split("/"):
        raise InvalidInputError(
            "PATH_OUTSIDE_ROOT",
            f"`{name}` is outside the Delta table.",
            hint="It may be a shallow clone. Copy the table with its files.",
        )
    data = store.read(name)
    try:
        with pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us") as file:
            ids = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in file.schema_arrow if _has_id(f)}
            stored = instants(file, file.read())
        columns = {
            column.name: _repeat_value(action.partition_values or {}, column, stored.num_rows)
            if column.stored_name in table.partitions
            else _find_values(stored, column, ids if table.by_id else {})
            for column in table.columns
        }
    except (pa.ArrowException, OSError, ValueError) as error:
        raise make_damaged_error(f"`{name}`", str(error).splitlines()[0].rstrip(".")) from error
    if kinds:
        if CHANGE not in stored.column_names:
            raise make_damaged_error(f"`{name}`", f"it has no column `{CHANGE}`")
        columns[CHANGE] = stored.column(CHANGE)
    return pa.table(columns)


def _has_id(field: pa.Field) -> bool:
    return b"PARQUET:field_id" in (field.metadata or {})


def _find_values(rows: pa.Table, column: SourceColumn, ids: Mapping[int, str]) -> pa.ChunkedArray:
    """The values of a column; a column that a file lacks is null, and one that was widened since is cast."""
    name = ids.get(column.field_id, "") if ids and column.field_id is not None else column.stored_name
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, column.type or pa.null())
    values = rows.column(name)
    return values if column.type is None or values.type == column.type else values.cast(column.type)


def _repeat_value(partition: Mapping[str, str | None], column: SourceColumn, count: int) -> pa.Array:
    """The value of a partition column, for all rows of a file."""
    text = partition.get(column.stored_name) or None
    values, unfit = convert_texts(pa.array([text.encode() if text else None], pa.binary()), column.own)
    if len(unfit):
        raise ValueError(f"partition column {column.name} contains {text!r}, which is not a {column.text}")
    return pa.repeat(values[0].cast(column.type), count)


def _find_live(store: Store, action: FileAction, rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows of a file no vector deletes."""
    live = np.ones(rows.num_rows, bool)
    if action.deletion_vector is not None:
        try:
            gone = _read_vector(store, action.deletion_vector)
        except ValueError as error:
            raise make_damaged_error(f"the deletion vector of `{action.name}`", str(error)) from error
        if len(gone) != action.deletion_vector.cardinality or (len(gone) and gone[-1] >= rows.num_rows):
            raise make_damaged_error(f"the deletion vector of `{action.name}`", "it deletes other rows than it says")
        live[gone] = False
    return live


def _read_vector(store: Store, vector: DeletionVector) -> Places:
    text = vector.path_or_inline_dv
    if vector.storage_type == "i":
        return decode_vector(decode_text(text)[: vector.size_in_bytes])
    if vector.storage_type != "u":
        raise ValueError(f"it is outside of the table: {text}")
    folder, name = text[:-_UUID], UUID(bytes=decode_text(text[-_UUID:]))
    path = f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"
    data = store.read(path, vector.offset or 0, vector.size_in_bytes + 2 * _WORD)
    vector_bytes, checksum = data[_WORD:-_WORD], data[-_WORD:]
    if not int.from_bytes(data[:_WORD], "big") == len(vector_bytes) == vector.size_in_bytes:
        raise ValueError(f"`{path}` has another length")
    if zlib.crc32(vector_bytes) != int.from_bytes(checksum, "big"):
        raise ValueError(f"`{path}` has another checksum")
    return decode_vector(vector_bytes)
