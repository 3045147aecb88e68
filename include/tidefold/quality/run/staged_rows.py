"""Reads the staged rows from the files themselves, so that no metadata can decide a check.

It does not use `format("delta")`, by measurement (docs/quality.md). Delta takes row counts from the statistics in its
log. If its schema declares a column NOT NULL, Spark replaces `IS NULL` by false, so a null key would pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidefold.changelog.schema import table_schema
from tidefold.delta.deletion_vectors import without_deleted
from tidefold.domain.log_state import SnapshotKind, TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError
from tidefold.storage import Store

JUDGE_AGAIN = "`tidefold abort` the snapshot and materialize again; the published table is untouched."


def check_files(store: Store, manifest: Manifest) -> None:
    """Raises CorruptError unless manifest, staged Delta table and disk agree on every file's name and size."""
    folder = manifest.home
    wanted = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.files}
    if manifest.kind is SnapshotKind.FULL:
        shown = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.shown}
        _compare(manifest, "its Delta table", shown, _active_files(store.uri(folder), store.options()))
    stored = {e.path.removeprefix(f"{folder}/"): e.bytes for e in store.list(data_path(folder, "").rstrip("/"))}
    # No reader reads other files next to those of the table: they are harmless garbage of a killed attempt.
    _compare(manifest, "the store", wanted, {path: size for path, size in stored.items() if path in wanted})


def file_rows(
    store: Store, folder: str, file: DataFile, shape: TableSpec, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one file that are not deleted, every column nullable and of its current type.

    columns: those that are read; None: all.
    """
    wanted = [f for f in table_schema(shape) if columns is None or f.name in columns]
    schema = pa.schema([field.with_nullable(True) for field in wanted])
    with store.open(data_path(folder, file.name)) as stream:
        parquet = pq.ParquetFile(stream)
        there = [name for name in schema.names if name in parquet.schema_arrow.names]
        for rows in without_deleted(parquet.iter_batches(columns=there), file):
            yield _fill_columns(rows, schema)


def _fill_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Adds null columns for those that are newer than the file."""
    there = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _active_files(uri: str, options: dict[str, str]) -> dict[str, int]:
    try:
        table = DeltaTable(uri, storage_options=options)
        actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"])
    except DeltaError as error:
        raise CorruptError(
            "STAGED_TABLE_UNREADABLE", f"The staged table `{uri}` cannot be read: {error}.", hint=JUDGE_AGAIN
        ) from error
    return {row["path"]: row["size_bytes"] for row in actions.to_pylist()}


def _compare(manifest: Manifest, where: str, wanted: dict[str, int], found: dict[str, int]) -> None:
    differing = sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))
    if differing:
        raise CorruptError(
            "STAGED_FILES_DIFFER",
            f"The manifest of snapshot {manifest.snapshot} of `{manifest.log}` and {where} differ in {len(differing)} "
            f"files. The first is `{differing[0]}`.",
            hint=JUDGE_AGAIN,
        )
