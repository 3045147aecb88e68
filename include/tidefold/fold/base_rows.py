"""The rows of a bucket and their sidecar: opened from base files, without what nobody wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.changelog.duckdb_connections import open_stream
from tidefold.changelog.key_group_hash import key_groups_of
from tidefold.changelog.schema import GONE, Aligner, sidecar_schema, table_schema
from tidefold.delta.deletion_vectors import without_deleted
from tidefold.domain.key_groups import KeyGroups, OwnedRows
from tidefold.domain.log_state import Expire, TableSpec
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.table.table_spec import Engine
from tidefold.fold.inputs import Inputs
from tidefold.fold.merge.arrow_merge import rows_of
from tidefold.fold.plan import Input


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """Files of a snapshot, the `schema` of their rows, and the aligner that converts them to the wanted table.

    large: the one among them of which only the rows with `keys` are read; None: all rows of all files are.
    """

    files: Sequence[Input]
    aligner: Aligner
    schema: int
    large: Input | None = None
    keys: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class BucketRows:
    """The rows of a bucket and their sidecar, as one value: what drops rows also drops their places.

    rows: sorted by key, to be read once; None: there are none.
    read_sidecar: returns the sidecar: places of values, deletes, and keys that are left out; None: there is nothing.
        The rows decide what stays in it, so it is called after they were read.
    """

    rows: Iterable[pa.RecordBatch] | None = None
    read_sidecar: Callable[[], pa.Table | None] = lambda: None

    def select_owned(self, only: OwnedRows | None) -> BucketRows:
        """Returns the rows of one owner alone: nothing beside them says whose it is."""
        return BucketRows(keep_owned(self.rows or (), only)) if only else self

    def without_expired(self, expire: Expire | None, shape: TableSpec) -> BucketRows:
        """Returns the young rows, without the places of the values of others. Deletes stay (decision 0070)."""
        gone: list[pa.RecordBatch] | None = [] if shape.merge.engine is Engine.PARTIAL else None
        rows = drop_expired(self.rows or (), expire, gone, shape.key)
        return BucketRows(rows, lambda: _forget(self.read_sidecar(), gone or ()))


def _forget(hidden: pa.Table | None, gone: Sequence[pa.RecordBatch]) -> pa.Table | None:
    if hidden is None or not any(batch.num_rows for batch in gone):
        return hidden
    of_them = rows_of(hidden.combine_chunks().to_batches()[0], pa.Table.from_batches(gone))
    others = pa.array(np.isin(np.arange(len(hidden)), of_them, invert=True))
    kept = hidden.filter(pc.or_(others, pc.equal(hidden.column("_column"), GONE)))
    return kept if kept.num_rows else None


@contextmanager
def open_bucket(inputs: Inputs, base: BaseFiles, bucket: KeyGroups) -> Iterator[BucketRows]:
    """Opens the rows of a bucket and their sidecar. Raises CorruptError."""
    hidden = _read_hidden(inputs, base, bucket)
    with open_base(inputs, base, bucket) as rows:
        yield BucketRows(rows, lambda: hidden)


@contextmanager
def open_base(inputs: Inputs, base: BaseFiles, bucket: KeyGroups) -> Iterator[pa.RecordBatchReader | None]:
    """Opens the rows of a bucket as one stream; None if there is no file. Raises CorruptError."""
    shown = [one for one in base.files if not one.file.hidden]
    if not shown:
        yield None
        return
    with ExitStack() as opened:
        # Opened and checked before the merge begins: inside it DuckDB would wrap the error.
        streams = [(one, opened.enter_context(inputs.open(one)[1])) for one in shown]
        files = [(one, pq.ParquetFile(stream)) for one, stream in streams]
        batches = (b for one, parquet in files for b in _rows(one, parquet, base, bucket))
        yield opened.enter_context(open_stream(table_schema(base.aligner.shape), batches))


def _read_hidden(inputs: Inputs, base: BaseFiles, bucket: KeyGroups) -> pa.Table | None:
    shape = base.aligner.shape
    tables = []
    for one in base.files:
        if one.file.hidden:
            with inputs.open(one)[1] as stream:
                kept = base.aligner.align_sidecar(pq.ParquetFile(stream).read(), base.schema).to_batches()
                batches = list(_of_bucket(one.file, iter(kept), shape, bucket))
                tables.append(pa.Table.from_batches(batches, sidecar_schema(shape)))
    return pa.concat_tables(tables) if tables else None


def _rows(one: Input, parquet: pq.ParquetFile, base: BaseFiles, bucket: KeyGroups) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file that belong to a bucket: only some, if the file was written for other buckets (L8)."""
    present = set(parquet.schema_arrow.names)
    names = [name for name in base.aligner.names(base.schema) if name in present]
    live = without_deleted(parquet.iter_batches(batch_size=65_536, columns=names), one.file)
    if one is base.large and (keys := base.keys) is not None:
        live = (batch.take(pa.array(rows_of(batch, keys))) for batch in live)
    batches = base.aligner.rows(live, base.schema)
    yield from _of_bucket(one.file, batches, base.aligner.shape, bucket)


def _of_bucket(
    file: DataFile, batches: Iterator[pa.RecordBatch], shape: TableSpec, bucket: KeyGroups
) -> Iterator[pa.RecordBatch]:
    if file.is_within(bucket):
        yield from batches
        return
    if not shape.key:
        # Rows without a key do not show their bucket: all rows of a file belong to the first bucket that it spans.
        yield from batches if bucket.first <= file.key_groups.first <= bucket.last else ()
        return
    for batch in batches:
        table = pa.Table.from_batches([batch])
        groups = key_groups_of(table, shape)
        mine = pc.and_(pc.greater_equal(groups, bucket.first), pc.less_equal(groups, bucket.last))
        yield from table.filter(mine).to_batches()


def with_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the same rows with exactly these types and nullability."""
    for batch in batches:
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def drop_expired(
    batches: Iterable[pa.RecordBatch],
    expire: Expire | None,
    gone: list[pa.RecordBatch] | None = None,
    key: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yields each batch without its expired rows. A row without an age stays, and so do rows without that column.

    gone: gets the `key` of each expired row.
    """
    for batch in batches:
        if expire is None or expire.column not in batch.schema.names:
            yield batch
            continue
        age = batch.column(expire.column)
        limit = pa.scalar(expire.before.rstrip("Z")).cast(pa.timestamp("us")).cast(age.type)
        young = pc.fill_null(pc.greater_equal(age, limit), True)
        if gone is not None:
            gone.append(batch.select(list(key)).filter(pc.invert(young)))
        yield batch.filter(young)


def keep_owned(batches: Iterable[pa.RecordBatch], only: OwnedRows | None) -> Iterator[pa.RecordBatch]:
    """Yields each batch with the rows of this owner only. None: all rows."""
    for batch in batches:
        if only is None:
            yield batch
            continue
        column = batch.column(only.column)
        yield batch.filter(pc.equal(column, pa.scalar(only.value).cast(column.type)))
