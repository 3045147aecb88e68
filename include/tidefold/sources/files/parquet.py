"""Parquet files of changes, with any names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.changelog.schema import find_column_type
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.types import widens
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.files.base import AnyFiles, RowTaker, number_rows
from tidefold.sources.files.columns import explain_columns, misfit, or_land
from tidefold.sources.landing.completeness import Ending, inspect_file
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import report_changed, report_damaged, report_unfit_schema, report_wrong_content
from tidefold.sources.landing.streams import DamagedError, TooLargeError
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.columnar_values import convert_values, fits
from tidefold.sources.records.parse_file import parse_file, read_whole
from tidefold.sources.records.record_types import own_names
from tidefold.sources.records.text_forms import Spelling

MAGIC = b"PAR1"
_ROWS = 65_536
# What rows may need in memory: a batch, or a row alone; and a row group as it is stored.
BATCH_BYTES, MAX_GROUP = 64 << 20, 1 << 30
# Rows of nested texts that are read at once, whatever they unpack to.
_LEAST_ROWS = 64
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class Parquet(AnyFiles):
    """`format: parquet`."""

    endings = (".parquet",)

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return parquet_ending(file, taken)

    def can_split(self, task: FileTask, shape: TableSpec) -> bool:
        return True

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: self._parse(stream, task, shape, quarantine))

    def _parse(self, stream: BinaryIO, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        checksum = "" if task.part else read_whole(stream, task)
        cast = partial(convert_values, spelling=Spelling(time_zone=self.rules.time_zone))
        taker = RowTaker(
            task.file,
            shape,
            self.rules,
            cast,
            quarantine,
            horizon=task.horizon,
            stops=bool(task.stops),
            lines=task.lines,
        )
        try:
            for rows, numbers in self._batches(stream, task, taker):
                taker.take(rows, numbers)
        except (pa.ArrowException, OSError) as error:
            raise DamagedError(str(error).splitlines()[0]) from error
        return ParsedFile(taker.account, taker.to_table(), checksum)

    def _batches(self, stream: BinaryIO, task: FileTask, taker: RowTaker) -> Iterator[tuple[pa.Table, range]]:
        shape = taker.shape
        with open_parquet(stream, page_checksum_verification=True) as file:
            schema = plain_schema(file)
            names = own_names(shape, schema.names)
            schema = pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])
            if why := misfit([*schema.names, *taker.folders], shape, self.rules.beside_in(schema.names)):
                types = find_types(schema)
                hint = or_land(
                    explain_columns([*names, *taker.folders], shape, self.rules.beside, task.file.name, types)
                )
                problem = report_unfit_schema(task.file.name, why, stops=bool(task.stops))
                raise UnfitFileError(replace(problem, hint=hint))
            if unfit := find_unfit_types(schema, shape):
                problem = report_unfit_schema(task.file.name, describe_types(unfit), stops=bool(task.stops))
                raise UnfitFileError(replace(problem, hint=f"Nothing of it was ingested. {explain_types(unfit)}"))
            first, end, groups, before = find_rows(file.metadata, task)
            for rows, numbers in number_rows(read_batches(file, plain_schema(file), _ROWS, groups), before):
                rows.validate(full=True)
                own = slice(max(first - numbers.start + 1, 0), end - numbers.start + 1)
                yield rows[own].rename_columns(names), numbers[own]
                if numbers.stop > end + 1:
                    return


def find_rows(metadata: pq.FileMetaData, task: FileTask) -> tuple[int, int, list[int], int]:
    """Returns the rows [first, end) of the task's part, the row groups that have them, and how many rows come before.

    A part begins with a row group or a quarter of one: what comes before it in its row group is decoded for nothing.
    """
    sizes = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    starts: list[int] = [0, *accumulate(sizes)]
    cuts: list[int] = [starts[at] + rows * quarter // 4 for at, rows in enumerate(sizes) for quarter in range(4)]

    def find_cut(part: int) -> int:
        wanted = starts[-1] * part // task.parts
        return min((*cuts, starts[-1]), key=lambda cut: int(abs(cut - wanted)))

    first, end = find_cut(task.part), find_cut(task.part + 1)
    groups = [at for at, rows in enumerate(sizes) if starts[at] < end and starts[at] + rows > first]
    return first, end, groups, starts[groups[0]] if groups else 0


def open_parquet(stream: BinaryIO, **options: Any) -> pq.ParquetFile:
    """Opens a file so that texts that repeat in it stay a dictionary: a small file may unpack to gigabytes."""
    metadata = pq.read_metadata(stream)
    plain = {field.name for field in metadata.schema.to_arrow_schema() if not pa.types.is_nested(field.type)}
    repeated = sorted({chunk.path_in_schema for chunk in _chunks(metadata) if _repeats(chunk)} & plain)
    options["coerce_int96_timestamp_unit"] = "us"
    return pq.ParquetFile(stream, metadata=metadata, read_dictionary=repeated, **options)


def read_batches(
    file: pq.ParquetFile, schema: pa.Schema, rows: int, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows with the types of `schema`, as many at a time as BATCH_BYTES holds. Raises TooLargeError.

    groups: the row groups to read; None: all.

    Arrow cannot keep nested texts as a dictionary. Where they repeat, few rows are read at a time.
    """
    nested = {field.name for field in file.schema_arrow if pa.types.is_nested(field.type)}
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        chunks = [group.column(at) for at in range(group.num_columns)]
        size = sum(_count_stored_bytes(file, chunk, at) for at, chunk in enumerate(chunks))
        if size > MAX_GROUP:
            raise TooLargeError(f"a row group unpacks to {size:,} bytes")
        fitting = BATCH_BYTES * group.num_rows // max(1, size)
        longest = [
            c.total_uncompressed_size for c in chunks if _repeats(c) and c.path_in_schema.split(".")[0] in nested
        ]
        if longest:
            fitting = min(fitting, max(_LEAST_ROWS, BATCH_BYTES // max(longest)))
        rows = max(1, min(rows, fitting))
    for batch in file.iter_batches(rows, groups):
        yield from _cut(batch, schema)


def _chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


def _repeats(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether the texts of a column may be taken from a dictionary."""
    return chunk.physical_type == "BYTE_ARRAY" and any("DICTIONARY" in encoding for encoding in chunk.encodings)


def _count_stored_bytes(file: pq.ParquetFile, chunk: pq.ColumnChunkMetaData, at: int) -> int:
    """Returns what a column of a row group needs at most, if no value is taken from a dictionary twice."""
    column = file.schema.column(at)
    width = max(8, column.length or 0) if column.max_repetition_level else 0
    return int(max(chunk.total_uncompressed_size, width * chunk.num_values))


def _cut(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    size = sum(map(_count_unpacked_bytes, batch.columns))
    if size <= BATCH_BYTES:
        yield batch.cast(schema)
    elif batch.num_rows == 1:
        raise TooLargeError(f"a row unpacks to {size:,} bytes")
    else:
        half = batch.num_rows // 2
        yield from _cut(batch.slice(0, half), schema)
        yield from _cut(batch.slice(half), schema)


def _count_unpacked_bytes(values: pa.Array) -> int:
    if not pa.types.is_dictionary(values.type):
        return int(values.nbytes)
    size = int(values.indices.nbytes)
    if any(is_text(values.type.value_type) for is_text in _TEXTS):
        size += pc.sum(pc.binary_length(values.dictionary).take(values.indices)).as_py() or 0
    return size


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


def instants(file: pq.ParquetFile, rows: pa.Table) -> pa.Table:
    """Rows of a file, with INT96 values marked as instants."""
    return rows.cast(plain_schema(file))


def plain_schema(file: pq.ParquetFile) -> pa.Schema:
    """The columns of a file, with INT96 values as instants: their type does not show it."""
    old = {c.name for c in map(file.schema.column, range(len(file.schema))) if c.physical_type == "INT96"}
    instant = pa.timestamp("us", "UTC")
    return pa.schema([pa.field(f.name, instant if f.name in old else _plain(f.type)) for f in file.schema_arrow])


def _plain(type_: pa.DataType) -> pa.DataType:
    """The same type in the layout that every Arrow kernel supports; files may ask for another one."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_plain(field.type)) for field in type_])
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return views.get(type_, type_)


def find_types(schema: pa.Schema) -> dict[str, str]:
    """Returns the type that the configuration has for each column; empty: no type fits."""
    return {field.name: find_column_type(field.type) or "" for field in schema}


def find_unfit_types(schema: pa.Schema, shape: TableSpec) -> list[tuple[Column, str]]:
    """Returns the columns of the log whose values are of another type, with that type in the words of `columns`."""
    columns = {column.name: column for column in shape.columns}
    unfit = [field for field in schema if field.name in columns and not fits(field.type, columns[field.name])]
    return [(columns[field.name], find_column_type(field.type) or str(field.type)) for field in unfit]


def describe_types(unfit: Sequence[tuple[Column, str]]) -> str:
    """Returns what is wrong with the types of these columns."""
    return "; ".join(
        f"has column {column.name} of type {type_} instead of {column.type}" for column, type_ in unfit[:3]
    )


def explain_types(unfit: Sequence[tuple[Column, str]]) -> str:
    """Returns the lines of `columns` that take these types, and what to do with the others."""
    wider = {column.name: type_ for column, type_ in unfit if widens(column.type, type_)}
    lines = ", ".join(f"`{name}: {type_}`" for name, type_ in list(wider.items())[:3])
    steps = [f"Set {lines} in `columns`, which widens the column of the table too."] if lines else []
    if other := [column.name for column, _ in unfit if column.name not in wider]:
        steps.append(
            f"No type of the log can become that of {', '.join(other[:3])}: let the source write the former one."
        )
    return " ".join([*steps, "docs/how-to/change-columns.md has the rules."])
