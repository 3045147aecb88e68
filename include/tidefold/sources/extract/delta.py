"""Delta tables without a change feed: each new version has all rows of the table.

Each ingest reads only the newest version. Versions between two ingests are not read.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tidefold.domain.log_state import LogState, TableSpec
from tidefold.sources.api import ParsedFile
from tidefold.sources.delta.log import DeltaLog
from tidefold.sources.delta.source import DeltaFeed
from tidefold.sources.extract.source import time_of
from tidefold.sources.landing.listing import Listing
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.quarantine.writer import QuarantineWriter


class DeltaExtracts(DeltaFeed):
    """`format: delta`."""

    if_replaced = (
        "If each day makes the table again, set `replaced: accept` under `source`, and run again. If not, restore the "
        "former table."
    )

    def find_start(self, log: DeltaLog) -> str:
        return "Run again: an extract takes the newest version. If a file of that one is missing, restore the file."

    def listing(self, state: LogState) -> Listing:
        """Returns the newest version if it is not ingested yet. Raises the errors of `DeltaFeed.listing`."""
        log, table, position = self.open_newest(state)
        torn = self.list_torn(log, table)
        if position and position.next_offset == table.version + 1:
            return Listing(tuple(torn))
        commit = log.read_commit(table.version) if table.version in log.versions else None
        return Listing((self.snapshot_file(log, table, (self.find_time(table.version, commit) or 0) / 1e6), *torn))

    def check_keys(self, rows: pa.Table, shape: TableSpec, version: int) -> None:
        """Does nothing: the extract checks its keys when it is compared."""

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        """The rows of the version, each with the time of its commit."""
        parsed = super().parse(task, shape, quarantine)
        if parsed.table is None:
            return parsed
        index = parsed.table.schema.get_field_index("_ts")
        time = pa.repeat(pa.scalar(time_of(task.file), pa.int64()), parsed.table.num_rows)
        return replace(parsed, table=parsed.table.set_column(index, parsed.table.schema.field(index), time))
