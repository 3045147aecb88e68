"""Delta tables without a change feed: each new version has all rows of the table.

Each ingest reads only the newest version. Versions between two ingests are not read.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tidefold.domain.log_state import LogState, TableSpec
from tidefold.errors import NotFoundError
from tidefold.sources.api import Listing, ParsedFile
from tidefold.sources.delta.log import read_commit
from tidefold.sources.delta.source import SNAPSHOT, DeltaFeed, count_bytes
from tidefold.sources.extract.source import time_of
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.quarantine.writer import QuarantineWriter


class DeltaExtracts(DeltaFeed):
    """`format: delta`."""

    def listing(self, state: LogState) -> Listing:
        """Returns the newest version if it is not ingested yet. Raises the errors of `DeltaFeed.listing`."""
        table = self.open_table()
        position = state.positions[0] if state.positions else None
        table_id, version = str(table.metadata().id), table.version()
        if position and position.topic != table_id:
            raise self.table_replaced(position, f"is another table now (id {table_id}, was {position.topic})")
        if position and position.next_offset > version + 1:
            raise self.table_replaced(position, f"ends with version {version} now")
        if position and position.next_offset == version + 1:
            return Listing(())
        time = self._find_time(version)
        return Listing((self.version_file(SNAPSHOT, version, table_id, count_bytes(table), time),))

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        """The rows of the version, each with the time of its commit."""
        parsed = super().parse(task, shape, quarantine)
        if parsed.table is None:
            return parsed
        index = parsed.table.schema.get_field_index("_ts")
        time = pa.repeat(pa.scalar(time_of(task.file), pa.int64()), parsed.table.num_rows)
        return replace(parsed, table=parsed.table.set_column(index, parsed.table.schema.field(index), time))

    def _find_time(self, version: int) -> float:
        """Returns when a version was committed, in seconds; 0: its commit was deleted, or has no time."""
        try:
            return (read_commit(self._store, version).time or 0) / 1e6
        except NotFoundError:
            return 0.0
