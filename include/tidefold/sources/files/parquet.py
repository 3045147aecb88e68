"""Parquet files of changes, with any names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.files.base import AnyFiles, RowTaker, fit_hint, misfit, number_rows
from tidefold.sources.ingest.parse_file import parse_file, read_whole
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.completeness import Ending, inspect_file
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.problems import report_changed, report_damaged, report_unfit_schema, report_wrong_content
from tidefold.sources.landing.streams import DamagedError
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.column_aliases import own_names
from tidefold.sources.records.columnar_changes import fits, of_values

MAGIC = b"PAR1"
_ROWS = 65_536


class Parquet(AnyFiles):
    """`format: parquet`."""

    endings = (".parquet",)

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return parquet_ending(file, taken)

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: self._parse(stream, task, shape, quarantine))

    def _parse(self, stream: BinaryIO, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        checksum = read_whole(stream, task)
        taker = RowTaker(task.file, shape, self.rules, of_values, quarantine, horizon=task.horizon)
        try:
            for rows, numbers in number_rows(self._batches(stream, task, shape)):
                taker.take(rows, numbers)
        except (pa.ArrowException, OSError) as error:
            raise DamagedError(str(error).splitlines()[0]) from error
        return ParsedFile(taker.account, taker.to_table(), checksum)

    def _batches(self, stream: BinaryIO, task: FileTask, shape: TableSpec) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", page_checksum_verification=True) as file:
            schema = _schema(file)
            names = own_names(shape, schema.names)
            schema = pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])
            if why := misfit(schema.names, shape, self.rules.beside):
                problem = report_unfit_schema(task.file.name, why, stops=bool(task.stops))
                raise UnfitFileError(replace(problem, hint=fit_hint(schema.names, shape, self.rules.beside)))
            if why := misfit_type(schema, shape):
                raise UnfitFileError(report_unfit_schema(task.file.name, why, stops=bool(task.stops)))
            for batch in file.iter_batches(_ROWS):
                batch.validate(full=True)
                yield batch.rename_columns(names).cast(schema)


def parquet_ending(file: LandedFile, taken: int) -> Ending:
    """Returns the ending of a Parquet file. Writers write the footer last: without it the file is not complete."""
    return inspect_file(file, lambda stream: _ending(stream, file, taken))


def _ending(stream: BinaryIO, file: LandedFile, taken: int) -> Ending:
    begin = stream.read(len(MAGIC))
    if not MAGIC.startswith(begin):
        return Ending(0, problem=report_wrong_content(file.name))
    if taken:
        return Ending(
            0, problem=report_changed(file.name, f"has {file.size} bytes, but had {taken} when it was ingested")
        )
    if file.size < 3 * len(MAGIC):
        return Ending(0, torn=True)
    stream.seek(file.size - len(MAGIC))
    if stream.read(len(MAGIC)) != MAGIC:
        return Ending(0, torn=True)
    stream.seek(0)
    try:
        pq.read_metadata(stream)
    except (pa.ArrowException, OSError) as error:
        return Ending(0, problem=report_damaged(file.name, str(error).splitlines()[0]))
    return Ending(file.size)


def plain_schema(stream: BinaryIO) -> pa.Schema:
    """The columns of a file. Raises pa.ArrowException or OSError if it cannot be read."""
    with stream, pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as file:
        return _schema(file)


def instants(file: pq.ParquetFile, rows: pa.Table) -> pa.Table:
    """Rows of a file, with INT96 values marked as instants."""
    return rows.cast(_schema(file))


def _schema(file: pq.ParquetFile) -> pa.Schema:
    """The columns of a file, with INT96 values as instants: their type does not show it."""
    old = {c.name for c in map(file.schema.column, range(len(file.schema))) if c.physical_type == "INT96"}
    instant = pa.timestamp("us", "UTC")
    return pa.schema([pa.field(f.name, instant if f.name in old else _plain(f.type)) for f in file.schema_arrow])


def _plain(type_: pa.DataType) -> pa.DataType:
    """The same type in the layout that every Arrow kernel supports; files may ask for another one."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain(type_.value_type))
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return views.get(type_, type_)


def misfit_type(schema: pa.Schema, shape: TableSpec) -> str | None:
    """Returns what is wrong with the type of a column; None: nothing."""
    columns = {column.name: column for column in shape.columns}
    for field in schema:
        if field.name in columns and not fits(field.type, columns[field.name]):
            return f"has column {field.name} of type {field.type} instead of {columns[field.name].type}"
    return None
