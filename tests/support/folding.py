"""Folds lists of changes one after the other, as snapshots do: rows, sidecar and the highest clear."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidefold.changelog.schema import change_schema, table_schema
from tidefold.domain.table.table_spec import TableSpec
from tidefold.fold.base_rows import BucketRows
from tidefold.fold.merge.merge import has_clears, merge_bucket


def bucket_of(rows: pa.Table, hidden: pa.Table | None) -> BucketRows:
    """Returns a bucket with these rows and this sidecar."""
    return BucketRows(rows.to_reader(), lambda: hidden)


def read_all(bucket: BucketRows, shape: TableSpec) -> pa.Table:
    """Returns the rows of a bucket with the types of the table."""
    batches = [pa.Table.from_batches([batch]).cast(table_schema(shape)) for batch in bucket.rows or ()]
    return pa.concat_tables([table_schema(shape).empty_table(), *batches])


def folded(
    shape: TableSpec,
    folds: Iterable[Sequence[dict[str, Any]]],
    horizon: int | None = None,
    *,
    marks: bool = False,
) -> list[dict[str, Any]]:
    """Returns the rows of the table after these folds, in the order in which they are stored.

    marks: the merge gets only the rows whose key has a change, as with deletion vectors.
    """
    base, hidden, cleared = table_schema(shape).empty_table(), None, ()
    for changes in folds:
        table = pa.Table.from_pylist(list(changes), schema=change_schema(shape))
        keys = {tuple(row[name] for name in shape.key) for row in changes}
        is_touched = [
            not marks or has_clears(table) or tuple(r[n] for n in shape.key) in keys for r in base.to_pylist()
        ]
        touched, rest = (base.filter(pa.array(mask, pa.bool_())) for mask in (is_touched, [not t for t in is_touched]))
        with (
            tempfile.TemporaryDirectory() as scratch,
            merge_bucket(
                bucket_of(touched, hidden),
                table,
                shape,
                cleared,
                horizon,
                memory=100_000_000,
                scratch=scratch,
            ) as done,
        ):
            rows = pa.concat_tables([rest, read_all(done.bucket, shape)])
            base = rows.sort_by([(name, "ascending") for name in shape.key]) if marks else rows
            hidden, cleared = done.bucket.read_sidecar(), done.cleared
    return base.to_pylist()
