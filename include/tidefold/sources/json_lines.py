"""Lines of JSON with their place in Kafka: told by each of them, or by the name of its file and its number there."""

from __future__ import annotations

import msgspec

from tidefold.sources.account import Accounting, Place
from tidefold.sources.records import Head
from tidefold.sources.refusal import RefusedRecordError, head_of

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
NULL = msgspec.Raw(b"null")


class Record(Head):
    """A record with its place in Kafka, and its time there (milliseconds since 1970)."""

    timestamp: int | None = None

    @property
    def time(self) -> int | None:
        """In microseconds, if it is known."""
        return self.timestamp * 1000 if self.timestamp is not None and 0 <= self.timestamp < 2**53 else None


class Lines:
    """Makes records of the lines of one file. `record`: `kafka` when they say their place, `value` when they do not."""

    def __init__(self, accounting: Accounting, place: Place, record: str) -> None:
        self._accounting = accounting
        self._place = place
        self._alone = record == "value"
        self._records = msgspec.json.Decoder(Record)
        self._values = msgspec.json.Decoder(msgspec.Raw)

    def record(self, line: bytes) -> Record:
        """Raises RefusedRecordError."""
        try:
            if not self._alone:
                return self._records.decode(line)
            self._accounting.offset = self._accounting.counted_offset
            value = self._values.decode(line)
        except UNDECODABLE as error:
            head_of(line)
            raise RefusedRecordError("NOT_A_RECORD", f"{error}.") from error
        return Record(self._place.topic, self._place.partition, self._accounting.counted_offset, value)
