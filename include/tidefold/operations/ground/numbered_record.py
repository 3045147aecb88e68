"""A small record in the store: files `<number>.json` in a folder of their own. The highest number counts.

They are not part of the ledger, so an idle run does not read them. If a record is lost or damaged, its owner starts
again.
"""

from __future__ import annotations

from typing import TypeVar

from tidefold.domain.alarms import AlarmRecord
from tidefold.domain.paths import record_path
from tidefold.domain.plan import PlanRecord
from tidefold.domain.verify.proof_record import ProofRecord
from tidefold.errors import CorruptError, NotFoundError
from tidefold.storage import Store
from tidefold.stored_forms import decode_form, encode_form

# Frozen records. `number` counts their versions, from 1.
R = TypeVar("R", AlarmRecord, PlanRecord, ProofRecord)


def find_record(store: Store, folder: str, kind: type[R]) -> R | None:
    """Returns the newest record; None: there is none. A damaged one has only its number.

    Raises StorageError, CorruptError if it is newer.
    """
    number = max(_list_numbers(store, folder), default=0)
    if not number:
        return None
    try:
        record = decode_form(path := record_path(folder, number), store.read(path), kind)
    except NotFoundError:
        return kind(number)
    except CorruptError as error:
        if error.code == "STORE_NEWER":
            raise
        return kind(number)
    return record if record.number == number else kind(number)


def write_record(store: Store, folder: str, record: AlarmRecord | PlanRecord | ProofRecord) -> None:
    """Writes a record and deletes older ones. Raises AlreadyExistsError if another process was faster, StorageError."""
    store.put_if_absent(record_path(folder, record.number), encode_form(record))
    store.delete([record_path(folder, old) for old in _list_numbers(store, folder) if old < record.number])


def _list_numbers(store: Store, folder: str) -> list[int]:
    names = (entry.path.rpartition("/")[2].removesuffix(".json") for entry in store.list(folder))
    return [int(name) for name in names if name.isdecimal()]
