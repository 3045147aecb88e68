"""Which of two rows under one key a record means, if the source checks keys late, at the end of a transaction.

Such a source sends the `c` of a key that still has a row, then the `d` of that row. Only a complete `before` tells the
two rows apart. PostgreSQL has it for each key that it checks late: that needs REPLICA IDENTITY FULL (decision 0069).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from tidefold.changelog.schema import UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import ORACLE, POSTGRESQL, Engine
from tidefold.sources.records.accounting import OrderPoint, ReaderPosition
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.record_types import NOTHING
from tidefold.sources.records.row_decoder import Rows
from tidefold.typed_json import make_decoder

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


class _Occupant(msgspec.Struct, gc=False):
    """A row that the transaction put under a key.

    order, offsets: of its insert, and of all its records.
    is_moved: it had another key before.
    is_here: all its records are in this file.
    """

    row: Any
    order: OrderPoint
    offsets: tuple[int, ...]
    is_moved: bool
    is_here: bool = True


class _Key(msgspec.Struct):
    """A key in a transaction.

    rows: what the transaction put there, oldest first.
    settled: the order of the last record that changed no row; the source may send it again.
    is_free: the row from before the transaction ended after another row came.
    is_unclear: an earlier file brought a row that ended under another one.
    """

    rows: list[_Occupant] = msgspec.field(default_factory=list)
    settled: OrderPoint = ()
    is_free: bool = False
    is_unclear: bool = False


class LateKeys:
    """The keys of the transaction that is read from one file."""

    def __init__(self) -> None:
        self.transaction: Any = None
        # Whether the transaction may have begun in an earlier file that was not looked at.
        self.asks = True
        self.is_blind = False
        # A key that has one row is that row, and one whose row from before ended is None: most never mean more.
        self._open: dict[Any, _Key | _Occupant | None] = {}
        # Lines with a `before`.
        self._images: deque[bytes] = deque(maxlen=_MOST_IMAGES)
        # The last update had no `before`: then that of a delete has the key alone.
        self._has_keys_alone = False

    def begin(self, transaction: Any) -> None:
        """Begins a transaction. Only the first one of a file may have begun before it."""
        self.asks, self.is_blind = self.asks and self.transaction is None, False
        self.transaction = transaction
        if self._open:
            self._open = {}

    def adopt(self, earlier: LateKeys | None) -> None:
        """Adds what earlier files brought of the transaction; None: they are gone."""
        self.asks, self.is_blind = False, earlier is None
        if earlier is None:
            return
        for key in earlier._open:
            one, rows = earlier._hold(key), self._hold(key).rows if key in self._open else []
            for row in one.rows:
                row.is_here = False
            one.rows += rows
            self._open[key] = one
        self._images.extendleft(reversed(earlier._images))

    def follow(self, at: ReaderPosition, change: Any, record: Any, line: bytes) -> Any:
        """The change to append instead of this one; None: the record changes no row. Raises RefusedRecordError."""
        value, rows = record.value, record.rows
        op = value.op
        if op == "u":
            self._has_keys_alone = value.before is None
        if op == "t":
            self._open = {}
        elif op == "c":
            if not self._has_keys_alone:
                self._add(
                    rows.key_of(change.row),
                    _Occupant(change.row, change.order, (at.known_offset,), at.deleted == change.order),
                )
        elif op == "d" or self._open or self.is_blind:
            key = rows.key_of(change.row)
            if key in self._open:
                change = self._meet(at, change, rows, line)
            elif self.is_blind and value.before is not None:
                self._is_of_another(_image_of(line, rows), (), rows)
            elif op == "d" and not self._has_keys_alone:
                self._add(key, None)
        if value.before is not None:
            self._images.append(line)
        return change

    def _add(self, key: Any, row: _Occupant | None) -> None:
        """Puts a row under a key; None: the row that was there ended."""
        if key not in self._open:
            if len(self._open) >= _MOST_KEYS:
                del self._open[next(iter(self._open))]
            self._open[key] = row
            return
        there = self._hold(key).rows
        if row and there and (there[-1].order, there[-1].row) == (row.order, row.row):
            there[-1].offsets += row.offsets  # It was sent again.
        elif row:
            there.append(row)

    def _hold(self, key: Any) -> _Key:
        one = self._open[key]
        if not isinstance(one, _Key):
            one = self._open[key] = _Key([one] if one else [], is_free=one is None)
        return one

    def _meet(self, at: ReaderPosition, change: Any, rows: Rows, line: bytes) -> Any:
        one, before = self._hold(rows.key_of(change.row)), _image_of(line, rows)
        if one.settled == change.order and change.op != UPSERT:
            return None
        met = next((row for row in reversed(one.rows) if before and astuple(row.row) == astuple(before)), None)
        if met is None and one.rows and not one.is_free and self._is_of_another(before, one.rows, rows):
            if change.op == UPSERT:
                raise _refuse("It changes a row whose key another row has taken.")
            one.is_free, one.settled = True, change.order
            return None
        if met is None and change.op != UPSERT:
            # Its `before` has the key alone: the source checks the key at once, and the newest row ends.
            one.rows.clear()
        if not one.rows:
            return change
        met = met or one.rows[-1]
        if change.op == UPSERT:
            met.row = change.row
            if met is not one.rows[-1]:
                return None
            met.offsets += (at.known_offset,)
            return change
        return self._end(at, change, one, met)

    def _end(self, at: ReaderPosition, change: Any, one: _Key, met: _Occupant) -> Any:
        """A row that the transaction brought ends. What was under the key before it is there again."""
        is_newest = met is one.rows[-1]
        one.rows.remove(met)
        if is_newest and one.rows:
            one.rows[-1].offsets += (at.known_offset,)
            return msgspec.structs.replace(change, op=UPSERT, row=one.rows[-1].row)
        if is_newest and one.is_free:
            return change
        if is_newest and (one.is_unclear or not met.is_here):
            if one.is_unclear or met.is_moved:
                raise _refuse("Its row came with an earlier file, and may have taken the key of another row.")
            return change
        one.settled = change.order
        if met.is_here:
            at.undo(met.offsets)
        one.is_unclear |= not met.is_here
        return None

    def _is_of_another(self, before: Any, there: Sequence[_Occupant], rows: Rows) -> bool:
        """Whether `before` is that of a row which the transaction did not bring. Raises RefusedRecordError.

        A `before` with the key alone has one made-up value in each other column. So a column is real if it has two.
        """
        if before is None or self._has_keys_alone:
            return False
        told = {name: getattr(before, name) for name in rows.values}
        differs = [name for name in told if all(getattr(one.row, name) != told[name] for one in there)]
        others = [image for line in self._images if (image := _image_of(line, rows)) is not None]
        if there and any(getattr(image, name) != told[name] for image in others for name in differs):
            return True
        if any(told[name] for name in differs):
            raise _refuse("Two rows may have had its key in this transaction. No record shows which one it ends.")
        return False


def _refuse(why: str) -> RefusedRecordError:
    return RefusedRecordError("KEY_TAKEN_OVER", why)


def _image_of(line: bytes, rows: Rows) -> Any:
    """The `before` of a record as a row; None: it is none, or lacks columns."""
    data = msgspec.Raw(line)
    try:
        while (one := _images.decode(data)).before == NOTHING:
            data = one.value if one.value != NOTHING else one.payload
        return rows.image(one.before)
    except (msgspec.DecodeError, UnicodeDecodeError, RefusedRecordError):
        return None
