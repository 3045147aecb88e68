"""Keeps the record of a log's newest proofs in the store: one small file, beside the ledger and no part of it.

Nothing else reads it but scrubs, `status` and the page. A lost or damaged record only makes the next scrub begin a
round.
"""

from __future__ import annotations

from collections.abc import Callable

from tidefold.domain.paths import LogPaths
from tidefold.domain.verify.scrub_round import ProofRecord
from tidefold.errors import AlreadyExistsError, TidefoldError
from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.storage import Store


def find_proof(store: Store, log: str) -> ProofRecord | None:
    """The newest record; None: the log was never proved. Raises StorageError."""
    folder = LogPaths(log).proofs
    number = find_newest(store, folder)
    return (read_record(store, folder, number, ProofRecord) or ProofRecord(number)) if number else None


def write_proof(store: Store, log: str, record: Callable[[ProofRecord], ProofRecord]) -> str:
    """Writes what `record` makes of the newest record, and removes older ones. Returns a warning, or nothing.

    Two at once: the first one's record stays, and the other reads its files again some time.
    """
    try:
        write_record(store, LogPaths(log).proofs, record(find_proof(store, log) or ProofRecord()))
    except AlreadyExistsError:
        return "another process recorded its proof at the same time"
    except TidefoldError as error:
        return f"the record of this proof could not be written: {error.code}: {error.message}"
    return ""
