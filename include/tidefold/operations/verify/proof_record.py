"""Stores the record of a log's newest proofs: one small file, which does not belong to the ledger.

Only scrubs, `status` and the page read it. If it is lost or damaged, the next scrub starts a new round.
"""

from __future__ import annotations

from collections.abc import Callable

from tidefold.domain.paths import LogPaths
from tidefold.domain.verify.scrub_round import ProofRecord
from tidefold.errors import AlreadyExistsError, TidefoldError
from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.storage import Store


def find_proof(store: Store, log: str) -> ProofRecord | None:
    """Returns the newest record; None: the log was never proved. Raises StorageError."""
    folder = LogPaths(log).proofs
    number = find_newest(store, folder)
    return (read_record(store, folder, number, ProofRecord) or ProofRecord(number)) if number else None


def write_proof(store: Store, log: str, record: Callable[[ProofRecord], ProofRecord]) -> str:
    """Writes a record made by `record` from the newest one, and deletes older ones. Returns a warning, or nothing.

    If two processes write at once, the first record stays, and a later scrub reads the other's files again.
    """
    try:
        write_record(store, LogPaths(log).proofs, record(find_proof(store, log) or ProofRecord()))
    except AlreadyExistsError:
        return "another process recorded its proof at the same time"
    except TidefoldError as error:
        return f"the record of this proof could not be written: {error.code}: {error.message}"
    return ""
