"""Writes refused records to a log's quarantine: one JSON line each, with reason and position."""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from types import TracebackType
from typing import BinaryIO, Self, cast

import msgspec

from tidefold.sources.records.errors import RefusedRecordError
from tidefold.storage import Store, compute_sha256

KEPT_TEXT = 8 << 10
_IN_MEMORY = 4 << 20


class Quarantined(msgspec.Struct, frozen=True):
    """A refused record, as stored.

    record: its text, cut off at 8 KiB.
    offset: null if it could not be read.
    order: its order in the source, if it was new (null: the source or the record has none).
    early: as in StreamPosition, when it was refused.
    since: as in RefusedRecordError.
    """

    file: str
    line: int
    offset: int | None
    reason: str
    detail: str
    record: str
    order: tuple[int, ...] | None = None
    early: tuple[int, ...] = ()
    since: tuple[int, ...] = ()


class QuarantineWriter:
    """Collects the refused records of one task; nothing is stored before `store`."""

    def __init__(self) -> None:
        self._spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 (closed by __exit__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._spool.close()

    def add(self, file: str, line: int, offset: int | None, refused: RefusedRecordError, record: bytes) -> None:
        text = record[:KEPT_TEXT].decode("utf-8", errors="backslashreplace")
        told = refused.reason, refused.detail, text, refused.order, refused.early, refused.since
        self.write(Quarantined(file, line, offset, *told))

    def write(self, entry: Quarantined) -> None:
        """Adds a record that was refused before."""
        self._spool.write(msgspec.json.encode(entry) + b"\n")

    def mark(self) -> int:
        """Where the records of the next file begin."""
        return self._spool.tell()

    def drop_after(self, mark: int) -> None:
        """Drops the records of a file that cannot be taken."""
        self._spool.seek(mark)
        self._spool.truncate()

    def store(self, store: Store, folder: str) -> str | None:
        """Stores the collected records, and returns the path. Writes no file if there are none: None."""
        if self.mark() == 0:
            return None
        self._spool.seek(0)
        path = name_quarantine(folder, compute_sha256(cast(BinaryIO, self._spool)))
        self._spool.seek(0)
        with store.create(path) as stream:
            shutil.copyfileobj(self._spool, stream)
        return path


class FirstRefusal(QuarantineWriter):
    """Keeps the first refused record of a file alone. A row that cannot be split comes after those behind it."""

    line: int = 0
    refused: RefusedRecordError | None = None

    def add(self, file: str, line: int, offset: int | None, refused: RefusedRecordError, record: bytes) -> None:
        if self.refused is None or line < self.line:
            self.line, self.refused = line, refused


def name_quarantine(folder: str, sha256: str) -> str:
    """Returns a new path for refused records. Its name proves them: no ledger has their checksum."""
    return f"{folder}/{uuid.uuid4().hex}-{sha256}.jsonl"


def sha256_of(path: str) -> str:
    """Returns the checksum that the name of a quarantine file has; of another name nothing, which proves no bytes."""
    match = re.search(r"-([0-9a-f]{64})\.jsonl$", path)
    return match[1] if match else ""
