"""The staged rows, read so that nothing but the files themselves can answer a check.

Not through `format("delta")`, by measurement (docs/quality.md): Delta answers row counts from the statistics in its
log, and a column that its schema calls NOT NULL makes Spark fold `IS NULL` to false, so a null key passes unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidefold.changelog.schema import table_schema
from tidefold.delta.deletion_vectors import without_deleted
from tidefold.domain.log_state import Column, Kind, Shape
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import CorruptError, TidefoldError
from tidefold.quality.report.result import clipped
from tidefold.storage import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# For those who only pass a session on and must not know Spark.
Session: TypeAlias = "SparkSession"
_AGAIN = "`tidefold abort` the snapshot and materialize again; the published table is untouched."
_GLOB = str.maketrans({c: f"\\{c}" for c in "\\{}[]*?"})


def check_files(store: Store, manifest: Manifest) -> None:
    """Raises CorruptError unless manifest, staged Delta table and disk agree on every file's name and size."""
    folder = manifest.home
    wanted = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.files}
    if manifest.kind is Kind.FULL:
        shown = {data_path("", f.name).lstrip("/"): f.bytes for f in manifest.shown}
        _compare(manifest, "its Delta table", shown, _active_files(store.uri(folder), store.options()))
    stored = {e.path.removeprefix(f"{folder}/"): e.bytes for e in store.list(data_path(folder, "").rstrip("/"))}
    # A file beside those of the table is not read by anyone: garbage of a killed attempt, no harm.
    _compare(manifest, "the store", wanted, {path: size for path, size in stored.items() if path in wanted})


def read_rows(spark: Session, store: Store, manifest: Manifest) -> DataFrame:
    """All rows of exactly the manifest's files, every column nullable."""
    schema = ", ".join(_spark_column(column) for column in manifest.shape.table_columns)
    folder = manifest.home
    paths = [store.uri(data_path(folder, f.name)).translate(_GLOB) for f in manifest.shown]
    try:
        if not paths:
            return spark.createDataFrame([], schema)
        if store.options() or any(f.deletions for f in manifest.shown):
            # Spark has no client for this store, or knows of deletions by a Delta log only: its Python workers read the
            # files, one task each.
            work = partial(_file_rows, store.uri(""), folder, manifest.shown, manifest.shape)
            count = len(manifest.shown)
            return spark.range(0, count, 1, count).mapInArrow(work, schema)
        reader = spark.read.schema(schema).option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
        return reader.parquet(*paths)
    except Exception as error:  # Whatever Spark raises must end as an error of this log, never as a pass.
        line = clipped(" ".join(str(error).split()))
        raise TidefoldError("STAGED_ROWS_UNREADABLE", f"Spark cannot read `{folder}`: {line}", hint=_AGAIN) from error


def _file_rows(
    address: str, folder: str, files: Sequence[DataFile], shape: Shape, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    store = open_store(address, Path("/"))
    schema = pa.schema([field.with_nullable(True) for field in table_schema(shape)])
    for number in (n for batch in batches for n in batch.column(0).to_pylist()):
        file = files[number]
        with store.open(data_path(folder, file.name)) as stream:
            parquet = pq.ParquetFile(stream)
            there = [name for name in schema.names if name in parquet.schema_arrow.names]
            for rows in without_deleted(parquet.iter_batches(columns=there), file):
                yield _filled(rows, schema)


def _filled(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With nulls in the columns that came after the file was written."""
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
            "STAGED_TABLE_UNREADABLE", f"The staged table `{uri}` cannot be read: {error}.", hint=_AGAIN
        ) from error
    return {row["path"]: row["size_bytes"] for row in actions.to_pylist()}


def _compare(manifest: Manifest, where: str, wanted: dict[str, int], found: dict[str, int]) -> None:
    differing = sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))
    if differing:
        raise CorruptError(
            "STAGED_FILES_DIFFER",
            f"Snapshot {manifest.snapshot} of `{manifest.log}`: manifest and {where} differ in {len(differing)} files, "
            f"the first is `{differing[0]}`.",
            hint=_AGAIN,
        )


def _spark_column(column: Column) -> str:
    # What a type is called here is what Spark calls it, but for the one that means what the session says.
    kind = column.type.replace("timestamp", "timestamp_ltz")
    return f"`{column.name.replace('`', '``')}` {kind}"
