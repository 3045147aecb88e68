"""A small record in the store: files `<number>.json` in a folder of their own. The highest number counts.

They are not part of the ledger, so an idle run does not read them. If a record is lost or damaged, its owner starts
again.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from tidefold.domain.paths import record_path
from tidefold.errors import NotFoundError
from tidefold.storage import Store
from tidefold.typed_json import decode_json


class Numbered(Protocol):
    """A frozen record. `number` counts its versions, from 1."""

    @property
    def number(self) -> int: ...


R = TypeVar("R", bound=Numbered)


def find_newest(store: Store, folder: str) -> int:
    """Returns the number of the newest record; 0: there is none. Raises StorageError."""
    return max(_list_numbers(store, folder), default=0)


def read_record(store: Store, folder: str, number: int, kind: type[R]) -> R | None:
    """Returns the record of that number; None: it is gone or damaged. Raises StorageError."""
    try:
        record = decode_json(store.read(record_path(folder, number)), kind)
    except (NotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record if record.number == number else None


def write_record(store: Store, folder: str, record: Numbered) -> None:
    """Writes a record and deletes older ones. Raises AlreadyExistsError if another process was faster, StorageError."""
    store.put_if_absent(record_path(folder, record.number), msgspec.json.encode(record))
    store.delete([record_path(folder, old) for old in _list_numbers(store, folder) if old < record.number])


def _list_numbers(store: Store, folder: str) -> list[int]:
    names = (entry.path.rpartition("/")[2].removesuffix(".json") for entry in store.list(folder))
    return [int(name) for name in names if name.isdecimal()]
