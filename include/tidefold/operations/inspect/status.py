"""The status of each log. Reads the ledgers, compares them with the tables, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidefold.domain.alarms import AlarmRecord, LogAlarm
from tidefold.domain.commit_times import CommitTimeRange, merge_ranges
from tidefold.domain.landing_problems import NO_PROBLEMS, LandingProblems
from tidefold.domain.log_state import Consumer, Hold, LogState, Position, Snapshot, SnapshotKind, State, Stopped, Tag
from tidefold.domain.retention.protection import tails
from tidefold.domain.table.schema import FIRST
from tidefold.domain.table.schema_evolution import describe_schemas
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.verify.scrub_round import ProofRecord
from tidefold.errors import TidefoldError
from tidefold.operations.inspect.alarm_record import find_alarm_record
from tidefold.operations.inspect.alarms import find_alarms
from tidefold.operations.local_copies.inventory import LocalUse, local_use
from tidefold.operations.local_copies.manage import copies_here
from tidefold.operations.outcome import Outcome, map_logs
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.verify.proof_record import find_proof


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The status of one log.

    begun: false until the first ingest.
    latest: the newest completed snapshot.
    attempt: the open attempt. as_of_attempts: the open attempts at snapshots as of an instant.
    change_sets, changes: how many wait to be folded.
    tail: the newest tail-only snapshot on `latest`.
    tags, holds, readers: what keeps more than retention does.
    garbage: how many segments are marked for deletion.
    local: snapshots with a copy on this machine. local_partial: those whose copy has lost files.
    local_bytes: the bytes of all copies of snapshots on its disks.
    drilled: the newest snapshot with a restore drill.
    stopped: set while the log accepts no changes.
    schema: the id of the newest schema. schema_waits: its changes, until a snapshot has them.
    landing: landed files that the last ingest did not ingest, or that had nothing new.
    first_started: when the first snapshot began (ISO 8601); empty: there is none.
    waiting: the commit times of the changes that wait; None: not known.
    stored_bytes: the bytes that its snapshots wrote, and those of its change sets.
    proof, runs, alarms: its newest proof, the newest runs of its DAG, and its alarms; only if requested.
    why: why the newest snapshot is not published. report: the address of its quality report.
    error: set if the ledger cannot be read.
    uploads: what the uploads of its change sets cost so far, by ingests and by writers; None: none were counted.
    """

    log: str
    begun: bool
    latest: Snapshot | None = None
    attempt: Snapshot | None = None
    as_of_attempts: tuple[Snapshot, ...] = ()
    change_sets: int = 0
    changes: int = 0
    positions: tuple[Position, ...] = ()
    quarantined: int = 0
    tail: Snapshot | None = None
    tags: tuple[Tag, ...] = ()
    holds: tuple[Hold, ...] = ()
    readers: tuple[Consumer, ...] = ()
    garbage: int = 0
    local: tuple[int, ...] = ()
    local_partial: tuple[int, ...] = ()
    local_bytes: int = 0
    drilled: Snapshot | None = None
    why: str = ""
    report: str | None = None
    error: Outcome | None = None
    stopped: Stopped | None = None
    schema: int = FIRST
    schema_waits: str = ""
    landing: LandingProblems = NO_PROBLEMS
    proof: ProofRecord | None = None
    first_started: str = ""
    waiting: CommitTimeRange | None = None
    stored_bytes: int = 0
    runs: AlarmRecord | None = None
    alarms: tuple[LogAlarm, ...] = ()
    uploads: UploadTotals | None = None


def status(pipeline: Pipeline, logs: Sequence[str], *, proofs: bool = False) -> list[LogStatus]:
    """Returns one status for each log. If a ledger cannot be read, only the status of that log has an error.

    proofs: also reads the newest proof and failed runs of each log, and finds its alarms. That costs up to four
        requests for each log.
    """
    use = local_use(pipeline)
    return map_logs(lambda log: _status(pipeline, log, use, proofs), logs, pipeline.at_once)


def _status(pipeline: Pipeline, log: str, use: LocalUse | None, proofs: bool) -> LogStatus:
    try:
        state = pipeline.ledger(log).find_current()
        if state is None:
            found = LogStatus(log, begun=False)
        else:
            here = copies_here(pipeline, state)
            taken = use.logs.get(log, 0) if use else 0
            found = replace(status_of(state), local=here.whole, local_partial=here.partial, local_bytes=taken)
        return add_records(pipeline, found) if proofs else found
    except TidefoldError as error:
        found = LogStatus(log, begun=True, error=Outcome.of_error(log, error))
        return with_alarms(pipeline, found) if proofs else found


def add_records(pipeline: Pipeline, found: LogStatus) -> LogStatus:
    """Returns the status with its proofs, its newest runs and its alarms. Raises StorageError."""
    proof = find_proof(pipeline.store, found.log) if found.begun else None
    runs = find_alarm_record(pipeline.store, found.log)
    return with_alarms(pipeline, replace(found, proof=proof, runs=runs))


def with_alarms(pipeline: Pipeline, found: LogStatus) -> LogStatus:
    """Returns the status with the alarms that the configuration asks for."""
    thresholds = pipeline.config.logs[found.log].alarms
    return replace(found, alarms=tuple(find_alarms(found, thresholds, now())) if thresholds else ())


def status_of(state: LogState) -> LogStatus:
    """Returns the status of a state."""
    why, report = _why(state)
    return LogStatus(
        log=state.log,
        begun=True,
        latest=state.latest,
        attempt=state.open_attempt,
        as_of_attempts=state.as_of_attempts,
        change_sets=len(state.unfolded),
        changes=sum(c.rows for c in state.unfolded),
        positions=state.positions,
        quarantined=sum(entry.quarantined for entry in state.landed),
        tail=next((s for s in reversed(tails(state)) if state.latest and s.base == state.latest.id), None),
        tags=state.tags,
        holds=state.holds,
        readers=state.readers,
        garbage=len(state.garbage),
        drilled=next((s for s in reversed(state.snapshots) if s.drill), None),
        why=why,
        report=report,
        stopped=state.stopped,
        schema=state.schema,
        schema_waits=_waiting_schema(state),
        landing=state.landing,
        first_started=state.snapshots[0].started_at if state.snapshots else "",
        waiting=merge_ranges(c.times for c in state.unfolded),
        stored_bytes=_count_stored(state),
        uploads=state.uploads,
    )


def _count_stored(state: LogState) -> int:
    kept = (s for s in state.snapshots if (s.open or s.state is State.COMPLETED) and s.kind is not SnapshotKind.TAIL)
    return sum(s.bytes_written for s in kept) + sum(c.location.length for c in state.change_sets)


def _waiting_schema(state: LogState) -> str:
    """Describes the changes of the newest schema while the table does not show it yet."""
    shown = state.latest.schema if state.latest else state.schema
    return describe_schemas(state)[-1] if shown != state.schema else ""


def _why(state: LogState) -> tuple[str, str | None]:
    """Returns why the newest snapshot was not published, and its report. Empty once a later snapshot is completed."""
    newest = next((s for s in reversed(state.snapshots) if s.in_main_lineage), None)
    if newest is None:
        return "", None
    if newest.state is State.COMPLETED:
        return ("" if newest.published else f"snapshot {newest.id} is completed but not yet published"), None
    after = state.latest.id if state.latest else 0
    later = (s for s in reversed(state.snapshots) if s.id > after and s.in_main_lineage)
    failed = next((s for s in later if s.verdict and not s.verdict.allows), None)
    if failed and failed.verdict:
        return f"snapshot {failed.id} failed its quality gate: {failed.verdict.summary}", failed.verdict.path
    if newest.state is State.ABORTED:
        return f"snapshot {newest.id} was aborted: {newest.abort_reason}", None
    return "", None
