"""Keeps the record of a log's newest proofs in the store: one small file, beside the ledger and no part of it.

Nothing else reads it but scrubs, `status` and the page, so an idle run pays nothing. A lost or damaged record only
makes the next scrub begin a round.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidefold.domain.paths import LogPaths
from tidefold.domain.verify.scrub_round import ProofRecord
from tidefold.errors import AlreadyExistsError, NotFoundError, TidefoldError
from tidefold.storage import Store


def find_proof(store: Store, log: str) -> ProofRecord | None:
    """The newest record; None: the log was never proved. Raises StorageError."""
    number = max(_numbers(store, log), default=0)
    if not number:
        return None
    try:
        found = msgspec.json.decode(store.read(LogPaths(log).proof(number)), type=ProofRecord)
    except (NotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return ProofRecord(number)
    return found if found.number == number else ProofRecord(number)


def write_proof(store: Store, log: str, record: Callable[[ProofRecord], ProofRecord]) -> str:
    """Writes what `record` makes of the newest record, and removes older ones. Returns a warning, or nothing.

    Two at once: the first one's record stays, and the other reads its files again some time.
    """
    try:
        made = record(find_proof(store, log) or ProofRecord())
        store.put_if_absent(LogPaths(log).proof(made.number), msgspec.json.encode(made))
        store.delete([LogPaths(log).proof(old) for old in _numbers(store, log) if old < made.number])
    except AlreadyExistsError:
        return "another process recorded its proof at the same time"
    except TidefoldError as error:
        return f"the record of this proof could not be written: {error.code}: {error.message}"
    return ""


def _numbers(store: Store, log: str) -> list[int]:
    names = (entry.path.rpartition("/")[2].removesuffix(".json") for entry in store.list(LogPaths(log).proofs))
    return [int(name) for name in names if name.isdecimal()]
