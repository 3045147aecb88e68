"""Finds the record of a landed file that a change came from."""

from __future__ import annotations

from typing import BinaryIO

from tidefold.domain.log_state import LandedFileRecord, LogState
from tidefold.domain.source_progress import LOADED
from tidefold.domain.wording import choose_record_noun
from tidefold.errors import TidefoldError
from tidefold.sources.api import SchemaStopError, UnfitFileError, source_of
from tidefold.sources.debezium.json_source import KafkaLines
from tidefold.sources.feed import Feed
from tidefold.sources.landing import streams
from tidefold.sources.landing.folders import LINES, folder_at, start_in
from tidefold.sources.landing.plan import TakenFile

# A larger file is not read again.
_MOST_BYTES = 64 << 20
_CHANGED = "which has changed since"
_UNREADABLE = (
    OSError, ValueError, streams.CutShortError, streams.DamagedError, UnfitFileError, SchemaStopError, TidefoldError,
)  # fmt: skip


class RecordFinder:
    """Finds records in the landed files of one log; reads each file once."""

    def __init__(self, feed: Feed | None, state: LogState) -> None:
        self._feed = feed
        self._is_numbered = state.names is not None and not state.names.has_offsets
        # The number of each record by its offset; or why the file does not show it.
        self._files: dict[int, dict[int, int] | str] = {}

    def find(self, landed: LandedFileRecord, offset: int) -> str:
        """`line 3`, `row 3` or `record 3`, or why the file does not show it any more; empty: it is not known."""
        if self._feed is None:
            return ""
        noun = choose_record_noun(landed.name)
        if landed.partition == LOADED:
            return f"{noun} {offset - landed.first_offset + 1}"
        if landed.length > _MOST_BYTES:
            return f"{noun} {offset} when it was ingested" if self._is_numbered else ""
        if landed.number not in self._files:
            try:
                self._files[landed.number] = self._read(self._feed, landed)
            except streams.ShrunkError:
                self._files[landed.number] = _CHANGED
            except _UNREADABLE:
                self._files[landed.number] = "which cannot be read now"
        landed_file = self._files[landed.number]
        if isinstance(landed_file, str):
            return landed_file
        number = offset if self._is_numbered else landed_file.get(offset)
        return f"{noun} {number}" if number else ""

    def _read(self, feed: Feed, landed: LandedFileRecord) -> dict[int, int] | str:
        source = None if self._is_numbered else source_of(feed)
        if not (source is None or isinstance(source, KafkaLines)):
            return {}
        with folder_at(feed.path).open(landed.name) as stream:
            content = streams.Fingerprint(stream, landed.length)
            for _ in content.blocks():
                pass
            if content.sha256 != landed.checksum:
                return _CHANGED
            stream.seek(0)
            return _read_offsets(source, stream, feed, landed) if source else {}


def _read_offsets(source: KafkaLines, stream: BinaryIO, feed: Feed, landed: LandedFileRecord) -> dict[int, int]:
    start = start_in(landed.name.rpartition("/")[2])
    packed = streams.is_packed_name(landed.name)
    taken = TakenFile(landed.name, feed.path, landed.name, packed, landed.length, landed.checksum, start, ())
    lines = source.extensions == LINES
    chunks = streams.file_chunks(streams.read_blocks(stream, landed.length), packed=packed)
    texts = streams.number_lines(chunks) if lines else enumerate(source.texts(stream, taken), 1)
    offsets: dict[int, int] = {}
    for index, (number, text) in enumerate(texts):
        offset = source.find_offset(text)
        offsets.setdefault(start + index if offset is None else offset, number)
    return offsets
