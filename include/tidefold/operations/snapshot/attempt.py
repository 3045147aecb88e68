"""The work of a claimed snapshot as values, the same for all kinds of requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidefold.domain.key_groups import Redistribution
from tidefold.domain.log_state import LogState, Position, Snapshot, TableSpec
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.table.schema import Schema
from tidefold.fold.task import FoldTask, Read

# Claims a log for one request. Its instant and token are fixed, so two calls on one state give the same result.
Claimant = Callable[[LogState], LogState]


@dataclass(frozen=True, slots=True)
class RestoreInfo:
    """The restored or imported rows, and what happens to the changes after them.

    `snapshot`: id of the restored snapshot; None: the rows are imported.
    `address`: of the imported snapshot.
    `mode`: the mode of the restore, or the owner of the imported files.
    `skipped`: first and last sqn of the change sets that are left out for good.
    `replayed`: first and last sqn of the change sets that the next run folds again.
    `newest`, `newest_rows`: the newest completed snapshot and its rows, which an import replaces.
    `older_by`: first and last sqn of its change sets that an imported older snapshot of the same log does not have.
    `dropped_columns`: columns of the restored snapshot that the log no longer has.
    `unread`: places whose manifests could not be used.
    """

    mode: str
    snapshot: int | None = None
    address: str = ""
    skipped: tuple[int, int] | None = None
    replayed: tuple[int, int] | None = None
    newest: int | None = None
    newest_rows: int = 0
    older_by: tuple[int, int] | None = None
    dropped_columns: tuple[str, ...] = ()
    unread: tuple[Read, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed snapshot and the tasks that make it.

    `base`: the manifest that it begins with.
    `shape`: the table definition of the new snapshot.
    `schemas`, `positions`: the schemas and source positions of the log at the snapshot's last sqn.
    `restored`: the restored rows, if it is a restore or an import.
    `expected_rows`: how many rows the tasks must make; None: not recorded.
    `redistribution`: how the rows are distributed to workers. Restored and imported rows keep theirs.
    """

    log: str
    snapshot: Snapshot
    base: Manifest | None
    shape: TableSpec
    tasks: tuple[FoldTask, ...]
    schemas: tuple[Schema, ...] = ()
    positions: tuple[Position, ...] | None = None
    restored: RestoreInfo | None = None
    expected_rows: int | None = None
    redistribution: Redistribution | None = None

    @property
    def weight(self) -> int:
        """The approximate number of bytes that the tasks read."""
        return sum(task.weight for task in self.tasks)

    @property
    def writes_rows(self) -> bool:
        """Whether rows are merged or written. If not, files are only linked, which needs no Spark."""
        return any(task.writes_rows for task in self.tasks)
