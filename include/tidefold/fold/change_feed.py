"""Writes the change data feed of a published version: which rows it inserts, updates and deletes.

It compares the rows that readers of the version before see with those of the new one, by key. Only files that differ
are read, so the result does not depend on how the snapshot was made: by a fold, a restore, a rescale or an import.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.schema import table_schema
from tidefold.delta.data_files import write_change_file
from tidefold.delta.deletion_vectors import Places, places
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.fold.base_rows import with_schema
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Address, Input
from tidefold.storage import Store
from tidefold.storage.safe_files import open_scratch

CHANGE_TYPE = "_change_type"
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
_BATCH_ROWS = 65_536
_THREADS = 4


@dataclass(frozen=True, slots=True)
class _ComparedFile:
    """A file of which only some rows count. `hidden`: rows that are deleted; `only`: the rows to read; None: all."""

    file: DataFile
    hidden: Places
    only: Places | None = None


@dataclass(frozen=True, slots=True)
class _VersionRows:
    """The rows of one version that may differ from those of the other."""

    manifest: Manifest
    parts: tuple[_ComparedFile, ...]

    def within(self, bucket: KeyGroups) -> _VersionRows:
        return _VersionRows(self.manifest, tuple(part for part in self.parts if part.file.key_groups.meets(bucket)))


def write_change_feed(store: Store, before: Manifest, after: Manifest) -> tuple[DataFile, ...]:
    """Writes the files of the feed into the table's folder, and returns them.

    There is none if the version only adds files: Delta's readers take rows of added files as inserted. If no row
    differs though files do, there is one file without rows. Raises CorruptError.
    """
    old, new = _find_sides(before, after)
    if not old.parts and not any(part.only is not None for part in new.parts):
        return ()
    with ThreadPoolExecutor(_THREADS) as pool:
        buckets = _find_ranges(old, new)
        files = list(pool.map(lambda bucket: _write(store, old.within(bucket), new.within(bucket), bucket), buckets))
    written = tuple(file for file in files if file)
    return written or (_write_batches(store, after, buckets[0], iter(()), may_be_empty=True),)  # type: ignore[return-value]


def _find_sides(before: Manifest, after: Manifest) -> tuple[_VersionRows, _VersionRows]:
    shown = [{file.name: file for file in manifest.shown} for manifest in (before, after)]
    sides: tuple[list[_ComparedFile], list[_ComparedFile]] = ([], [])
    for mine, others, parts in ((shown[0], shown[1], sides[0]), (shown[1], shown[0], sides[1])):
        for name, file in mine.items():
            other = others.get(name)
            if other is None:
                parts.append(_ComparedFile(file, places(file.deletions)))
            elif other.deletions != file.deletions:
                gone = places(file.deletions)
                parts.append(_ComparedFile(file, gone, np.setdiff1d(places(other.deletions), gone)))
    return _VersionRows(before, tuple(sides[0])), _VersionRows(after, tuple(sides[1]))


def _find_ranges(*sides: _VersionRows) -> list[KeyGroups]:
    """Returns ranges of key groups, such that no file crosses an end; one range if rows have no key."""
    spans = sorted(part.file.key_groups for side in sides for part in side.parts)
    ranges = [spans[0]]
    for span in spans[1:]:
        last = ranges[-1]
        if span.first <= last.last or not sides[0].manifest.shape.table_key:
            ranges[-1] = KeyGroups(min(last.first, span.first), max(last.last, span.last))
        else:
            ranges.append(span)
    return ranges


def _write(store: Store, old: _VersionRows, new: _VersionRows, bucket: KeyGroups) -> DataFile | None:
    schema = table_schema(new.manifest.shape)
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        for name, side in (("before", old), ("after", new)):
            _load(connection, name, schema, _read_rows(store, side, schema))
        same_key = old.manifest.shape.table_key == new.manifest.shape.table_key
        key = new.manifest.shape.table_key if same_key else ()
        stream = connection.sql(_build_query(schema, key)).to_arrow_reader(_BATCH_ROWS)
        return _write_batches(store, new.manifest, bucket, stream)


def _write_batches(
    store: Store, manifest: Manifest, bucket: KeyGroups, rows: Iterator[pa.RecordBatch], may_be_empty: bool = False
) -> DataFile | None:
    fields = [field.with_nullable(True) for field in table_schema(manifest.shape)]
    schema = pa.schema([*fields, pa.field(CHANGE_TYPE, pa.string())])
    named = (batch.rename_columns(schema.names) for batch in rows)
    name = DataFileName(bucket, manifest.snapshot, manifest.epoch, uuid.uuid4().hex, manifest.token)
    table = LogPaths(manifest.log).table
    return write_change_file(store, table, name, with_schema(named, schema), schema, may_be_empty)


def _load(
    connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> None:
    """Makes and fills a table whose columns have numbers: DuckDB takes the names `id` and `ID` for one."""
    numbers = [f"c{i}" for i in range(len(schema))]
    connection.register("batch", pa.Table.from_batches([], schema).rename_columns(numbers))
    connection.execute(f"CREATE TEMP TABLE {name} AS FROM batch")
    # Batch by batch, not scanned by DuckDB: it would wrap the errors of the file reader.
    for batch in batches:
        connection.register("batch", pa.Table.from_batches([batch]).rename_columns(numbers))
        connection.execute(f"INSERT INTO {name} FROM batch")


def _read_rows(store: Store, side: _VersionRows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    table, inputs = LogPaths(side.manifest.log).table, Inputs({store.uri(""): store})
    names = {column.name for column in side.manifest.shape.table_columns}
    for part in side.parts:
        if part.only is not None and not len(part.only):
            continue
        address = Address(StorageTier.STORE, store.uri(""), data_path(table, part.file.name))
        with inputs.open(Input(part.file, (address,)))[1] as stream:
            parquet = pq.ParquetFile(stream)
            present = [name for name in parquet.schema_arrow.names if name in names and name in schema.names]
            start = 0
            for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=present):
                yield _fit(_select(batch, start, part), schema)
                start += batch.num_rows


def _select(batch: pa.RecordBatch, start: int, part: _ComparedFile) -> pa.RecordBatch:
    here = np.arange(start, start + batch.num_rows, dtype=np.uint64)
    chosen = ~np.isin(here, part.hidden) if part.only is None else np.isin(here, part.only)
    return batch if chosen.all() else batch.filter(pa.array(chosen))


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows with the columns of the new version. Readers of the old one saw no value in a new column."""
    columns = []
    for field in schema:
        missing = field.name not in batch.schema.names
        columns.append(
            pa.nulls(batch.num_rows, field.type) if missing else _convert(batch.column(field.name), field.type)
        )
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def _convert(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the values in another type; nulls if they do not fit it."""
    try:
        return values.cast(kind)
    except pa.ArrowException:
        return pa.nulls(len(values), kind)


def _build_query(schema: pa.Schema, key: Sequence[str]) -> str:
    columns = [f"c{i}" for i in range(len(schema))]
    if not key:
        parts = ((DELETE, "before", "after"), (INSERT, "after", "before"))
        return " UNION ALL ".join(
            f"SELECT *, '{change}' AS change FROM (FROM {one} EXCEPT ALL FROM {other})" for change, one, other in parts
        )
    keys = [f"c{schema.names.index(name)}" for name in key]
    same_key = " AND ".join(f"b.{c} = a.{c}" for c in keys)
    differ = " OR ".join(_compare_values(c, field.type) for c, field in zip(columns, schema, strict=True))
    # A key is never null, so a null key belongs to no row.
    joined = (
        f"SELECT {', '.join(f'b.{c} AS b{c}, a.{c} AS a{c}' for c in columns)} "
        f"FROM before b FULL JOIN after a ON {same_key} WHERE {differ}"
    )
    old, new = (", ".join(f"{side}{c}" for c in columns) for side in "ba")
    no_old, no_new = f"b{keys[0]} IS NULL", f"a{keys[0]} IS NULL"
    return (
        f"WITH joined AS MATERIALIZED ({joined}) "
        f"SELECT {old}, CASE WHEN {no_new} THEN '{DELETE}' ELSE '{BEFORE}' END FROM joined WHERE NOT {no_old} "
        f"UNION ALL "
        f"SELECT {new}, CASE WHEN {no_old} THEN '{INSERT}' ELSE '{AFTER}' END FROM joined WHERE NOT {no_new}"
    )


def _compare_values(column: str, kind: pa.DataType) -> str:
    """Whether two values differ. To DuckDB 0.0 and -0.0 are equal; their texts are not."""
    inner = kind.value_type if pa.types.is_list(kind) else kind
    if pa.types.is_floating(inner):
        return f"b.{column}::VARCHAR IS DISTINCT FROM a.{column}::VARCHAR"
    return f"b.{column} IS DISTINCT FROM a.{column}"
