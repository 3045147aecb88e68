"""What a slot of a real PostgreSQL brings, as records of a connector that began with it and has no offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from support.landing import record
from torture.servers import PostgresSession

# The first day of PostgreSQL, in microseconds since 1970.
_EPOCH = 946_684_800_000_000


class SlotStream:
    """The records of one slot, decoded from pgoutput. Columns are texts, as `id` and others of a table `items`."""

    def __init__(self, session: PostgresSession, slot: str = "tidefold", publication: str = "tidefold") -> None:
        self._session, self._slot, self._publication = session, slot, publication
        self._columns: list[str] = []
        self.commit, self.next, self.time = "null", 0, 0

    def read(self) -> list[dict[str, Any]]:
        """Returns the records since the last call."""
        query = f"""select lsn - '0/0', data from pg_logical_slot_get_binary_changes('{self._slot}', null, null,
            'proto_version', '1', 'publication_names', '{self._publication}')"""
        found = []
        for lsn, data in self._session.rows(query):
            message = bytes(data)
            if message[:1] == b"B":
                self.time = struct.unpack(">q", message[9:17])[0] + _EPOCH
            elif message[:1] == b"C":
                self.commit = f'"{struct.unpack(">q", message[10:18])[0]}"'
            elif message[:1] == b"R":
                self._columns = _read_columns(message)
            elif message[:1] in b"IUD":
                for op, row in _read_images(message):
                    found.append(self._make(op, row, f'[{self.commit},"{lsn}"]'))
                    self.next += 1
        return found

    def _make(self, op: str, values: list[str | None], sequence: str) -> dict[str, Any]:
        row: dict[str, Any] = dict(zip(self._columns, values, strict=True))
        row["id"] = int(row["id"])
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return record(self.next, row["id"], op, sequence=sequence, ts_us=self.time, **images)


def _read_images(message: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """Yields the operation and the row of each record; a changed key is a delete and an insert, as of Debezium."""
    row, end = _read_row(message, 6)
    if message[5:6] == b"N":
        yield {b"I": "c", b"U": "u"}[message[:1]], row
        return
    yield "d", row
    if message[:1] == b"U":
        yield "c", _read_row(message, end + 1)[0]


def _read_columns(message: bytes) -> list[str]:
    at = message.index(b"\0", message.index(b"\0", 5) + 1) + 2
    (count,) = struct.unpack(">h", message[at : at + 2])
    at, names = at + 2, []
    for _ in range(count):
        end = message.index(b"\0", at + 1)
        names.append(message[at + 1 : end].decode())
        at = end + 9
    return names


def _read_row(message: bytes, at: int) -> tuple[list[str | None], int]:
    (count,) = struct.unpack(">h", message[at : at + 2])
    at, values = at + 2, list[str | None]()
    for _ in range(count):
        if message[at : at + 1] != b"t":
            values.append(None)
            at += 1
            continue
        (size,) = struct.unpack(">i", message[at + 1 : at + 5])
        values.append(message[at + 5 : at + 5 + size].decode())
        at += 5 + size
    return values, at
