"""Drops rows that are too old (N10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.log_state import Expire


def drop_expired(batches: Iterable[pa.RecordBatch], expire: Expire | None) -> Iterator[pa.RecordBatch]:
    """Yields each batch without its expired rows. A row without an age stays, and so do rows without that column."""
    for batch in batches:
        if expire is None or expire.column not in batch.schema.names:
            yield batch
            continue
        age = batch.column(expire.column)
        limit = pa.scalar(expire.before.rstrip("Z")).cast(pa.timestamp("us")).cast(age.type)
        yield batch.filter(pc.fill_null(pc.greater_equal(age, limit), True))
