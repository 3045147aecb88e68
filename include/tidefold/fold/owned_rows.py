"""Keeps the rows of one owner (L9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.key_groups import OwnedRows


def keep_owned(batches: Iterable[pa.RecordBatch], only: OwnedRows | None) -> Iterator[pa.RecordBatch]:
    """Yields each batch with the rows of this owner only. None: all rows."""
    for batch in batches:
        if only is None:
            yield batch
            continue
        column = batch.column(only.column)
        yield batch.filter(pc.equal(column, pa.scalar(only.value).cast(column.type)))
