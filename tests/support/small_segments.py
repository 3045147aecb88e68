"""Appends many small segments of one log at once: the writer makes one at a time, and waits for the disk each time."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from support.segments import write_segment
from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.writer.rows_to_arrow import change_table
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.log_state import LandedFileRecord, Position
from tidefold.domain.source_progress import StreamPosition
from tidefold.operations.ground.pipeline import Pipeline

TOPIC = "writer"


def put_segments(pipeline: Pipeline, log: str, tables: Sequence[pa.Table]) -> None:
    """Writes each table (columns of the user, `_op` if wanted) as a segment, and commits all of them at once."""
    shape, ledger = pipeline.log(log).shape, pipeline.ledger(log)
    offset = next((p.next_offset for p in ledger.begin(shape).positions if p.topic == TOPIC), 0)
    arrivals = []
    for table in tables:
        changes = with_key_groups(change_table(table, shape, offset, 0), shape)
        path = f"changelog/small/{uuid.uuid4().hex}.seg"
        [part] = write_segment(pipeline.store, path, [(log, changes)])
        end, count = offset + table.num_rows, table.num_rows
        name = f"{TOPIC}+0+{offset:010d}"
        landed = LandedFileRecord(
            0,
            name,
            part.location.length,
            part.location.checksum,
            TOPIC,
            0,
            offset,
            end,
            count,
            count,
            0,
            0,
            0,
            0,
            None,
        )
        arrivals.append(
            IngestedFile(landed, part.change_set((end - 1,)), Position(TOPIC, 0, end, StreamPosition((end - 1,))))
        )
        offset = end
    ledger.commit(lambda state: append(state, arrivals))
