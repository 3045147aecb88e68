"""Reads the rows and the sidecar of a snapshot, bucket by bucket, in the wanted schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.changelog.duckdb_connection import connect
from tidefold.changelog.key_group_hash import key_groups_of
from tidefold.changelog.schema import sidecar_schema, table_schema
from tidefold.changelog.schema_alignment import Aligner
from tidefold.delta.deletion_vectors import without_deleted
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import TableSpec
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.errors import RefusedError
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Input


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """Files of a snapshot, the `schema` of their rows, and the aligner that converts them to the wanted table."""

    files: Sequence[Input]
    aligner: Aligner
    schema: int


@contextmanager
def open_base(inputs: Inputs, base: BaseFiles, bucket: KeyGroups) -> Iterator[pa.RecordBatchReader | None]:
    """Opens the rows of a bucket as one stream; None if there is no file. Raises CorruptError."""
    shown = [one for one in base.files if not one.file.hidden]
    if not shown:
        yield None
        return
    with ExitStack() as opened:
        # Opened and checked before the merge begins: inside it DuckDB would wrap the error.
        streams = [(one.file, opened.enter_context(inputs.open(one)[1])) for one in shown]
        files = [(file, pq.ParquetFile(stream)) for file, stream in streams]
        failed: list[RefusedError] = []
        batches = _note_errors(
            (b for file, parquet in files for b in _rows(file, parquet, base, bucket, opened)), failed
        )
        try:
            yield pa.RecordBatchReader.from_batches(table_schema(base.aligner.shape), batches)
        except duckdb.Error as error:
            raise (failed[0] if failed else error) from error


def _note_errors(batches: Iterator[pa.RecordBatch], failed: list[RefusedError]) -> Iterator[pa.RecordBatch]:
    """Passes the batches on and notes an error, because DuckDB's own error does not contain the reason."""
    try:
        yield from batches
    except RefusedError as error:
        failed.append(error)
        raise


def read_hidden(inputs: Inputs, base: BaseFiles, bucket: KeyGroups) -> pa.Table | None:
    """Reads the sidecar of a bucket; None if there is none. Raises CorruptError."""
    shape = base.aligner.shape
    found = []
    for one in base.files:
        if one.file.hidden:
            with ExitStack() as opened:
                stream = opened.enter_context(inputs.open(one)[1])
                kept = base.aligner.align_sidecar(pq.ParquetFile(stream).read(), base.schema).to_batches()
                batches = list(_of_bucket(one.file, iter(kept), shape, bucket, opened))
                found.append(pa.Table.from_batches(batches, sidecar_schema(shape)))
    return pa.concat_tables(found) if found else None


def _rows(
    file: DataFile, parquet: pq.ParquetFile, base: BaseFiles, bucket: KeyGroups, opened: ExitStack
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file that belong to a bucket: only some, if the file was written for other buckets (L8)."""
    there = set(parquet.schema_arrow.names)
    names = [name for name in base.aligner.names(base.schema) if name in there]
    live = without_deleted(parquet.iter_batches(batch_size=65_536, columns=names), file)
    batches = base.aligner.rows(live, base.schema)
    yield from _of_bucket(file, batches, base.aligner.shape, bucket, opened)


def _of_bucket(
    file: DataFile, batches: Iterator[pa.RecordBatch], shape: TableSpec, bucket: KeyGroups, opened: ExitStack
) -> Iterator[pa.RecordBatch]:
    if file.is_within(bucket):
        yield from batches
        return
    if not shape.key:
        # Rows without a key do not show their bucket: all rows of a file belong to the first bucket that it spans.
        yield from batches if bucket.first <= file.key_groups.first <= bucket.last else ()
        return
    connection = opened.enter_context(connect())
    for batch in batches:
        table = pa.Table.from_batches([batch])
        groups = key_groups_of(table, shape, connection)
        mine = pc.and_(pc.greater_equal(groups, bucket.first), pc.less_equal(groups, bucket.last))
        yield from table.filter(mine).to_batches()


def with_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the same rows with exactly these types and nullability."""
    for batch in batches:
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
