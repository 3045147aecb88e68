"""Confirms a judged snapshot, and publishes it to readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.wording import count_noun
from tidefold.errors import RefusedError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.snapshot_details import PointInTimeDetails, PublicationDetails
from tidefold.operations.publish.publish_log import note_completion, require_as_published, roll_forward
from tidefold.operations.publish.publish_set import require_alone
from tidefold.operations.snapshot.switch import bring_over


@dataclass(frozen=True, slots=True)
class Override:
    """Who lets a refused snapshot through, and why."""

    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The request to confirm a snapshot: by id, by run, or the open one.

    override: None: only a passing verdict lets it through.
    reconcile: the publication also replaces files that other programs committed to the table.
    """

    snapshot: int | None = None
    run: str | None = None
    override: Override | None = None
    reconcile: bool = False

    def choose(self, state: LogState) -> Snapshot | None:
        """Returns the snapshot that is meant; None: there is none."""
        if self.snapshot is not None:
            return transitions.require_snapshot(state, self.snapshot)
        return state.open_attempt if self.run is None else claim.find_by_run(state, self.run)


def confirm(pipeline: Pipeline, log: str, wanted: Confirmation = Confirmation()) -> Outcome:
    """Confirms a snapshot, then publishes it.

    Raises RefusedError: no passing verdict, superseded, foreign commits in the table. Confirming twice is `already`.
    """
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    chosen = wanted.choose(ledger.read())
    if chosen and chosen.as_of:
        return _confirm_point_in_time(pipeline, log, chosen, wanted.override)
    require_alone(
        pipeline,
        log,
        ", whose tables are published together.",
        hint="`tidefold run` or `tidefold step confirm` publishes the whole set.",
    )
    rolled = roll_forward(pipeline, log, wanted.reconcile)
    if chosen is None or (rolled is not None and chosen.id == rolled):
        if rolled is None:
            require_no_override([log], wanted.override)
            if wanted.reconcile:
                require_as_published(pipeline, ledger.read())
            return Outcome(log, Status.NOTHING, "no snapshot waits for confirmation")
        return _outcome(log, Status.PUBLISHED, transitions.require_snapshot(ledger.read(), rolled))
    if chosen.published or chosen.kind is SnapshotKind.TAIL:
        return _outcome(log, Status.ALREADY, chosen)
    let_through(pipeline, log, chosen.id, wanted.override)
    if chosen.reshape:
        with bring_over(pipeline, chosen) as complete:
            ledger.commit(complete)
    else:
        ledger.commit(lambda state: transitions.confirm(state, chosen.id))
    roll_forward(pipeline, log, wanted.reconcile)
    return _outcome(log, Status.PUBLISHED, transitions.require_snapshot(ledger.read(), chosen.id))


def publish_waiting(pipeline: Pipeline, log: str) -> Outcome:
    """Publishes a snapshot that a commit of another program stopped, and replaces the files of that commit."""
    rolled = roll_forward(pipeline, log, reconcile=True)
    if rolled is None:
        return Outcome(log, Status.NOTHING, "no snapshot waits to be published")
    return _outcome(log, Status.PUBLISHED, transitions.require_snapshot(pipeline.ledger(log).read(), rolled))


def require_no_override(logs: Sequence[str], override: Override | None) -> None:
    """Raises RefusedError (NOTHING_TO_OVERRIDE) if somebody overrides the gate, but no snapshot waits.

    logs: the log, then the others of its set.
    """
    if override:
        named = " ".join(logs)
        raise RefusedError(
            "NOTHING_TO_OVERRIDE",
            f"No snapshot of `{logs[0]}` waits for confirmation.",
            hint=f"If it was aborted: `tidefold step materialize {named}`, then `tidefold step quality {named}`.",
        )


def let_through(pipeline: Pipeline, log: str, snapshot: int, override: Override | None) -> None:
    """Records who lets a refused snapshot through, and why, if anybody does."""
    if override:
        pipeline.ledger(log).commit(lambda state: transitions.override(state, snapshot, override.by, override.why))


def _confirm_point_in_time(pipeline: Pipeline, log: str, snapshot: Snapshot, override: Override | None) -> Outcome:
    """Confirms a snapshot as of an instant. Its tag keeps it; the table and the log do not change."""
    ledger = pipeline.ledger(log)
    before = snapshot.state in (State.COMPLETED, State.SUBSUMED, State.DELETED)
    if not before:
        let_through(pipeline, log, snapshot.id, override)
        snapshot = transitions.require_snapshot(
            ledger.commit(lambda state: transitions.confirm(state, snapshot.id)), snapshot.id
        )
    if snapshot.state is State.COMPLETED:
        note_completion(pipeline, log, snapshot.id)
    details = PointInTimeDetails(rows=snapshot.rows, as_of=str(snapshot.as_of), bytes=snapshot.bytes_full)
    tag = snapshot.as_of.tag if snapshot.as_of else ""
    rows = count_noun(snapshot.rows, "row")
    message = f"snapshot {snapshot.id} with {rows} as of {snapshot.as_of} is kept by its tag `{tag}`"
    if snapshot.state is not State.COMPLETED:
        message = f"snapshot {snapshot.id}, as of {snapshot.as_of}, is {snapshot.state} since"
    return Outcome(log, Status.ALREADY if before else Status.COMPLETED, message, snapshot.id, details=details)


def _outcome(log: str, status: Status, snapshot: Snapshot) -> Outcome:
    if snapshot.kind is SnapshotKind.TAIL:
        return Outcome(log, status, f"snapshot {snapshot.id} is tail-only and complete from its beginning", snapshot.id)
    rows = count_noun(snapshot.rows, "row")
    message = f"snapshot {snapshot.id} with {rows} is version {snapshot.table_version} of the table"
    if snapshot.state is not State.COMPLETED:
        message += f", and {snapshot.state} since"
    details = PublicationDetails(rows=snapshot.rows, table_version=snapshot.table_version, bytes=snapshot.bytes_full)
    return Outcome(log, status, message, snapshot.id, details=details)
