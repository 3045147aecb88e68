"""Debezium records as JSON lines, in files that a Kafka sink landed.

Also the base of all sources with files of a Kafka sink and one record on each line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import BinaryIO

import msgspec

from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.source_progress import LOADED, NameReading, list_streamed
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import NotFoundError
from tidefold.sources.api import ParsedFile, RecordReader
from tidefold.sources.debezium.envelope import envelope_reader
from tidefold.sources.debezium.loaded_rows import list_loaded
from tidefold.sources.feed import Feed
from tidefold.sources.landing.completeness import Ending, ending_of
from tidefold.sources.landing.folders import LINES, choose_reading, folder_at, is_dash_name, name_at
from tidefold.sources.landing.listing import LandedFile, Listing, list_by_number, list_landed, of_topic
from tidefold.sources.landing.plan import BEFORE, UNREADABLE, FileTask, TakenFile, TakenRecords
from tidefold.sources.landing.problems import FileProblem
from tidefold.sources.landing.streams import file_chunks, number_lines, read_blocks
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.accounting import FilePosition, ReaderPosition
from tidefold.sources.records.parse_file import parse_file, parse_lines
from tidefold.typed_json import make_decoder

# A tombstone does not say its transaction.
_TOMBSTONE = re.compile(rb'"value"\s*:\s*null')


class _Offset(msgspec.Struct):
    offset: int | None = None


_offsets = make_decoder(_Offset)


def offset_in(text: bytes) -> int | None:
    """Returns the offset in a record; None: it has none."""
    try:
        return _offsets.decode(text).offset
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class KafkaLines:
    """Progress is offset intervals; the newest file of a partition may still be written.

    extensions: of files that a Kafka sink names.
    endings: of files with any name, where a source takes such files too.
    """

    extensions: tuple[str, ...] = LINES
    endings: tuple[str, ...] = ()

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def listing(self, state: LogState) -> Listing:
        folder = self.feed.path
        configured = self.feed.options.get("names")
        reading = choose_reading(state, NameReading(configured) if configured else None)
        is_document = self.feed.options.get("record_path") is not None
        if is_document or state.shape.orders_by_file or (reading is not None and not reading.has_offsets):
            return list_by_number(self.feed, self.endings, state)
        names = [entry.name for entry in state.landed]
        form, left_out = reading or NameReading.KAFKA, self.feed.options.get("leave_out", ())
        files, problems = list_landed(folder, self.extensions, form, names, left_out)
        if reading is None and not files and self.takes_any_name(state.shape):
            return list_by_number(self.feed, self.endings, state)
        own, strange = of_topic(files, folder, [p.topic for p in list_streamed(state.positions)])
        return Listing(own, (*self._with_hints(problems, state), *strange))

    def takes_any_name(self, shape: TableSpec) -> bool:
        """Whether the log can ingest files whose names do not contain the offsets of their records."""
        return False

    def _with_hints(self, problems: Sequence[FileProblem], state: LogState) -> list[FileProblem]:
        """Adds hints to the problems of unusable names. If the log has ingested nothing yet, they are errors."""
        hints = {p.file: self._name_hint(p.file, state) for p in problems if p.code == "LANDED_NAME"}
        first = not state.landed
        return [replace(p, hint=hints[p.file], blocking=first) if p.file in hints else p for p in problems]

    def _name_hint(self, name: str, state: LogState) -> str:
        """Returns the configuration that makes tidefold ingest a file with this name, if there is one."""
        if is_dash_name(PurePosixPath(name).name, self.extensions):
            hint = "Did a Kafka sink write it as topic-partition-offset? Then set `source: {names: kafka-dash}`. "
        else:
            hint = ""
        stray = f"If it is a copy or no file of this log, remove it, or set `leave_out: [{json.dumps(name)}]` under "
        stray += "`source`."
        if state.landed:
            return f"{hint}If its records are new, land it under a name of that form. {stray}"
        if self.endings:
            append = "If each line is a row, set `names: any`: then a file may have any name. "
            columns = "Set `order: [COLUMN]` or `order: file`: then a file may have any name. "
            hint += append if state.shape.merge.engine is Engine.APPEND else columns
        ending = max((f".{e}" for e in self.extensions if name.endswith(f".{e}")), key=len, default="")
        return f"{hint}{'Otherwise land' if hint else 'Land'} it as `TOPIC+0+0000000000{ending}`. {stray}"

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return ending_of(file, taken)

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        at, reader = ReaderPosition(self.place_of(task), shape), self.line_reader(shape)
        return parse_file(task, lambda stream: parse_lines(stream, task, shape, at, reader, quarantine))

    def place_of(self, task: FileTask) -> FilePosition:
        """Returns the position of the task's file in its log."""
        file = task.file
        return FilePosition(
            file.topic,
            file.partition,
            file.start,
            next_offset=task.next_offset,
            taken=task.taken,
            stream=task.stream,
            records=task.records,
            horizon=task.horizon,
            alone=file.alone,
            time=file.time if file.is_numbered else None,
            earlier=TakenRecords(task.earlier, self._read_taken) if task.earlier else None,
            placeholder=self.feed.placeholder,
            name=file.name,
            before=partial(self._find_before, task),
            formers=task.formers,
        )

    def _find_before(self, task: FileTask, text: bytes) -> list[tuple[int, bytes]] | None:
        """See FilePosition.before."""
        found: list[tuple[int, bytes]] = []
        begun = [(task.file, task.records)] if task.records else []
        for file, records in [*begun, *((file, None) for file in task.before)]:
            taken = TakenFile(file.name, file.root, file.name, file.packed, file.size, "", file.start, ())
            here, is_first = [], True
            try:
                with folder_at(file.root).open(file.name) as stream:
                    for number, line in enumerate(islice(self.texts(stream, taken), records), file.start):
                        if text in line:
                            here.append((number, line))
                        elif not here and not _TOMBSTONE.search(line):
                            is_first = False
            except UNREADABLE:
                return None
            found[:0] = here
            if not is_first:
                return found
        is_first = (task.before or (task.file,))[-1].start <= task.log_begin or not task.next_offset
        return found if is_first and len(task.before) < BEFORE else None

    def texts(self, stream: BinaryIO, file: TakenFile) -> Iterator[bytes]:
        """Yields the text of each record of a file, as its reader gets it, up to the ingested length."""
        chunks = file_chunks(read_blocks(stream, file.length), packed=file.packed)
        return (line for _, line in number_lines(chunks))

    def find_offset(self, text: bytes) -> int | None:
        """Returns the offset in the record; None if offsets are counted."""
        return None

    def _read_taken(self, file: TakenFile) -> Iterator[tuple[int, bytes]]:
        """Yields offset and text of each record. In a file with offsets, a record without one was refused."""
        says: bool | None = None
        with folder_at(file.root).open(file.path) as stream:
            for number, text in enumerate(self.texts(stream, file)):
                offset = self.find_offset(text)
                says = offset is not None if says is None else says
                if offset is not None or not says:
                    yield file.start + number if offset is None else offset, text

    def line_reader(self, shape: TableSpec) -> RecordReader:
        """Returns the reader of the lines of a file; usually the same that reads refused records again."""
        reader = self.reader(shape)
        assert reader is not None
        return reader

    def reader(self, shape: TableSpec) -> RecordReader | None:
        """See Source."""
        raise NotImplementedError


class DebeziumJson(KafkaLines):
    """`format: debezium-json`. Its log may begin with rows that were loaded from the database."""

    def listing(self, state: LogState) -> Listing:
        loaded = list_loaded(str(self.feed.options.get("loaded", "")), name_at(self.feed.path), state)
        try:
            landed = super().listing(state)
        except NotFoundError:
            if not loaded:  # Else the stream has not begun to land.
                raise
            landed = Listing(())
        return replace(landed, files=(*loaded, *landed.files))

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return Ending(file.size) if file.partition == LOADED else self.find_ending(file, taken)

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        if task.file.partition == LOADED:
            # Loads what the files of rows need: seldom wanted.
            from tidefold.sources.debezium.loaded_file import parse_loaded

            return parse_loaded(task, shape, quarantine)
        return self.parse_landed(task, shape, quarantine)

    def find_ending(self, file: LandedFile, taken: int) -> Ending:
        """Does what `ending` does for a file that landed."""
        return super().ending(file, taken)

    def parse_landed(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        """Does what `parse` does for a file that landed."""
        return super().parse(task, shape, quarantine)

    def reader(self, shape: TableSpec) -> RecordReader:
        return envelope_reader(shape)

    def find_offset(self, text: bytes) -> int | None:
        return offset_in(text)
