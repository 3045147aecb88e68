"""CSV files of changes, with any names: one header line, every value of exactly its column's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
from pyarrow import csv

from tidefold.domain.log_state import Shape
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.files.base import AnyFiles, RowTaker, misfit
from tidefold.sources.ingest.parse_file import check_prefix, parse_file
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.completeness import Ending, begins_as_named, csv_ending
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.problems import unfit_schema, wrong_content
from tidefold.sources.landing.streams import Blocks, DamagedError, Fingerprint, unzipped
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.column_aliases import own_names
from tidefold.sources.records.columnar_changes import Rules, of_text
from tidefold.sources.records.errors import RefusedRecordError

# No row is longer than this.
_BLOCK = 16 << 20


class CsvRules(Rules, frozen=True, kw_only=True):
    """How a CSV file is cut into values. `null`: the texts, not in quotes, that are no value."""

    delimiter: str = ","
    null: tuple[str, ...] = ("",)


class Csv(AnyFiles):
    """`format: csv`."""

    endings = (".csv", ".csv.gz")
    rules_type = CsvRules
    rules: CsvRules

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return csv_ending(file)

    def parse(self, task: FileTask, shape: Shape, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: self._parse(stream, task, shape, quarantine))

    def _parse(self, stream: BinaryIO, task: FileTask, shape: Shape, quarantine: QuarantineWriter) -> ParsedFile:
        file = task.file
        if not begins_as_named(stream, file):
            raise UnfitFileError(wrong_content(file.name))
        content = Fingerprint(stream, task.until)
        check_prefix(content, task)
        content.rewind()  # It is read again from its header on.
        blocks = unzipped(content.blocks()) if file.gzip else content.blocks()
        taker = RowTaker(file, shape, self.rules, of_text, quarantine, task.records, task.horizon, bool(task.stops))
        try:
            self._take(Blocks(blocks), taker)
        except pa.ArrowInvalid as error:
            raise DamagedError(str(error).splitlines()[0]) from error
        return ParsedFile(taker.account, taker.table, content.sha256)

    def _take(self, stream: Blocks, taker: RowTaker) -> None:
        uncut = _Uncut()
        # Every column stays bytes until its type is known; which ones there are says the header.
        head = stream.line(_BLOCK)
        names = self._names(head)
        names = own_names(taker.shape, names)
        if why := misfit(names, taker.shape, self.rules.beside):
            raise UnfitFileError(unfit_schema(taker.file.name, why, stops=taker.stops))
        convert = csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=list(self.rules.null),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names)
        parse = csv.ParseOptions(
            delimiter=self.rules.delimiter, newlines_in_values=True, invalid_row_handler=uncut.take
        )
        if not stream.has_more:
            return
        with csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert) as reader:
            number = 0
            for batch in reader:
                numbers, number = uncut.numbers_of(batch.num_rows, number)
                taker.take(pa.Table.from_batches([batch]), numbers)
        for at, refused, text in uncut.rows:
            taker.refuse(at, refused, text)

    def _names(self, head: bytes) -> list[str]:
        """The columns of the header line."""
        parse = csv.ParseOptions(delimiter=self.rules.delimiter)
        return csv.read_csv(pa.BufferReader(head), parse_options=parse).column_names if head.strip() else []


class _Uncut:
    """Rows with too few or too many values."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, RefusedRecordError, bytes]] = []

    def take(self, row: csv.InvalidRow) -> str:
        why = f"The row has {row.actual_columns} values, the header {row.expected_columns}."
        self.rows.append((row.number, RefusedRecordError("FIELD_COUNT", why), row.text.encode()))
        return "skip"

    def numbers_of(self, count: int, before: int) -> tuple[Sequence[int], int]:
        """The numbers of so many rows that come after number `before`, and the last of them."""
        uncut = {number for number, _, _ in self.rows if number > before}
        if not uncut:
            return range(before + 1, before + 1 + count), before + count
        numbers: list[int] = []
        while len(numbers) < count:
            before += 1
            if before not in uncut:
                numbers.append(before)
        return numbers, before
