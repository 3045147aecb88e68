"""Where copies are: store, this machine, or outside both, with address, layout and owner after an import."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidefold.domain.source_progress import NO_PROGRESS, SourceProgress


class Layout(StrEnum):
    """How a savepoint keeps its rows: as a Delta table with the snapshot's own files, or as plain Parquet."""

    NATIVE = "native"
    CANONICAL = "canonical"


class Ownership(StrEnum):
    """Who owns the original files after an import.

    no-claim: the user; tidefold does not need them any more.
    claim: tidefold, which deletes them when the snapshot is retired.
    legacy: the user; tidefold still reads them and never deletes them.
    """

    NO_CLAIM = "no-claim"
    CLAIM = "claim"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class External:
    """The origin of an imported snapshot.

    `description`: sha256 of the document that describes the original, at `address`.
    `log`, `snapshot`, `sqn`: those of the original. An empty log continues from `sqn` and `progress`.
    """

    address: str
    ownership: Ownership
    layout: Layout
    description: str
    log: str
    snapshot: int
    sqn: int
    progress: SourceProgress = NO_PROGRESS


class StorageTier(StrEnum):
    """The durable store, the local copies on this machine, or a snapshot outside both."""

    STORE = "store"
    LOCAL = "local"
    EXTERNAL = "external"
