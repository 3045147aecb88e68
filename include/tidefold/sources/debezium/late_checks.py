"""Which of two rows under one key a record means, if the source checks keys late, at the end of a transaction.

Such a source sends the `c` of a key that still has a row, then the `d` of that row. Only a complete `before` tells the
two rows apart. PostgreSQL has it for each key that it checks late: that needs REPLICA IDENTITY FULL. Where records do
not tell whether the key had a row before the transaction, the log does, once it has the file (decision 0069).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from operator import attrgetter
from typing import Any

import msgspec

from tidefold.changelog.schema import UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import ORACLE, POSITION, POSTGRESQL, Engine
from tidefold.sources.records.accounting import ReaderPosition
from tidefold.sources.records.errors import KEY_TAKEN_OVER, RefusedRecordError
from tidefold.sources.records.record_types import NOTHING, NULL, field
from tidefold.sources.records.row_decoder import Rows
from tidefold.sources.records.stream_order import OrderPoint
from tidefold.typed_json import make_decoder

# A transaction with more open keys forgets the oldest, but for a mark; a `before` is compared with so many others.
_MOST_KEYS, _MOST_IMAGES, _MARKS = 100_000, 16, 1 << 23
_UNKNOWN: Any = object()
_UNREAD = (msgspec.DecodeError, UnicodeDecodeError, RefusedRecordError)
# A `before` with values that cannot be read, as after a change of a type that the log does not know yet.
UNREADABLE: Any = object()
# Returns the complete row in the `before` of a record; None: it lacks columns.
Image = Callable[[], Any]
# Returns the keys of a transaction after its records in earlier files; None: they are gone.
Recall = Callable[[Any], "LateKeys | None"]


class _Images(msgspec.Struct):
    before: msgspec.Raw = NOTHING
    after: msgspec.Raw = NOTHING
    payload: msgspec.Raw = NOTHING
    value: msgspec.Raw = NOTHING


_images, _values = make_decoder(_Images).decode, make_decoder(dict[str, msgspec.Raw]).decode


def checks_late(shape: TableSpec) -> bool:
    """Whether the source may have two rows under one key within a transaction, and the engine keeps the newest."""
    kept = (Engine.LAST, Engine.PARTIAL, Engine.HISTORY)
    return bool(shape.key) and shape.order in (POSTGRESQL, ORACLE, POSITION) and shape.merge.engine in kept


class _Occupant(msgspec.Struct, gc=False):
    """A row that the transaction put under a key.

    row: None: its record was refused.
    order, offsets: of its insert, and of all its records.
    is_here: all its records are in this file.
    """

    row: Any
    order: OrderPoint
    offsets: tuple[int, ...] = ()
    is_here: bool = True


class _Key(msgspec.Struct):
    """A key in a transaction.

    rows: what the transaction put there, oldest first.
    since: the order of its first record.
    settled: the last record that changed no row; the source may send it again.
    is_free: the row from before the transaction ended.
    is_unclear: an earlier file brought a row that ended under another one.
    is_doubted: a record was refused, so `rows` may be wrong.
    had: whether the log had a row before the transaction; None: nobody has looked.
    """

    rows: list[_Occupant] = msgspec.field(default_factory=list)
    since: OrderPoint = ()
    settled: Any = None
    is_free: bool = False
    is_unclear: bool = False
    is_doubted: bool = False
    had: bool | None = None


class LateKeys:
    """The keys of the transaction that is read from one file."""

    def __init__(self, shape: TableSpec, *, lacks_before: bool = False) -> None:
        """`lacks_before`: no update has a `before`, whatever the source knows."""
        self._lacks_before = lacks_before
        # A row that came and ended is a version: whether it took the place of another must be known.
        self._keeps_all = shape.merge.engine is Engine.HISTORY
        self.transaction: Any = None
        # Whether the transaction may have begun in an earlier file that was not looked at.
        self.asks = True
        self.is_blind = False
        self._values = {field(i): one.name for i, one in enumerate(shape.columns) if one.name not in shape.key}
        self._told = attrgetter(*(field(i) for i in range(len(shape.columns))))
        # What a retry knows of keys at the end of the transaction before.
        self._had: dict[Hashable, bool | None] = {}
        # The order of the first record that was followed.
        self._begun: OrderPoint = ()
        # A key that has one row is that row, and one whose row from before ended is None: most never mean more.
        self._open: dict[Hashable, _Key | _Occupant | None] = {}
        # A bit for each row that was forgotten.
        self._forgotten = bytearray()
        self._images: deque[Image] = deque(maxlen=_MOST_IMAGES)
        # Where records have no order: marks of those of the transaction, and the key of the last delete.
        self._sent = set[int]()
        self.deleted: Hashable = None
        # The last update had no `before`: then that of a delete has the key alone.
        self._has_keys_alone = False

    @property
    def is_watching(self) -> bool:
        """Whether an update may mean another row than that of its key."""
        return bool(self._open) or self.is_blind or self.asks

    def was_sent(self, transaction: Any, recall: Recall | None, *mark: Hashable) -> bool:
        """Whether the transaction has this record already: a connector that was started again sends it once more."""
        self._begin(transaction)
        if recall and self.asks:
            self._adopt(recall(transaction))
        was_sent = hash(mark) in self._sent
        if len(self._sent) < _MOST_KEYS:
            self._sent.add(hash(mark))
        return was_sent

    def _begin(self, transaction: Any) -> None:
        """Begins a transaction, if it is another one. Only the first one of a file may have begun before it."""
        if transaction == self.transaction:
            return
        self.asks, self.is_blind = self.asks and self.transaction is None, False
        self.transaction, self._begun, self._sent = transaction, (), set()
        if self._open:
            if self._had:
                self._had |= {key: _has_row(one) for key, one in self._open.items()}
            self._open, self._forgotten = {}, bytearray()

    def _adopt(self, earlier: LateKeys | None) -> None:
        """Adds what earlier files brought of the transaction; None: they are gone."""
        self.asks, self.is_blind = False, earlier is None
        if earlier is None or earlier.transaction != self.transaction:
            return
        self._sent |= earlier._sent
        for key in earlier._open:
            one, rows = earlier._hold(key), self._hold(key).rows if key in self._open else []
            for row in one.rows:
                row.is_here = False
            # Files that overlap have a record twice.
            known = [(row.order, row.row) for row in one.rows]
            one.rows += [row for row in rows if (row.order, row.row) not in known]
            self._open[key] = one
        self._forgotten, self._begun = earlier._forgotten, earlier._begun or self._begun
        self._images.extendleft(reversed(earlier._images))

    def see(self, op: str, before: Image | None) -> None:
        """Sees what `before` records have."""
        if before is not None:
            self._images.append(before)
        if op == "u" and not self._lacks_before:
            self._has_keys_alone = before is None

    def hide(
        self, op: str, transaction: Any, key: Hashable, order: OrderPoint, before: Image | None, recall: Recall | None
    ) -> OrderPoint:
        """Remembers a key whose record was refused. Returns `since`: see RefusedRecordError."""
        self._begin(transaction)
        if op == "c":
            self._add(key, _Occupant(None, order))
            return ()
        may_mean_two = before is not None or self._lacks_before
        if recall and self.asks and may_mean_two:
            self._adopt(recall(transaction))
        is_first = key not in self._open and not self._is_forgotten(key)
        if is_first and op != "d":
            return order if may_mean_two and self.is_blind else ()
        if is_first:
            self._add(key, None)
        one, image = self._hold(key), before() if before else None
        one.is_doubted, one.since = True, one.since or order
        newest = one.rows[-1].row if one.rows else None
        is_newest = newest and image not in (None, UNREADABLE) and self._told(image) == self._told(newest)
        return one.since if may_mean_two and not is_newest and (one.rows or self.is_blind) else ()

    def follow(
        self,
        at: ReaderPosition,
        change: Any,
        op: str,
        transaction: Any,
        key: Hashable,
        before: Image | None,
        recall: Recall | None,
    ) -> Any:
        """The change to append instead of this one; None: the record changes no row. Raises RefusedRecordError."""
        if transaction != self.transaction:
            self._begin(transaction)
        if recall and self.asks and (before is not None or (self._lacks_before and op == "u")):
            self._adopt(recall(transaction))
        if op == "t":
            self._open, self._forgotten = {}, bytearray()
            return change
        if at.place.formers is not None and _parts(key) not in at.place.formers:
            return change
        self._begun = self._begun or change.order
        if op == "c":
            if not self._has_keys_alone:
                self._add(key, _Occupant(change.row, change.order, (at.known_offset,)))
        elif key in self._open or (self._forgotten and self._is_forgotten(key)):
            return self._meet(at, change, key, before() if before else None)
        elif self.is_blind and before is not None:
            self._is_former(_Key(), before())
        elif op == "d" and not self._has_keys_alone:
            self._add(key, None)
        return change

    def _add(self, key: Hashable, row: _Occupant | None) -> None:
        """Puts a row under a key; None: the row that was there ended."""
        if key not in self._open:
            if len(self._open) >= _MOST_KEYS:
                self._forget(next(iter(self._open)))
            if not self._forgotten or not self._is_forgotten(key):
                self._open[key] = row
                return
        if row is None:
            return
        one = self._hold(key)
        if one.rows and (one.rows[-1].order, one.rows[-1].row) == (row.order, row.row):
            one.rows[-1].offsets += row.offsets  # It was sent again.
        else:
            one.rows.append(row)
            one.since = one.since or row.order

    def _hold(self, key: Hashable) -> _Key:
        one = self._open.get(key, _UNKNOWN)
        if one is _UNKNOWN:
            one = _Key(since=self._begun, is_doubted=True)
        elif not isinstance(one, _Key):
            one = _Key([one], one.order) if one else _Key(is_free=True)
        self._open[key] = one
        return one

    def _forget(self, key: Hashable) -> None:
        one = self._open.pop(key)
        if one is not None and (not isinstance(one, _Key) or one.rows or one.is_doubted):
            self._forgotten = self._forgotten or bytearray(_MARKS >> 3)
            mark = hash(key) % _MARKS
            self._forgotten[mark >> 3] |= 1 << (mark & 7)

    def _is_forgotten(self, key: Hashable) -> bool:
        mark = hash(key) % _MARKS if self._forgotten else 0
        return bool(self._forgotten and self._forgotten[mark >> 3] >> (mark & 7) & 1)

    def _meet(self, at: ReaderPosition, change: Any, key: Hashable, before: Any) -> Any:
        """Decides about an update or a delete of a key to which the transaction brought a row, or ended one."""
        one = self._hold(key)
        image = None if before in (None, UNREADABLE) else self._told(before)
        if one.settled == (change.order, image):
            return None
        self._look_up(at, key, one)
        is_delete = change.op != UPSERT
        met = next((row for row in reversed(one.rows) if image and row.row and self._told(row.row) == image), None)
        is_one_of_two = len(one.rows) > 1 or (one.had and not one.is_free)
        if self._lacks_before and not is_delete and one.rows and is_one_of_two:
            one.is_doubted = True
            raise _refuse("It does not show which of two rows of its key it changes.", one)
        if met is None and one.rows and self._is_former(one, before):
            one.is_free, one.settled = True, (change.order, image)
            if not is_delete:
                one.rows.insert(0, _Occupant(change.row, change.order))
            return None
        if met is None and is_delete:
            # Its `before` has the key alone: the source checks the key at once, and the newest row ends.
            one.rows, one.is_free = [], True
        if is_delete:
            return self._end(at, change, one, met or one.rows[-1]) if one.rows else change
        if not one.rows:
            del self._open[key]
            return change
        met = met or one.rows[-1]
        if self._lacks_before and not one.is_free and one.had is not False:
            one.is_doubted = True  # Which row it changes shows later, if ever.
        met.row = change.row
        if met is not one.rows[-1]:
            return None
        met.offsets += (at.known_offset,)
        return change

    def _look_up(self, at: ReaderPosition, key: Hashable, one: _Key) -> None:
        """Finds what a retry knows of a key. Raises RefusedRecordError if nothing shows its rows."""
        if at.place.formers:
            one.had = self._had[key] = at.place.formers[_parts(key)].get(one.since, self._had.get(key))
        if one.is_doubted:
            raise _refuse("A record of its key before it was refused, or too many keys changed.", one)

    def _end(self, at: ReaderPosition, change: Any, one: _Key, met: _Occupant) -> Any:
        """A row that the transaction brought ends. What was under the key before it is there again."""
        is_newest = met is one.rows[-1]
        one.rows = [row for row in one.rows if row is not met]
        if is_newest and one.rows:
            if one.rows[-1].row is None:
                one.is_doubted = True
                raise _refuse("The row that is left of its key was refused.", one)
            # All of these records count for nothing if this row ends, too.
            one.rows[-1].offsets += (*met.offsets, at.known_offset)
            return msgspec.structs.replace(change, op=UPSERT, row=one.rows[-1].row)
        if is_newest and (one.is_free or one.had is False):
            return change
        if is_newest and one.had:
            # The retry gives it the values that the log had.
            return msgspec.structs.replace(change, op=UPSERT, absent=[*self._values.values()])
        if is_newest and (self._keeps_all or one.is_unclear or not met.is_here or at.place.formers is not None):
            one.is_unclear = False
            raise _refuse("Its row came with an earlier file, and may have taken the key of another row.", one)
        one.settled = (change.order, self._told(met.row))
        one.is_unclear |= not met.is_here
        if met.is_here and not self._keeps_all:
            at.undo(met.offsets)
        return None

    def _is_former(self, one: _Key, before: Any) -> bool:
        """Whether `before` is that of the row from before the transaction. Raises RefusedRecordError.

        If the log had one, the source checks keys late, and `before` is complete.
        A `before` with the key alone has one made-up value in each other column. So a column is real if it has two.
        """
        shown, is_gone = [row.row for row in one.rows if row.row], one.is_free or one.had is False
        is_hidden = len(shown) < len(one.rows)
        if not one.had and (before is None or self._has_keys_alone):
            return False
        if before is UNREADABLE:
            one.is_doubted = True
            raise _refuse("Two rows may have had its key in this transaction, and its `before` cannot be read.", one)
        if not is_hidden and not is_gone and (one.had or len(shown) > 1):
            return True
        told = {name: getattr(before, name) for name in self._values} if before else {}
        differs = [name for name in told if all(getattr(row, name) != told[name] for row in shown)]
        others = [image for read in self._images if (image := read()) not in (None, UNREADABLE)]
        is_real = any(getattr(image, name) != told[name] for image in others for name in differs)
        if is_gone:
            if shown and is_real and not is_hidden:
                one.is_doubted = True
                raise _refuse("It shows a row that its key never had: a record is missing.", one)
            return False
        if shown and is_real and not is_hidden:
            return True
        if is_hidden or any(told[name] for name in differs):
            one.is_doubted = True
            raise _refuse("Two rows may have had its key in this transaction. No record shows which one it ends.", one)
        return False


def _has_row(one: _Key | _Occupant | None) -> bool | None:
    """Whether a key has a row at the end of the transaction; None: that is not known."""
    if not isinstance(one, _Key):
        return one is not None
    return None if one.is_doubted else one.had if not (one.rows or one.is_free) else bool(one.rows)


def _parts(key: Hashable) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _refuse(why: str, one: _Key) -> RefusedRecordError:
    refused = RefusedRecordError(KEY_TAKEN_OVER, why)
    refused.since = one.since
    return refused


def images_in(line: bytes) -> _Images:
    """The `before` and `after` of a record, unread."""
    data = msgspec.Raw(line)
    while (one := _images(data)).before == one.after == NOTHING:
        data = one.value if one.value != NOTHING else one.payload
    return one


def image_of(line: bytes, rows: Rows, key: int, spell: Callable[[bytes], Rows]) -> Any:
    """The `before` of a record as a row; None: it is none, or has the values of the `key` columns alone.

    spell: returns the decoder with the names of a line. A delete does not show that its names are not those of `rows`.
    """
    before = images_in(line).before
    with suppress(*_UNREAD):
        return rows.image(before)
    with suppress(*_UNREAD):
        return spell(line).image(before)
    return UNREADABLE if sum(value != NULL for value in _values(before).values()) > key else None
