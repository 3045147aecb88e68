"""Claims snapshots: the work of an attempt as values, the same for all kinds of requests."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from tidefold.domain.key_groups import Redistribution
from tidefold.domain.log_state import LogState, Snapshot, TableSpec
from tidefold.domain.snapshot.claim import KindPolicy, find_by_run, name_span
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.snapshot.select_kind import KindDecision, select_kind
from tidefold.domain.source_progress import SourceProgress
from tidefold.domain.table.types import Schema
from tidefold.fold.plan import FoldTask, Read
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.publish.publish_log import roll_forward
from tidefold.operations.publish.publish_set import finish_set, require_alone

# Claims a log for one request. Its instant and token are fixed, so two calls on one state give the same result.
Claimant = Callable[[LogState], LogState]


@dataclass(frozen=True, slots=True)
class RestoreInfo:
    """The restored or imported rows, and what happens to the changes after them.

    `snapshot`: id of the restored snapshot; None: the rows are imported.
    `address`: of the imported snapshot.
    `mode`: the mode of the restore, or the owner of the imported files.
    `skipped`: first and last sqn of the change sets that are left out for good.
    `as_of`: changes that were committed from this instant on are left out for good, too; empty: none are.
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
    as_of: str = ""
    replayed: tuple[int, int] | None = None
    newest: int | None = None
    newest_rows: int = 0
    older_by: tuple[int, int] | None = None
    dropped_columns: tuple[str, ...] = ()
    unread: tuple[Read, ...] = ()

    def describe_left_out(self) -> str:
        """Names the changes that are left out for good; empty: none are."""
        told = [name_span(*self.skipped)] if self.skipped else []
        told += [f"the changes committed from {self.as_of} on"] if self.as_of else []
        return " and ".join(told)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed snapshot and the tasks that make it.

    `base`: the manifest that it begins with.
    `shape`: the table definition of the new snapshot.
    `schemas`, `progress`: the schemas and source progress of the log at the snapshot's last sqn.
    `restored`: the restored rows, if it is a restore or an import.
    `expected_rows`: how many rows the tasks must make; None: not recorded.
    `redistribution`: how the rows are distributed to workers. Restored and imported rows keep theirs.
    """

    log: str
    snapshot: Snapshot
    base: Manifest | None
    shape: TableSpec
    tasks: tuple[FoldTask, ...]
    progress: SourceProgress
    schemas: tuple[Schema, ...] = ()
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


class AttemptRequest(Protocol):
    """A request for a snapshot. It claims a log and plans its attempt by itself.

    run: the id of the run that asks.
    """

    @property
    def run(self) -> str: ...
    def prepare_claim(self, pipeline: Pipeline, log: str) -> Claimant | None: ...
    def plan(self, pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Attempt: ...
    def describe_unclaimed(self, pipeline: Pipeline, state: LogState) -> Outcome: ...


def hash_request(wanted: Mapping[str, Any]) -> str:
    """Returns the sha256 of a request. With it, a different request under the same run id is refused."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()


def new_token() -> str:
    """Returns the random part of an attempt's token."""
    return uuid.uuid4().hex[:8]


def bring_up_to_date(pipeline: Pipeline, log: str, run: str) -> LogState:
    """Before a claim: publishes a completed snapshot and what its set decided, and gives the log its columns.

    Returns the state after that.
    """
    finish_set(pipeline, log)
    roll_forward(pipeline, log)
    return apply_configured_schema(pipeline, pipeline.ledger(log).read(), run)


def require_no_set(pipeline: Pipeline, log: str) -> None:
    """Raises RefusedError if the log is in a set: the set's tables are published at one point."""
    require_alone(
        pipeline,
        log,
        ": rows of another point would be published beside its other tables.",
        hint=f"Use --set {{set}}, or restore into a folder. Or remove `{log}` from the configured set.",
    )


def choose_kind(pipeline: Pipeline, state: LogState, asked: KindPolicy | None) -> KindDecision:
    """Returns the kind of the next snapshot: as requested, else as configured."""
    snapshots, log = pipeline.config.snapshots, pipeline.log(state.log)
    links = pipeline.store.links and not snapshots.copies
    rule, every = asked or snapshots.kind, snapshots.full_every
    marks = log.deletion_vectors and log.shape.marks_rows
    return select_kind(state, rule, log.shape.buckets, links=links, full_every=every, marks=marks)


def find_skipped_range(snapshot: Snapshot) -> tuple[int, int] | None:
    """Returns the first and last sqn of the change sets that an attempt leaves out for good."""
    return (snapshot.folds_to + 1, snapshot.to_sqn) if snapshot.folds_to < snapshot.to_sqn else None


def describe_unclaimed(state: LogState, run: str, otherwise: str) -> Outcome:
    """Returns the outcome if a claim changed nothing: the earlier snapshot of the run, else the text `otherwise`."""
    mine = find_by_run(state, run)
    if mine is None and state.stays:
        return Outcome(state.log, Status.NOTHING, state.stays.explain(state.log))
    if mine is None:
        return Outcome(state.log, Status.NOTHING, otherwise)
    return Outcome(state.log, Status.ALREADY, f"snapshot {mine.id} of this run is {mine.state}", mine.id)
