"""Files that have any name and rows without offsets: the base of their sources, and CSV."""

from __future__ import annotations

import codecs
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, BinaryIO, ClassVar

import msgspec
import pyarrow as pa
from pyarrow import csv

from tidefold.domain.log_state import LogState, TableSpec
from tidefold.sources.api import ParsedFile, UnfitFileError
from tidefold.sources.feed import Feed
from tidefold.sources.files.columns import explain_columns, misfit, or_land
from tidefold.sources.files.csv_marks import STRAY, CsvMarks
from tidefold.sources.landing.completeness import Ending, begins_as_named, csv_ending
from tidefold.sources.landing.folders import read_folders
from tidefold.sources.landing.listing import LandedFile, Listing, list_by_number
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import FileProblem, report_unfit_schema, report_wrong_content
from tidefold.sources.landing.streams import Blocks, DamagedError, Fingerprint, read_blocks, unzip
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.accounting import Account
from tidefold.sources.records.change_batches import ChangeSpool
from tidefold.sources.records.columnar_changes import Cast, Changes, Rules
from tidefold.sources.records.columnar_values import convert_texts
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.parse_file import check_prefix, find_lines, parse_file
from tidefold.sources.records.record_types import own_names
from tidefold.sources.records.text_forms import Spelling
from tidefold.typed_json import convert_value

DELIMITERS = (",", ";", "\t", "|")
# No row is longer than this.
_BLOCK = 16 << 20


class AnyFiles:
    """Progress is the path, size and checksum of each file."""

    endings: ClassVar[Sequence[str]]
    rules_type: ClassVar[type[Rules]] = Rules

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.rules = convert_value(feed.options, self.rules_type)

    def listing(self, state: LogState) -> Listing:
        return list_by_number(self.feed, self.endings, state)

    def reader(self, shape: TableSpec) -> None:
        """Returns None: a refused row is read again with its file."""


@dataclass
class RowTaker:
    """Takes the rows of one file, part by part.

    skip: how many rows were taken before.
    stops: whether other columns than configured stop the log.
    lines: see FileTask.
    """

    file: LandedFile
    shape: TableSpec
    rules: Rules
    cast: Cast
    quarantine: QuarantineWriter
    skip: int = 0
    horizon: int | None = None
    stops: bool = False
    lines: frozenset[int] | None = None
    account: Account = field(default_factory=Account)

    @cached_property
    def spool(self) -> ChangeSpool:
        return ChangeSpool(self.shape)

    @cached_property
    def _changes(self) -> Changes:
        return Changes(self.shape, self.rules, self.cast, self.horizon, self.file.time)

    @cached_property
    def folders(self) -> dict[str, pa.Scalar]:
        """The values of columns that the names of folders have."""
        values = read_folders(self.file.name)
        if missing := [name for name in self.rules.folder_columns if name not in values]:
            why = f"is in no folder `{missing[0]}=...`, as `folder_columns` requires"
            raise UnfitFileError(report_unfit_schema(self.file.name, why, stops=self.stops))
        names = own_names(self.shape, self.rules.folder_columns)
        texts = (values[name] for name in self.rules.folder_columns)
        return {n: pa.scalar(t and t.encode(), pa.binary()) for n, t in zip(names, texts, strict=True)}

    def take(self, rows: pa.Table, numbers: Sequence[int]) -> None:
        """`numbers`: the numbers of the rows in the file, 1 for the first."""
        for name, value in self.folders.items():
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        old = bisect_right(numbers, self.skip)
        rows, numbers = rows.slice(old), numbers[old:]
        if self.lines is not None:
            mine = [at for at, number in enumerate(numbers) if number in self.lines]
            rows, numbers = rows.take(mine), [numbers[at] for at in mine]
        if not numbers:
            return
        made = self._changes.make(rows, numbers)
        self.account.records += len(numbers)
        self.account.changes += made.table.num_rows
        self.account.ignored += made.ignored
        for row, refused in sorted(made.refused.items()):
            text = msgspec.json.encode(_texts(rows.slice(row, 1).to_pylist()[0]))
            self._refuse(numbers[row], refused, text)
        if made.table.num_rows:
            for batch in made.table.to_batches():
                self.spool.add(batch)

    def refuse(self, number: int, refused: RefusedRecordError, text: bytes) -> None:
        """Refuses a row that cannot be split into columns."""
        if number > self.skip and (self.lines is None or number in self.lines):
            self.account.records += 1
            self._refuse(number, refused, text)

    def _refuse(self, number: int, refused: RefusedRecordError, text: bytes) -> None:
        self.account.refused[refused.reason] = self.account.refused.get(refused.reason, 0) + 1
        self.quarantine.add(self.file.name, number, None, refused, text)

    def to_table(self) -> pa.Table | None:
        """Returns all changes. None: there are none."""
        return self.spool.to_table()


def _texts(row: dict[str, object]) -> dict[str, object]:
    """A row with values that JSON has."""

    def text(value: object) -> object:
        if isinstance(value, bytes):
            return value.decode("utf-8", errors="backslashreplace")
        return value if value is None or isinstance(value, bool | int | float | str) else str(value)

    return {name: text(value) for name, value in row.items()}


def number_rows(tables: Iterable[pa.RecordBatch], end: int) -> Iterator[tuple[pa.Table, range]]:
    """Each part with the numbers of its rows. `end`: of the row before."""
    for batch in tables:
        yield pa.Table.from_batches([batch]), range(end + 1, end + 1 + batch.num_rows)
        end += batch.num_rows


class CsvRules(Rules, frozen=True, kw_only=True):
    """How a CSV file is split into values.

    null: the texts, without quotes, that mean null.
    quoted_null: whether they mean null in quotes, too.
    quote: the quote character; empty: none.
    escape: the character before a quote or delimiter that belongs to a value; empty: none.
    header: whether the first line has the names of the columns; or the names, if no line has them.
    skip: how many lines stand before the header line, or before the first row if no line has the names.
    encoding: of the text.
    timestamp_formats: of times that are not ISO 8601.
    decimal, thousands: the characters within numbers; no thousands: empty.
    """

    delimiter: str = ","
    null: tuple[str, ...] = ("",)
    quoted_null: bool = False
    quote: str = '"'
    escape: str = ""
    header: bool | tuple[str, ...] = True
    skip: int = 0
    encoding: str = "utf-8"
    timestamp_formats: tuple[str, ...] = ()
    decimal: str = "."
    thousands: str = ""

    @property
    def spelling(self) -> Spelling:
        return Spelling(self.timestamp_formats, self.decimal, self.thousands, self.time_zone)


class Csv(AnyFiles):
    """`format: csv`."""

    endings = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst")
    rules_type = CsvRules
    rules: CsvRules

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return csv_ending(file, self.rules.quote.encode(), self.rules.escape.encode())

    def can_split(self, task: FileTask, shape: TableSpec) -> bool:
        # A file that has grown is read again from its header on.
        return not (self.rules.escape or self.rules.skip or task.begin) and self.rules.encoding == "utf-8"

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: self._parse(stream, task, shape, quarantine))

    def _parse(self, stream: BinaryIO, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        file = task.file
        if not begins_as_named(stream, file):
            raise UnfitFileError(report_wrong_content(file.name))
        content = Fingerprint(stream, task.until)
        check_prefix(content, task)
        content.rewind()  # The file is read again from its header on.
        cast = partial(convert_texts, spelling=self.rules.spelling)
        stops = bool(task.stops)
        taker = RowTaker(file, shape, self.rules, cast, quarantine, task.records, task.horizon, stops, task.lines)
        marks = self._marks
        try:
            heads = self._names(Blocks([marks.mark(stream.readline(_BLOCK))]), shape) if task.part else None
            first, end = find_lines(stream, task, marks.begins_outside)
            if task.parts > 1 and not marks.ends_outside(read_blocks(stream, end)):
                raise DamagedError("one of its parts ends within quotes")
            stream.seek(first if task.part else 0)
            blocks: Iterable[bytes] = read_blocks(stream, end) if task.part else content.blocks(end)
            blocks = as_utf8(unzip(blocks) if file.packed else blocks, self.rules.encoding)
            self._take(Blocks(marks.mark_blocks(blocks)), taker, heads)
        except pa.ArrowInvalid as error:
            raise DamagedError(str(error).splitlines()[0]) from error
        for _ in () if task.part else content.blocks():  # The checksum is that of all bytes.
            pass
        checksum = "" if task.part else content.sha256
        return ParsedFile(taker.account, taker.to_table(), checksum, taker.account.records)

    def _take(self, stream: Blocks, taker: RowTaker, heads: list[str] | None) -> None:
        """Takes the rows; the names of the columns come first, unless they are known."""
        uncut = _Uncut()
        for _ in range(self.rules.skip):
            stream.line(_BLOCK)
        # Every column stays bytes until its type is known; the header has the names.
        heads = self._names(stream, taker.shape) if heads is None else heads
        names = own_names(taker.shape, heads)
        if why := misfit([*names, *taker.folders], taker.shape, self.rules.beside_in(names)):
            raise UnfitFileError(self._unfit(taker, why, heads))
        convert = csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=self._marks.null_values,
            strings_can_be_null=True,
            quoted_strings_can_be_null=self.rules.quoted_null,
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
        if self.rules.header is True:
            return self._split(stream.line(_BLOCK))
        names = list(self.rules.header or (column.name for column in shape.columns))
        needed = self.rules.beside_in(())
        shorter = [name for name in names if name not in self.rules.beside or name in needed]
        is_shorter = shorter != names and len(self._split(stream.peek_line(_BLOCK))) == len(shorter)
        return shorter if is_shorter else names

    def _split(self, line: bytes) -> list[str]:
        parse = self._parse_options()
        return csv.read_csv(pa.BufferReader(line), parse_options=parse).column_names if line.strip() else []

    def _parse_options(self, **more: Any) -> csv.ParseOptions:
        rules = self.rules
        return csv.ParseOptions(
            delimiter=rules.delimiter, quote_char=rules.quote or False, escape_char=rules.escape or False, **more
        )

    def _unfit(self, taker: RowTaker, why: str, heads: Sequence[str]) -> FileProblem:
        """The problem of other columns than configured, with a hint on a wrong delimiter or a missing header line."""
        name, shape = taker.file.name, taker.shape
        problem = report_unfit_schema(name, why, stops=taker.stops)
        near = next((c for c in DELIMITERS if c != self.rules.delimiter and len(heads) == 1 and c in heads[0]), None)
        if near:
            message = f"`{name}` has one column, `{heads[0][:80]}`: its values are not separated by {self._delimiter}."
            hint = f"Set `delimiter: {json.dumps(near)}` under `source`. Nothing of the file was ingested."
            return replace(problem, message=message, hint=hint)
        expected = {*(column.name for column in shape.columns), *self.rules.beside}
        problem = replace(
            problem,
            hint=or_land(explain_columns([*own_names(shape, heads), *taker.folders], shape, self.rules.beside, name)),
        )
        if self.rules.header is True and not expected & set(heads):
            names = ", ".join([*self.rules.beside, *(c.name for c in shape.columns if c.name not in self.rules.beside)])
            hint = f"If its first line is a row, set `header: [{names}]` in the order of the file under `source`."
            return replace(problem, hint=hint)
        return problem

    @cached_property
    def _marks(self) -> CsvMarks:
        return CsvMarks.of(self.rules.delimiter, self.rules.quote, self.rules.escape, self.rules.null)

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
    """Rows with too few or too many values, and those with text behind a closing quote."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, RefusedRecordError, bytes]] = []

    def take(self, row: csv.InvalidRow) -> str:
        why = (
            f"The row has {row.actual_columns} values, but the header has {row.expected_columns}. "
            "A value that contains the delimiter must be in quotes."
        )
        refused, text = RefusedRecordError("FIELD_COUNT", why), row.text.encode()
        if STRAY in text:
            why = "Text stands behind the closing quote of a value. A quote in a value is written twice, or escaped."
            refused, text = RefusedRecordError("QUOTE_STRAY", why), re.sub(STRAY + b".", b"", text)
        self.rows.append((row.number, refused, text))
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
