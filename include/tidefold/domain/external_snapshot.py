"""Snapshots that lie outside of the store: where one is, how it is laid out, and whose it is after an import."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidefold.domain.source_progress import Position


class Layout(StrEnum):
    """How a savepoint keeps its rows: as a Delta table with the snapshot's own files, or as plain Parquet."""

    NATIVE = "native"
    CANONICAL = "canonical"


class Ownership(StrEnum):
    """Whose the original is after an import: the user's, never needed again; tidefold's, which deletes it when the
    snapshot is retired; or the user's, and still of use.
    """

    NO_CLAIM = "no-claim"
    CLAIM = "claim"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class External:
    """From where a snapshot was imported. `description`: sha256 of what describes the original, at `address`; `log`,
    `snapshot` and `sqn` are the original's own. A log that never took anything goes on from `sqn` and `positions`.
    """

    address: str
    ownership: Ownership
    layout: Layout
    description: str
    log: str
    snapshot: int
    sqn: int
    positions: tuple[Position, ...] = ()
