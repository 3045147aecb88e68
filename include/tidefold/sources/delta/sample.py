"""Some rows of a Delta table, read as an ingest reads them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, takewhile

import pyarrow as pa

from tidefold.errors import NotFoundError
from tidefold.sources.delta.log import DeltaLog, open_source
from tidefold.sources.delta.rows import snapshot_rows
from tidefold.sources.delta.source_version import read_files, read_version

# A sample reads files that have together at most so many bytes, and always the smallest one.
_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class TableSample:
    """What a Delta table shows.

    rows: some of them, without the columns of `unfit`.
    unfit: names of columns that no log can have.
    is_replaced: its log shows that it was replaced by another table.
    """

    rows: pa.Table
    unfit: tuple[str, ...]
    has_feed: bool
    is_replaced: bool


def sample_table(address: str, count: int) -> TableSample:
    """Reads up to `count` rows of the newest version. Raises TidefoldError."""
    log = DeltaLog(open_source(address))
    if log.newest is None:
        raise NotFoundError("DELTA_SOURCE_MISSING", f"There is no Delta table at `{address}`.")
    table = read_version(log, log.newest)
    files = sorted(read_files(log, log.newest), key=lambda file: file.size or 0)
    sums = accumulate(file.size or 0 for file in files)
    small = [file for file, _ in takewhile(lambda one: one[1] <= _BYTES, zip(files, sums, strict=True))]
    rows = snapshot_rows(log.store, table, small or files[:1])
    unfit = tuple(column.name for column in table.columns if column.type is None)
    is_replaced = log.oldest is not None and read_version(log, log.oldest).id != table.id
    return TableSample(rows.drop_columns(unfit).slice(0, count), unfit, table.has_feed, is_replaced)
