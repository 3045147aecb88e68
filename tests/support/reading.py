"""A file that a test reads record by record."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.sources.api import RecordReader
from tidefold.sources.records.accounting import Account, Batch, ReaderPosition


@dataclass
class FileReading:
    """The reader of a log, and its position in one file."""

    reader: RecordReader
    at: ReaderPosition

    def take(self, line: bytes) -> None:
        self.at.begin(line, self.at.number + 1)
        self.at.preview(line)
        self.reader(self.at, line)

    @property
    def account(self) -> Account:
        self.at.account.stream = self.at.stream.position
        return self.at.account

    @property
    def batch(self) -> Batch:
        return self.at.batch
