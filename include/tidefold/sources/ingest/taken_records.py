"""Compares records whose offsets were taken before with the landed files that brought them.

Two files of a partition overlap if a sink exports a range again, if a file is renamed, or if two producers count from
the same beginning. Only the text of a record distinguishes these cases, never its number alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.streams import BLOCK, CutShortError, DamagedError, ShrunkError

_BEYOND = 1 << 63
_UNREADABLE = (OSError, ValueError, CutShortError, DamagedError, ShrunkError)


class Match(Enum):
    """Whether the file that brought an offset has the same record there."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A landed file that brought offsets which another file of its partition may bring again.

    name: as the ledger has it.
    root, path: folder of the log, and where the file lies in it now; an empty path: it is gone.
    gzip: whether its bytes are zipped.
    length, checksum: how many bytes were taken, and their sha256.
    start: the offset that its name says; -1 when it says none.
    taken: the offsets that it brought, as ordered intervals [first, next).
    """

    name: str
    root: str
    path: str
    gzip: bool
    length: int
    checksum: str
    start: int
    taken: tuple[tuple[int, int], ...]

    def covers(self, offset: int) -> bool:
        """Whether an offset is among those that the file brought."""
        return any(first <= offset < end for first, end in self.taken)


# The records of a taken file with their offsets, in the order of the file.
ReadRecords = Callable[[TakenFile], Iterator[tuple[int, bytes]]]


@dataclass(slots=True)
class TakenRecords:
    """The records that a partition has taken, read again side by side with a file that brings their offsets.

    files: the files that brought them.
    """

    files: Sequence[TakenFile]
    read: ReadRecords
    _intact: dict[str, bool] = field(default_factory=dict)
    _open: TakenFile | None = None
    _records: Iterator[tuple[int, bytes]] = field(default_factory=lambda: iter(()))
    _asked: int = -1
    _offset: int = -1
    _text: bytes = b""

    def compare(self, offset: int, text: bytes) -> tuple[Match, str]:
        """Whether the record taken at this offset has this text, and the name of the file that brought it."""
        file = next((f for f in self.files if f.covers(offset)), None)
        if file is None or not self._is_intact(file):
            return Match.UNKNOWN, file.name if file else ""
        try:
            if self._open is not file or offset < self._asked:
                self._open, self._records, self._offset = file, self.read(file), -1
            self._asked = offset
            # Skips records whose offsets fall back: they were refused.
            while self._offset < offset:
                found = next(self._records, (_BEYOND, b""))
                if found[0] > self._offset:
                    self._offset, self._text = found
        except _UNREADABLE:
            self._intact[file.name] = False
            return Match.UNKNOWN, file.name
        same = self._offset == offset and self._text == text
        return Match.SAME if same else Match.OTHER, file.name

    def _is_intact(self, file: TakenFile) -> bool:
        """Whether the file still has the bytes that were ingested."""
        if file.name not in self._intact:
            self._intact[file.name] = bool(file.path) and _has_bytes(file)
        return self._intact[file.name]


def _has_bytes(file: TakenFile) -> bool:
    digest, left = hashlib.sha256(), file.length
    try:
        with folder_at(file.root).open(file.path) as stream:
            while left and (block := stream.read(min(left, BLOCK))):
                digest.update(block)
                left -= len(block)
    except OSError:
        return False
    return not left and digest.hexdigest() == file.checksum
