"""Where copies are: store, this machine, or outside both, with address, layout and owner after an import."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidefold.domain.source_progress import NO_PROGRESS, SourceProgress
from tidefold.domain.table.table_spec import TableSpec
from tidefold.domain.table.types import Schema


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
class Reshape:
    """The table definition that a log gets when the snapshot of its plan is confirmed (decision 0085).

    before, after: the table definitions.
    schemas: those of the plan, numbered after those of the log.
    horizon, max_commit_time: as the plan's snapshot has them.
    """

    before: TableSpec
    after: TableSpec
    schemas: tuple[Schema, ...]
    horizon: int | None = None
    max_commit_time: int | None = None


@dataclass(frozen=True, slots=True)
class External:
    """The origin of an imported snapshot.

    `description`: sha256 of the document that describes the original, at `address`.
    `log`, `snapshot`, `sqn`: those of the original. An empty log continues from `sqn` and `progress`.
    `reshape`: set if the original is the log's own plan.
    """

    address: str
    ownership: Ownership
    layout: Layout
    description: str
    log: str
    snapshot: int
    sqn: int
    progress: SourceProgress = NO_PROGRESS
    reshape: Reshape | None = None


class StorageTier(StrEnum):
    """The durable store, the local copies on this machine, or a snapshot outside both."""

    STORE = "store"
    LOCAL = "local"
    EXTERNAL = "external"
