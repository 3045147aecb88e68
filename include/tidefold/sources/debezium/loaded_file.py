"""Parses the files of a load: rows of a table as it was at one position of its source."""

from __future__ import annotations

from functools import partial
from typing import BinaryIO

import pyarrow as pa

from tidefold.changelog.schema import CLEAR, change_schema
from tidefold.domain.log_state import TableSpec
from tidefold.domain.source_progress import LOADED, StreamPosition
from tidefold.domain.table.table_spec import POSTGRESQL
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.debezium.loaded_rows import ABOUT, AboutRows
from tidefold.sources.files.base import RowTaker, number_rows
from tidefold.sources.files.columns import misfit
from tidefold.sources.files.parquet import MAGIC, open_parquet, plain_schema, read_batches
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import report_unfit_schema
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.accounting import Account
from tidefold.sources.records.columnar_changes import Rules
from tidefold.sources.records.columnar_values import convert_values
from tidefold.sources.records.parse_file import parse_file, read_whole
from tidefold.typed_json import decode_json

# No column of a user has such a name.
_OFFSET, _TIME = "_offset", "_time"
_ROWS = 16_384


def parse_loaded(task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
    """Reads one file of a load. Raises UnfitFileError."""
    return parse_file(task, partial(_parse, task=task, shape=shape, quarantine=quarantine))


def _parse(stream: BinaryIO, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
    checksum, start = read_whole(stream, task, MAGIC), task.file.start
    with open_parquet(stream, page_checksum_verification=True) as file:
        if why := misfit(file.schema_arrow.names, shape, ()):
            raise UnfitFileError(report_unfit_schema(task.file.name, why, stops=bool(task.stops)))
        about = decode_json(file.schema_arrow.metadata[ABOUT], AboutRows)
        fixed = {_TIME: about.time, **{f"_o{at}": number for at, number in enumerate(about.order)}}
        rules = Rules(offset=_OFFSET, time=_TIME, order=tuple(name for name in fixed if name != _TIME))
        taker = RowTaker(task.file, shape, rules, convert_values, quarantine, lines=task.lines)
        if about.clears:
            clear = {"_op": CLEAR, "_offset": start, "_ts": about.time, **fixed}
            clears = [{**clear, "_kg": group} for group in range(shape.key_groups)]
            taker.spool.add(pa.RecordBatch.from_pylist(clears, change_schema(shape)))
        for rows, numbers in number_rows(read_batches(file, plain_schema(file), _ROWS), 0):
            columns = {name: pa.repeat(pa.scalar(value, pa.int64()), len(numbers)) for name, value in fixed.items()}
            columns[_OFFSET] = pa.array(range(start + numbers[0] - 1, start + numbers[-1]), pa.int64())
            for name, values in columns.items():
                rows = rows.append_column(name, values)
            taker.take(rows, numbers)
    table = taker.to_table()
    if table is not None:
        partition = pa.repeat(pa.scalar(LOADED, pa.int32()), table.num_rows)
        table = table.set_column(table.schema.get_field_index("_partition"), "_partition", partition)
    return ParsedFile(_account(taker.account, about, task, shape), table, checksum)


def _account(account: Account, about: AboutRows, task: FileTask, shape: TableSpec) -> Account:
    """Completes the account of a file: its offsets, and the position from which the source goes on."""
    order, account.snapshot_rows = about.order, account.records
    if account.records:
        account.lowest = account.first = task.file.start
        account.last = task.file.start + account.records - 1
        account.low = order
    stream = StreamPosition(order, max_commit_time=about.time, since=about.since)
    if any(order):
        # As after the rows of an initial snapshot: see `envelope.advance`.
        account.snapshot = order
        early = order if shape.order == POSTGRESQL else ()
        stream = stream._replace(begun=(*order, 2), ended=order, early=early)
    if about.clears:
        account.cleared = order
        stream = stream._replace(replaced=order[0])
    account.stream = stream.after(task.stream)
    return account
