"""Follows the keys of unwrapped records of PostgreSQL, which may be checked late (decision 0069).

ExtractNewRecordState adds fields to a row if `add.fields` names them. Of two rows under one key, these show which one a
record means: `op`, `lsn`, the transaction, and deletes as rows (`delete.tombstone.handling.mode=rewrite`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from tidefold.changelog.schema import DELETE
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import POSITION
from tidefold.sources.debezium.late_checks import Image, LateKeys, checks_late
from tidefold.sources.records.accounting import OrderPoint, ReaderPosition
from tidefold.typed_json import make_decoder


class _Marks(msgspec.Struct, gc=False):
    """What a row says of its change."""

    op: str | None = msgspec.field(default=None, name="__op")
    lsn: int | None = msgspec.field(default=None, name="__lsn")
    source_lsn: int | None = msgspec.field(default=None, name="__source_lsn")
    number: int | str | None = msgspec.field(default=None, name="__txId")
    source_number: int | str | None = msgspec.field(default=None, name="__source_txId")
    transaction: str | None = msgspec.field(default=None, name="__transaction_id")
    committed: int | None = msgspec.field(default=None, name="__source_ts_ms")

    @property
    def position(self) -> int | None:
        return self.source_lsn if self.lsn is None else self.lsn

    @property
    def id(self) -> int | str | None:
        """What all records of a transaction have in common."""
        number = self.source_number if self.number is None else self.number
        if number is None and self.transaction:
            number = self.transaction.partition(":")[0]
        return self.committed if number is None else number


class UnwrappedChange(msgspec.Struct, gc=False):
    """A change of one row. order: its partition and offset."""

    op: int
    order: OrderPoint
    row: Any
    absent: list[str] | None = None


_marks = make_decoder(_Marks)
# Returns what earlier files brought of a transaction, as its records say it; None: they are gone.
Recall = Callable[[ReaderPosition, bytes], "UnwrappedKeys | None"]


class UnwrappedKeys:
    """The keys of the transaction that is read from one file."""

    def __init__(self, shape: TableSpec, *, asks: bool = True) -> None:
        self.keys = LateKeys(shape, lacks_before=True)
        self.keys.asks = asks
        self._highest = -1
        # The key of the record before, if it was a delete as a row.
        self._deleted: Hashable = None

    def follow(
        self, at: ReaderPosition, change: UnwrappedChange, value: bytes, key: Hashable, image: Image, recall: Recall
    ) -> UnwrappedChange | None:
        """The change to append instead of this one; None: the record changes no row. Raises RefusedRecordError.

        A connector that was started again sends a transaction from its beginning: what came before is left alone.
        """
        deleted, self._deleted = self._deleted, None
        if value == b"null":  # A tombstone repeats the delete before it.
            return None if deleted == key else change
        self._deleted = key if change.op == DELETE else None
        marks = _marks.decode(value)
        if marks.op not in ("c", "u", "d") or marks.position is None or marks.id is None:
            return change
        keys, before = self.keys, image if change.op == DELETE else None
        keys.see(marks.op, before)
        if marks.op == "u" and not keys.is_watching:
            return change
        if marks.id != keys.transaction:
            keys.begin(marks.id)
            self._highest = -1
        if keys.asks and marks.op != "c":
            earlier = recall(at, str(marks.id).encode())
            if earlier is None or earlier.keys.transaction == marks.id:
                keys.adopt(earlier.keys if earlier else None)
                self._highest = max(self._highest, earlier._highest if earlier else -1)
            keys.asks = False
        if marks.position < self._highest:
            return change
        self._highest = marks.position
        followed: UnwrappedChange | None = keys.follow(at, change, marks.op, key, before)
        return followed

    def hide(self, value: bytes, key: Hashable, order: OrderPoint) -> None:
        """Remembers the key of a refused record."""
        marks = _marks.decode(value)
        if marks.op in ("c", "u") and marks.id is not None:
            if marks.id != self.keys.transaction:
                self.keys.begin(marks.id)
            self.keys.hide(marks.op, key, order)


def follows_unwrapped(shape: TableSpec) -> bool:
    """Whether records may show which of two rows under a key they mean."""
    names = {*shape.ignored, *(name for column in shape.columns for name in (column.name, *column.aliases))}
    return shape.order == POSITION and checks_late(shape) and not names.isdisjoint(("__lsn", "__source_lsn"))
