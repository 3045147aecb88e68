"""Loads a dump of a table, Parquet or CSV, as the rows of a log at one position of its source (decision 0096)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tidefold.domain.source_progress import parse_lsn
from tidefold.domain.table.table_spec import MARIADB, MYSQL, POSITION, POSTGRESQL, TableSpec
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ingest.load_files import Load
from tidefold.sources.api import UnfitFileError
from tidefold.sources.debezium.loaded_rows import FIRST, LoadMark
from tidefold.sources.feed import Feed
from tidefold.sources.files.base import AnyFiles, Csv
from tidefold.sources.files.parquet import Parquet
from tidefold.sources.landing.listing import LandedFile, list_any
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.quarantine.writer import FirstRefusal

if TYPE_CHECKING:
    import pyarrow as pa

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_BINLOG = re.compile(r".*\.(\d{1,18}):(\d{1,18})")


def load_dump(pipeline: Pipeline, log: str, folder: str, position: str, by: str) -> Outcome:
    """Loads the files of a folder. Nothing is loaded unless all rows are. Raises TidefoldError.

    position: at which the dump was taken, as the source writes it; `0`: before all that the stream brings.
    """
    load = Load.begin(pipeline, log)
    shape = pipeline.log(log).shape
    readers: tuple[type[AnyFiles], ...] = (Csv, Parquet)
    endings = tuple(ending for one in readers for ending in one.endings)
    files, problems = list_any(folder, endings)
    if problems or not files:
        message = problems[0].message if problems else f"`{folder}` has no file of Parquet or CSV."
        raise InvalidInputError("LOAD_FILES", message, hint="Name a folder that has the files of one dump alone.")
    load.columns, load.order = shape.columns, parse_position(shape.order, position, shape.order_width)
    load.time = int(min(file.stamp.changed for file in files) * 1_000_000)
    try:
        for number, file in enumerate(files):
            reader = next(one for one in readers if file.name.lower().endswith(tuple(one.endings)))
            load.write(number, _read(reader(Feed(reader.__name__, folder, {"time_zone": "UTC"})), file, load, shape))
        load.finish(LoadMark("", (), 0, position, folder, by, now()))
    except BaseException:
        load.discard()
        raise
    rows = sum(load.files.values())
    return Outcome(log, Status.TAKEN, f"{count_noun(rows, 'row')} of {count_noun(len(files), 'file')} loaded")


def _read(source: AnyFiles, file: LandedFile, load: Load, shape: TableSpec) -> Iterator[pa.RecordBatch]:
    with FirstRefusal() as refusals:
        try:
            parsed = source.parse(FileTask(file, file.size), replace(shape, order=POSITION), refusals)  # type: ignore[attr-defined]
        except UnfitFileError as unfit:
            raise InvalidInputError("LOAD_FILES", unfit.problem.message, hint=unfit.problem.hint) from unfit
        if first := refusals.refused:
            message = f"`{file.name}`, row {refusals.line}: {first.detail} Nothing was loaded."
            raise InvalidInputError("LOAD_VALUE", message)
        if parsed.table is not None:
            yield from parsed.table.select(load.schema.names).cast(load.schema).to_batches()


def parse_position(order: str, position: str, width: int) -> tuple[int, ...]:
    """Returns a position as the order of a log has it. Raises InvalidInputError."""
    binlog = _BINLOG.fullmatch(position)
    if position == FIRST:
        return (0,) * width
    if order == POSTGRESQL and _LSN.fullmatch(position):
        return parse_lsn(position), 0
    if order in (MYSQL, MARIADB) and binlog:
        return int(binlog[1]), int(binlog[2]), 0
    raise InvalidInputError(
        "LOAD_POSITION",
        f"`{position}` is no position of `{order}`.",
        hint="Give an LSN such as 16/B374D848 (postgresql), FILE:POSITION of the binlog (mysql, mariadb), or 0.",
    )
