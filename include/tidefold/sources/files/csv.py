"""CSV files of changes, with any names: one header line, every value of exactly its column's type."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import csv

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.files.base import AnyFiles, RowTaker, fit_hint, misfit
from tidefold.sources.ingest.parse_file import check_prefix, parse_file
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.completeness import Ending, begins_as_named, csv_ending
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.problems import FileProblem, report_unfit_schema, report_wrong_content
from tidefold.sources.landing.streams import Blocks, DamagedError, Fingerprint, unzip
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.column_aliases import own_names
from tidefold.sources.records.columnar_changes import Rules, of_text
from tidefold.sources.records.errors import RefusedRecordError

DELIMITERS = (",", ";", "\t", "|")
# No row is longer than this.
_BLOCK = 16 << 20


class CsvRules(Rules, frozen=True, kw_only=True):
    """How a CSV file is split into values.

    null: the texts, without quotes, that mean null.
    quote: the quote character; empty: none.
    escape: the character before a quote or delimiter that belongs to a value; empty: none.
    header: whether the first line has the names of the columns; or the names, if no line has them.
    skip: how many lines stand before the header line, or before the first row if no line has the names.
    encoding: of the text.
    timestamp_formats: of times that are not ISO 8601.
    """

    delimiter: str = ","
    null: tuple[str, ...] = ("",)
    quote: str = '"'
    escape: str = ""
    header: bool | tuple[str, ...] = True
    skip: int = 0
    encoding: str = "utf-8"
    timestamp_formats: tuple[str, ...] = ()


class Csv(AnyFiles):
    """`format: csv`."""

    endings = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
    rules_type = CsvRules
    rules: CsvRules

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return csv_ending(file, self.rules.quote.encode(), self.rules.escape.encode())

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: self._parse(stream, task, shape, quarantine))

    def _parse(self, stream: BinaryIO, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        file = task.file
        if not begins_as_named(stream, file):
            raise UnfitFileError(report_wrong_content(file.name))
        content = Fingerprint(stream, task.until)
        check_prefix(content, task)
        content.rewind()  # The file is read again from its header on.
        blocks = as_utf8(unzip(content.blocks()) if file.gzip else content.blocks(), self.rules.encoding)
        cast = partial(of_text, formats=self.rules.timestamp_formats)
        taker = RowTaker(file, shape, self.rules, cast, quarantine, task.records, task.horizon, bool(task.stops))
        try:
            self._take(Blocks(blocks), taker)
        except pa.ArrowInvalid as error:
            raise DamagedError(str(error).splitlines()[0]) from error
        return ParsedFile(taker.account, taker.to_table(), content.sha256)

    def _take(self, stream: Blocks, taker: RowTaker) -> None:
        uncut = _Uncut()
        for _ in range(self.rules.skip):
            stream.line(_BLOCK)
        # Every column stays bytes until its type is known; the header has the names.
        found = self._names(stream, taker.shape)
        names = own_names(taker.shape, found)
        if why := misfit(names, taker.shape, self.rules.beside):
            raise UnfitFileError(self._unfit(taker, why, found))
        convert = csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=list(self.rules.null),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names)
        parse = self._parse_options(newlines_in_values=bool(self.rules.quote), invalid_row_handler=uncut.take)
        if not stream.has_more:
            return
        with csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert) as reader:
            number = 0
            for batch in reader:
                numbers, number = uncut.numbers_of(batch.num_rows, number)
                taker.take(pa.Table.from_batches([batch]), numbers)
        for at, refused, text in uncut.rows:
            taker.refuse(at, refused, text)

    def _names(self, stream: Blocks, shape: TableSpec) -> list[str]:
        """The columns of the header line, or the configured ones."""
        if self.rules.header is not True:
            return list(self.rules.header or (column.name for column in shape.columns))
        head = stream.line(_BLOCK)
        parse = self._parse_options()
        return csv.read_csv(pa.BufferReader(head), parse_options=parse).column_names if head.strip() else []

    def _parse_options(self, **more: Any) -> csv.ParseOptions:
        rules = self.rules
        return csv.ParseOptions(
            delimiter=rules.delimiter, quote_char=rules.quote or False, escape_char=rules.escape or False, **more
        )

    def _unfit(self, taker: RowTaker, why: str, found: Sequence[str]) -> FileProblem:
        """The problem of other columns than configured, with a hint on a wrong delimiter or a missing header line."""
        name, shape = taker.file.name, taker.shape
        problem = report_unfit_schema(name, why, stops=taker.stops)
        near = next((c for c in DELIMITERS if c != self.rules.delimiter and len(found) == 1 and c in found[0]), None)
        if near:
            message = f"`{name}` has one column, `{found[0][:80]}`: its values are not separated by {self._delimiter}."
            hint = f"Set `delimiter: {json.dumps(near)}` under `source`. Nothing of the file was ingested."
            return replace(problem, message=message, hint=hint)
        known = {*(column.name for column in shape.columns), *self.rules.beside}
        problem = replace(problem, hint=fit_hint(own_names(shape, found), shape, self.rules.beside))
        if self.rules.header is True and not known & set(found):
            names = ", ".join([*self.rules.beside, *(c.name for c in shape.columns if c.name not in self.rules.beside)])
            hint = f"If its first line is a row, set `header: [{names}]` in the order of the file under `source`."
            return replace(problem, hint=hint)
        return problem

    @property
    def _delimiter(self) -> str:
        return json.dumps(self.rules.delimiter)


def as_utf8(blocks: Iterable[bytes], encoding: str) -> Iterable[bytes]:
    """The same text in UTF-8. Bytes that are not valid in the encoding stay, so that their row is refused."""
    if encoding == "utf-8":
        return blocks
    return _recode(blocks, encoding)


def _recode(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    for block in blocks:
        if text := decoder.decode(block):
            yield text.encode("utf-8", "surrogateescape")
    if rest := decoder.decode(b"", True):
        yield rest.encode("utf-8", "surrogateescape")


class _Uncut:
    """Rows with too few or too many values."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, RefusedRecordError, bytes]] = []

    def take(self, row: csv.InvalidRow) -> str:
        why = (
            f"The row has {row.actual_columns} values, but the header has {row.expected_columns}. "
            "A value that contains the delimiter must be in quotes."
        )
        self.rows.append((row.number, RefusedRecordError("FIELD_COUNT", why), row.text.encode()))
        return "skip"

    def numbers_of(self, count: int, before: int) -> tuple[Sequence[int], int]:
        """The numbers of the next `count` rows after number `before`, and the last of them."""
        uncut = {number for number, _, _ in self.rows if number > before}
        if not uncut:
            return range(before + 1, before + 1 + count), before + count
        numbers: list[int] = []
        while len(numbers) < count:
            before += 1
            if before not in uncut:
                numbers.append(before)
        return numbers, before
