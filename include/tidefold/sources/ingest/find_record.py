"""Finds the record of a landed file that a change came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from tidefold.domain.wording import choose_record_noun
from tidefold.errors import TidefoldError
from tidefold.sources.api import Feed, SchemaStopError, Source, UnfitFileError
from tidefold.sources.debezium.json_source import KafkaLines
from tidefold.sources.files.base import AnyFiles
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.ingest.taken_records import TakenFile
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.names import LINES, start_in
from tidefold.sources.landing.streams import CutShortError, DamagedError, Fingerprint, ShrunkError, file_chunks
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.registry import source_of

if TYPE_CHECKING:
    from tidefold.domain.log_state import LandedFileRecord, LogState

# A larger file is not read again.
_MOST_BYTES = 64 << 20
_UNREADABLE = (
    OSError, ValueError, CutShortError, DamagedError, ShrunkError, UnfitFileError, SchemaStopError, TidefoldError,
)  # fmt: skip


class RecordFinder:
    """Finds records in the landed files of one log; reads each file once."""

    def __init__(self, feed: Feed | None, state: LogState) -> None:
        self._feed, self._state = feed, state
        self._files: dict[int, dict[int, int]] = {}
        self._listed: dict[str, LandedFile] | None = None

    def find(self, landed: LandedFileRecord, offset: int) -> str:
        """`line 3`, `row 3` or `record 3`; empty if the file is gone, edited or too large, or does not show it."""
        if self._feed is None or landed.length > _MOST_BYTES:
            return ""
        if landed.number not in self._files:
            try:
                self._files[landed.number] = self._read(self._feed, landed)
            except _UNREADABLE:
                self._files[landed.number] = {}
        number = self._files[landed.number].get(offset)
        return f"{choose_record_noun(landed.name)} {number}" if number else ""

    def _read(self, feed: Feed, landed: LandedFileRecord) -> dict[int, int]:
        """The number of each record by its offset."""
        source = source_of(feed)
        if isinstance(source, KafkaLines) and landed.next_offset:
            with folder_at(feed.path).open(landed.name) as stream:
                return _read_offsets(source, stream, feed, landed)
        if isinstance(source, KafkaLines | AnyFiles):
            return self._read_contents(source, landed)
        return {}

    def _read_contents(self, source: Source, landed: LandedFileRecord) -> dict[int, int]:
        """Rows of files with any names: their offset is computed from their content."""
        if self._listed is None:
            self._listed = {file.name: file for file in source.listing(self._state).files}
        file = self._listed.get(landed.name)
        if file is None:
            return {}
        with _RefusedNumbers() as refused:
            parsed = source.parse(FileTask(file, landed.length), self._state.shape, refused)
            if parsed.checksum != landed.checksum or parsed.table is None:
                return {}
            if isinstance(source, KafkaLines):
                with folder_at(file.root).open(file.name) as stream:
                    numbers: Sequence[int] = [number for number, _ in _number_lines(stream, landed)]
            else:
                numbers = range(1, parsed.account.records + 1)
        kept = [number for number in numbers if number not in refused.numbers]
        offsets = parsed.table.column("_offset").to_pylist()
        # A row that does not count is no change: then the numbers do not show which row is which.
        return dict(zip(offsets, kept, strict=True)) if len(kept) == len(offsets) else {}


class _RefusedNumbers(QuarantineWriter):
    """Keeps the numbers of refused records alone."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: set[int] = set()

    def add(self, file: str, line: int, offset: int | None, refused: RefusedRecordError, record: bytes) -> None:
        """See QuarantineWriter."""
        self.numbers.add(line)


def _read_offsets(source: KafkaLines, stream: BinaryIO, feed: Feed, landed: LandedFileRecord) -> dict[int, int]:
    content = Fingerprint(stream, landed.length)
    for _ in content.blocks():
        pass
    if content.sha256 != landed.checksum:
        return {}
    stream.seek(0)
    start = start_in(landed.name.rpartition("/")[2])
    gzip = landed.name.endswith(".gz")
    taken = TakenFile(landed.name, feed.path, landed.name, gzip, landed.length, landed.checksum, start, ())
    lines = source.extensions == LINES
    texts = _number_lines(stream, landed) if lines else enumerate(source.texts(stream, taken), 1)
    found: dict[int, int] = {}
    for index, (number, text) in enumerate(texts):
        said = source.find_offset(text)
        found.setdefault(start + index if said is None else said, number)
    return found


def _number_lines(stream: BinaryIO, landed: LandedFileRecord) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    number = 0
    for chunk in file_chunks(Fingerprint(stream, landed.length).blocks(), gzip=landed.name.lower().endswith(".gz")):
        for line in chunk.lines:
            number += 1
            if line and not line.isspace():
                yield number, line
