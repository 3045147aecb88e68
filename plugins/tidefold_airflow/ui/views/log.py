"""Shows one log: its snapshots over time, its sources, what keeps change sets, and the copies on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.commit_times import iso_instant
from tidefold.domain.log_state import LogState, Position, Snapshot
from tidefold.domain.retention.log_bounds import Bound, bounds
from tidefold.domain.table.schema_evolution import describe_schemas
from tidefold.operations.inspect.history import find_restorers
from tidefold.operations.inspect.status import LogStatus, add_records, status_of
from tidefold.operations.local_copies.inventory import LocalUse, local_use
from tidefold.operations.local_copies.manage import copies_here
from tidefold.operations.pipeline import Pipeline, now
from tidefold.presentation.proofs import is_drill_old, is_proof_old
from tidefold_airflow.ui.health import (
    Lag,
    Note,
    Word,
    lag_of,
    to_do,
    word_of_gate,
    word_of_log,
    word_of_snapshot,
)
from tidefold_airflow.ui.request import Run
from tidefold_airflow.ui.timeline import TimelineBar, bars, seconds_to_publish

LISTED = 200


@dataclass(frozen=True, slots=True)
class SnapshotLine:
    """A snapshot as one line of a list.

    run: the DAG run that made it, if one did.
    """

    snapshot: Snapshot
    word: Word
    gate: Word
    seconds: float | None
    run: Run | None
    tags: tuple[str, ...] = ()
    restored: int | None = None
    local: bool = False

    @property
    def undecided(self) -> bool:
        """Whether a person may still decide about it."""
        verdict = self.snapshot.verdict
        return self.snapshot.open and verdict is not None and not verdict.allows


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The position of one partition.

    records, refused: of those landed files that the ledger still lists.
    """

    position: Position
    time: str | None
    files: int
    records: int
    refused: int


@dataclass(frozen=True, slots=True)
class LogView:
    """Everything that the page of a log shows.

    more: the number of snapshots that are not listed.
    """

    status: LogStatus
    word: Word
    lag: Lag
    to_do: Sequence[Note]
    bars: Sequence[TimelineBar]
    snapshots: Sequence[SnapshotLine]
    more: int
    places: Sequence[PartitionProgress]
    bounds: Sequence[Bound]
    state: LogState
    schemas: Sequence[str]
    local: LocalUse | None
    proof_old: bool
    drill_old: bool


def view_log(pipeline: Pipeline, state: LogState) -> LogView:
    """Builds the page of a log. Its local copies are those of the machine that serves the page."""
    here = copies_here(pipeline, state)
    found = replace(status_of(state), local=here.whole, local_partial=here.partial)
    status = add_records(pipeline, found)
    listed = list(reversed(state.snapshots))
    return LogView(
        status=status,
        word=word_of_log(status),
        lag=lag_of(state),
        to_do=to_do(status, state),
        bars=bars(state.snapshots),
        snapshots=lines(state, listed[:LISTED], here.whole),
        more=max(len(listed) - LISTED, 0),
        places=_places(state),
        bounds=bounds(state, pipeline.config.retention.keep, pipeline.config.retention.log_retention(now())),
        state=state,
        schemas=describe_schemas(state)[::-1],
        local=local_use(pipeline),
        proof_old=is_proof_old(status, now()),
        drill_old=is_drill_old(status, now()),
    )


def lines(state: LogState, snapshots: Sequence[Snapshot], local: Sequence[int] = ()) -> list[SnapshotLine]:
    """Returns the snapshots of a log as lines of a list."""
    restored = find_restorers(state.snapshots)
    return [line(state, s, restored, s.id in local) for s in snapshots]


def line(state: LogState, snapshot: Snapshot, restored: Mapping[int, int], local: bool) -> SnapshotLine:
    """Returns one snapshot as a line."""
    return SnapshotLine(
        snapshot,
        word_of_snapshot(snapshot),
        word_of_gate(snapshot),
        seconds_to_publish(snapshot),
        run_of(snapshot.run),
        tuple(t.name for t in state.tags if t.snapshot == snapshot.id),
        restored.get(snapshot.id),
        local,
    )


def run_of(name: str) -> Run | None:
    """Returns the DAG run with this name in the ledger; None if no DAG started the run."""
    dag, slash, run = name.partition("/")
    return Run(dag, run) if dag and slash and run else None


def _places(state: LogState) -> list[PartitionProgress]:
    found = []
    for position in state.positions:
        mine = [e for e in state.landed if (e.topic, e.partition) == (position.topic, position.partition)]
        found.append(
            PartitionProgress(
                position=position,
                time=iso_instant(position.time),
                files=len(mine),
                records=sum(e.records for e in mine),
                refused=sum(e.quarantined for e in mine),
            )
        )
    return found
