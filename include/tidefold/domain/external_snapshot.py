"""Snapshots outside the store: their address, their layout, and their owner after an import."""

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
    """The origin of an imported snapshot.

    `description`: sha256 of the document that describes the original, at `address`.
    `log`, `snapshot`, `sqn`: those of the original. A log without any changes continues from `sqn` and `positions`.
    """

    address: str
    ownership: Ownership
    layout: Layout
    description: str
    log: str
    snapshot: int
    sqn: int
    positions: tuple[Position, ...] = ()
