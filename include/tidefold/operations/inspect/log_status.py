"""The status of a log as a value, made from its state. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidefold.domain.alarms import AlarmRecord, LogAlarm
from tidefold.domain.commit_times import CommitTimeRange, merge_ranges
from tidefold.domain.landing_problems import NO_PROBLEMS, LandingProblems, drop_settled
from tidefold.domain.log_state import Consumer, Hold, LogState, Position, Snapshot, SnapshotKind, State, Stopped, Tag
from tidefold.domain.retention.log_bounds import tails
from tidefold.domain.table.schema_evolution import describe_schemas
from tidefold.domain.table.types import FIRST
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.verify.proof_record import ProofRecord
from tidefold.domain.wording import explain_experimental
from tidefold.operations.ground.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Materializations:
    """Counts of the snapshots of a table that were begun.

    completed, failed: how many were confirmed, and aborted for any cause.
    seconds: the time of the newest published one, from its beginning to its publication.
    """

    started: int = 0
    completed: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far a partition of a topic is ahead of the log, as the last landing that found something new saw it.

    offsets: how many the log lacks. end: the offset behind its newest record.
    seen: the moment (ISO 8601).
    since, seconds: when the newest landed record was written, and how long before that moment; "", 0: all had landed.
    """

    partition: int
    offsets: int
    end: int
    seen: str
    since: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The status of one log.

    begun: false until the first ingest.
    latest: the newest completed snapshot.
    attempt: the open attempt. as_of_attempts: the open attempts at snapshots as of an instant.
    change_sets, changes, change_bytes: how many wait to be folded, and their bytes.
    materializations: how many snapshots of the table were begun, and how they ended.
    tail: the newest tail-only snapshot on `latest`.
    tags, holds, consumers: what keeps more than retention does.
    garbage: how many segments are marked for deletion.
    local: snapshots with a copy on this machine. local_partial: those whose copy has lost files.
    local_bytes: the bytes of all copies of snapshots on its disks.
    drilled: the newest snapshot with a restore drill.
    stopped: set while the log accepts no changes.
    schema: the id of the newest schema. schema_waits: its changes, until a snapshot has them.
    landing: landed files that the last ingest did not ingest, or that had nothing new.
    first_started: when the first snapshot began (ISO 8601); empty: there is none.
    waiting: the commit times of the changes that wait; None: not known.
    waits_since: when the first of them was ingested (ISO 8601); empty: not known.
    stored_bytes: the bytes that its snapshots wrote, and those of its change sets.
    proof, runs, alarms: its newest proof, the newest runs of its DAG, and its alarms; only if requested.
    table: what is wrong with its published table, and the next step; empty: nothing.
    why: why the newest snapshot is not published. report: the address of its quality report.
    error: set if the ledger cannot be read.
    uploads: what the uploads of its change sets cost so far, by ingests and by writers; None: none were counted.
    experimental: what its connector was not tried with; empty: nothing.
    topic: how far each partition of its topic is ahead; empty: it reads no topic.
    """

    log: str
    begun: bool
    latest: Snapshot | None = None
    attempt: Snapshot | None = None
    as_of_attempts: tuple[Snapshot, ...] = ()
    change_sets: int = 0
    changes: int = 0
    change_bytes: int = 0
    materializations: Materializations = Materializations()
    positions: tuple[Position, ...] = ()
    quarantined: int = 0
    tail: Snapshot | None = None
    tags: tuple[Tag, ...] = ()
    holds: tuple[Hold, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    garbage: int = 0
    local: tuple[int, ...] = ()
    local_partial: tuple[int, ...] = ()
    local_bytes: int = 0
    drilled: Snapshot | None = None
    table: str = ""
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
    waits_since: str = ""
    stored_bytes: int = 0
    runs: AlarmRecord | None = None
    alarms: tuple[LogAlarm, ...] = ()
    uploads: UploadTotals | None = None
    experimental: str = ""
    topic: tuple[TopicLag, ...] = ()


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
        change_bytes=sum(c.location.length for c in state.unfolded),
        materializations=_count_materializations(state),
        positions=state.positions,
        quarantined=sum(entry.quarantined for entry in state.landed),
        tail=next((s for s in reversed(tails(state)) if state.latest and s.base == state.latest.id), None),
        tags=state.tags,
        holds=state.holds,
        consumers=state.consumers,
        garbage=len(state.garbage),
        drilled=next((s for s in reversed(state.snapshots) if s.drill), None),
        why=why,
        report=report,
        stopped=state.stopped,
        schema=state.schema,
        schema_waits=_waiting_schema(state),
        landing=drop_settled(state.landing, state.landed, has_snapshot=state.latest is not None),
        first_started=state.snapshots[0].started_at if state.snapshots else "",
        waiting=merge_ranges(c.times for c in state.unfolded),
        waits_since=_find_first_waiting(state),
        stored_bytes=_count_stored(state),
        uploads=state.uploads,
        experimental=explain_experimental(state.shape.order),
        topic=tuple(_find_topic_lags(state)),
    )


def _find_topic_lags(state: LogState) -> Iterator[TopicLag]:
    taken = {one.partition: one.next_offset for one in state.positions}
    for one in state.landing.topic:
        # Behind the newest record, marks of transactions have offsets, too.
        newest = one.end if one.left else one.read
        offsets = max(one.left, newest - taken[one.partition]) if one.partition in taken else one.left
        since = (one.time or one.seen) if one.left else ""
        seconds = max(0.0, _count_seconds(since, one.seen)) if since else 0.0
        yield TopicLag(one.partition, offsets, one.end, one.seen, since, seconds)


def _count_materializations(state: LogState) -> Materializations:
    begun = [s for s in state.snapshots if s.in_main_lineage]
    failed = sum(s.state is State.ABORTED for s in begun)
    published = next((s for s in reversed(begun) if s.published_at), None)
    return Materializations(
        started=len(begun),
        completed=sum(not s.open for s in begun) - failed,
        failed=failed,
        seconds=_count_seconds(published.started_at, published.published_at) if published else 0.0,
    )


def _count_seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _find_first_waiting(state: LogState) -> str:
    first = state.unfolded[0].begin if state.unfolded else None
    files = (entry for entry in state.landed if first is not None and entry.sqn is not None and entry.sqn >= first)
    return min((entry.instant for entry in files if entry.instant), default="")


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
        return f"snapshot {newest.id} was aborted: {newest.abort_reason.rstrip('.')}", None
    return "", None
