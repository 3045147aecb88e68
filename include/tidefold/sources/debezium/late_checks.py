"""Which of two rows under one key a record means, if the source checks keys at the end of a transaction (decision 0069).

Such a source sends the `c` of a key that still has a row, then the `d` of that row. Only a complete `before` tells the
two rows apart, and PostgreSQL demands REPLICA IDENTITY FULL of a key that it checks late. This module follows the rows
that the current transaction put under each key.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from tidefold.changelog.schema import UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import ORACLE, POSTGRESQL, Engine
from tidefold.sources.records.accounting import ReaderPosition
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.record_types import NOTHING
from tidefold.sources.records.row_decoder import Rows
from tidefold.typed_json import make_decoder

REASON = "KEY_TAKEN_OVER"
# A transaction with more open keys forgets the oldest; a `before` is compared with so many others.
_MOST_KEYS, _MOST_IMAGES = 100_000, 16


def checks_late(shape: TableSpec) -> bool:
    """Whether the source may have two rows under one key within a transaction, and the engine keeps the newest."""
    kept = (Engine.LAST, Engine.PARTIAL, Engine.HISTORY)
    return bool(shape.key) and shape.order in (POSTGRESQL, ORACLE) and shape.merge.engine in kept


class _Image(msgspec.Struct):
    before: msgspec.Raw = NOTHING
    payload: msgspec.Raw = NOTHING
    value: msgspec.Raw = NOTHING


_images = make_decoder(_Image)


class _Occupant(msgspec.Struct):
    """A row that the transaction put under a key. changes: the numbers of the changes that wrote it."""

    row: Any
    changes: list[int]


class LateKeys:
    """The keys of one file's current transaction, each with the rows that the transaction put there, oldest first."""

    def __init__(self) -> None:
        self._transaction: Any = None
        self._open: dict[Any, list[_Occupant]] = {}
        # Lines with a `before`; empty after an update without one, which shows that `before` has keys alone.
        self._images: deque[bytes] = deque(maxlen=_MOST_IMAGES)
        self._has_keys_alone = False

    def follow(self, at: ReaderPosition, change: Any, record: Any, line: bytes) -> Any:
        """The change to append instead of this one; None: the record changes no row. Raises RefusedRecordError."""
        value, rows = record.value, record.rows
        transaction = change.order[0] if value.source.txId is None else value.source.txId
        if value.op in ("r", "t") or transaction != self._transaction:
            self._transaction, self._open = transaction, {}
        if value.op == "c":
            if len(self._open) >= _MOST_KEYS:
                del self._open[next(iter(self._open))]
            self._open.setdefault(rows.key_of(change.row), []).append(_Occupant(change.row, [at.next_change]))
        elif value.op in ("u", "d"):
            if value.op == "u":
                self._has_keys_alone = value.before is None
            if self._open and rows.key_of(change.row) in self._open:
                change = self._meet(at, change, rows, line)
            if value.before is not None:
                self._images.append(line)
        return change

    def _meet(self, at: ReaderPosition, change: Any, rows: Rows, line: bytes) -> Any:
        key = rows.key_of(change.row)
        there, before = self._open[key], _image_of(line, rows)
        met = next((one for one in reversed(there) if one.row == before), None)
        if met is None and self._is_of_another(before, there, rows):
            if change.op == UPSERT:
                raise _undecided("An update of the row that had this key before cannot be kept beside the new row.")
            # The row from before the transaction ends, so that another delete of the key means the new one.
            if len(there) == 1:
                del self._open[key]
            return None
        met = met or there[-1]
        if change.op == UPSERT:
            met.row = change.row
            met.changes.append(at.next_change)
            return change if met is there[-1] else None
        return self._end(at, change, key, met)

    def _end(self, at: ReaderPosition, change: Any, key: Any, met: _Occupant) -> Any:
        """A row that the transaction brought ends. What was under the key before it is there again."""
        there = self._open[key]
        is_newest = met is there[-1]
        there.remove(met)
        if not is_newest:
            return None
        if there:
            there[-1].changes.append(at.next_change)
            return msgspec.structs.replace(change, op=UPSERT, row=there[-1].row)
        del self._open[key]
        if not at.undo(met.changes):
            return change
        return None

    def _is_of_another(self, before: Any, there: list[_Occupant], rows: Rows) -> bool:
        """Whether `before` is that of a row which the transaction did not bring. Raises RefusedRecordError.

        A `before` with the key alone has one made-up value in each other column. So a column is real if it has two.
        """
        if before is None or self._has_keys_alone:
            return False
        differs = [name for name in rows.fields if all(getattr(one.row, name) != getattr(before, name) for one in there)]
        others = [image for line in self._images if (image := _image_of(line, rows)) is not None]
        if any(getattr(image, name) != getattr(before, name) for image in others for name in differs):
            return True
        if any(getattr(before, name) for name in differs):
            raise _undecided("Two rows may have had its key in this transaction, and no record shows which one it ends.")
        return False


def _undecided(why: str) -> RefusedRecordError:
    return RefusedRecordError(REASON, why)


def _image_of(line: bytes, rows: Rows) -> Any:
    """The `before` of a record as a row; None: it is none, or lacks columns."""
    data = msgspec.Raw(line)
    try:
        while (one := _images.decode(data)).before == NOTHING:
            data = one.value if one.value != NOTHING else one.payload
        return rows.image(one.before)
    except (msgspec.DecodeError, UnicodeDecodeError, RefusedRecordError):
        return None
