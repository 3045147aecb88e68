"""Follows the keys of unwrapped records of PostgreSQL, which may be checked late (decision 0069).

ExtractNewRecordState adds fields to a row if `add.fields` names them. Of two rows under one key, these show which one a
record means: `op`, `lsn`, the transaction, and deletes as rows (`delete.tombstone.handling.mode=rewrite`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from tidefold.changelog.schema import DELETE
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import POSITION
from tidefold.sources.debezium.late_checks import Image, LateKeys, Recall, checks_late
from tidefold.sources.records.accounting import ReaderPosition
from tidefold.typed_json import make_decoder

_LSN = "__lsn"


class _Marks(msgspec.Struct, gc=False):
    """What a row says of its change. committed: all changes of a transaction have the time of its commit."""

    op: str | None = msgspec.field(default=None, name="__op")
    lsn: int | None = msgspec.field(default=None, name=_LSN)
    number: int | str | None = msgspec.field(default=None, name="__txId")
    committed: int | None = msgspec.field(default=None, name="__source_ts_ms")

    @property
    def transaction(self) -> int | str | None:
        return self.committed if self.number is None else self.number


read_marks = make_decoder(_Marks).decode


def follow_unwrapped(
    keys: LateKeys, at: ReaderPosition, change: Any, value: bytes, key: Hashable, image: Image, recall: Recall
) -> Any:
    """The change to append instead of this one; None: the record changes no row. Raises RefusedRecordError."""
    deleted, keys.deleted = keys.deleted, None
    if value == b"null":  # A tombstone repeats the delete before it.
        return None if deleted == key else change
    marks, before = read_marks(value), image if change.op == DELETE else None
    keys.deleted = key if before else None
    op, lsn, transaction = marks.op, marks.lsn, marks.transaction
    if op not in ("c", "u", "d") or lsn is None or transaction is None:
        return change
    keys.see(op, before)
    if keys.was_sent(transaction, recall, lsn, op, key):
        return None
    return change if op == "u" and not keys.is_watching else keys.follow(at, change, op, transaction, key, before, None)


def follows_unwrapped(shape: TableSpec) -> bool:
    """Whether records may show which of two rows under a key they mean."""
    names = {*shape.ignored, *(name for column in shape.columns for name in (column.name, *column.aliases))}
    return shape.order == POSITION and checks_late(shape) and _LSN in names
