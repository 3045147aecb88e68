"""The status of each log, its history, and the alarms of a run. Reads the ledgers and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidefold.domain.alarms import AlarmRecord, LogAlarm, find_unsent, record_run, record_sent
from tidefold.domain.commit_times import CommitTimeRange, merge_ranges
from tidefold.domain.landing_problems import NO_PROBLEMS, LandingProblems, drop_settled
from tidefold.domain.log_state import Consumer, Hold, LogState, Position, Snapshot, SnapshotKind, State, Stopped, Tag
from tidefold.domain.retention.log_bounds import tails
from tidefold.domain.table.schema_evolution import describe_schemas
from tidefold.domain.table.types import FIRST
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.verify.expected_files import ProofRecord
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.operations.ground.outcome import Outcome, Status, map_logs
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.inspect.alarms import find_alarm_record, find_alarms, write_alarm_record
from tidefold.operations.local_copies.inventory import LocalUse, local_use
from tidefold.operations.local_copies.manage import copies_here
from tidefold.operations.verify.scope import find_proof
from tidefold.quality.report.result import CheckResult
from tidefold.quality.report.verdict_store import find_judgement

# Characters of an error that an alarm shows.
_LONGEST_ERROR = 400


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


def status(pipeline: Pipeline, logs: Sequence[str], *, proofs: bool = False) -> list[LogStatus]:
    """Returns one status for each log. If a ledger cannot be read, only the status of that log has an error.

    proofs: also reads the newest proof and failed runs of each log, and finds its alarms. That costs up to four
        requests for each log.
    """
    use = local_use(pipeline)
    return map_logs(lambda log: _status(pipeline, log, use, proofs), logs, pipeline.at_once)


def _status(pipeline: Pipeline, log: str, use: LocalUse | None, proofs: bool) -> LogStatus:
    try:
        ledger = pipeline.ledger(log)
        state = ledger.find_current()
        if state is None:
            status_of_log = LogStatus(log, begun=False)
        else:
            here = copies_here(pipeline, state)
            taken = use.logs.get(log, 0) if use else 0
            status_of_log = replace(status_of(state), local=here.whole, local_partial=here.partial, local_bytes=taken)
            status_of_log = replace(status_of_log, table=ledger.find_table_problem(state))
        return add_records(pipeline, status_of_log) if proofs else status_of_log
    except TidefoldError as error:
        status_of_log = LogStatus(log, begun=True, error=Outcome.of_error(log, error))
        return with_alarms(pipeline, status_of_log) if proofs else status_of_log


def add_records(pipeline: Pipeline, status_of_log: LogStatus) -> LogStatus:
    """Returns the status with its proofs, its newest runs and its alarms. Raises StorageError."""
    proof = find_proof(pipeline.store, status_of_log.log) if status_of_log.begun else None
    runs = find_alarm_record(pipeline.store, status_of_log.log)
    return with_alarms(pipeline, replace(status_of_log, proof=proof, runs=runs))


def with_alarms(pipeline: Pipeline, status_of_log: LogStatus) -> LogStatus:
    """Returns the status with the alarms that the configuration asks for."""
    thresholds = pipeline.config.alarms_of(status_of_log.log)
    return replace(status_of_log, alarms=tuple(find_alarms(status_of_log, thresholds, now())) if thresholds else ())


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
        landing=drop_settled(state.landing, state.landed),
        first_started=state.snapshots[0].started_at if state.snapshots else "",
        waiting=merge_ranges(c.times for c in state.unfolded),
        waits_since=_find_first_waiting(state),
        stored_bytes=_count_stored(state),
        uploads=state.uploads,
    )


def explain_left_out(pipeline: Pipeline, state: LogState) -> Outcome | None:
    """Returns an error while more rows are missing than `max_left_out` allows; without it, while any is."""
    latest = state.latest
    if latest is None or latest.unresolved <= (pipeline.log_of(state).quality.max_left_out or 0):
        return None
    message = f"The table of `{state.log}` lacks {count_noun(latest.unresolved, 'row')}: a value was not sent."
    hint = f"`tidefold status {state.log}` names them, and what brings them in."
    return Outcome.of_error(state.log, InvalidInputError("UNAVAILABLE_VALUE", message, hint=hint), latest.id)


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
        return f"snapshot {newest.id} was aborted: {newest.abort_reason}", None
    return "", None


@dataclass(frozen=True, slots=True)
class RunAlarms:
    """The alarms of one log after a run.

    before, after: the record before and after the run.
    new: the alarms that were not sent yet.
    """

    status: LogStatus
    before: AlarmRecord
    after: AlarmRecord
    new: Sequence[LogAlarm]


def find_run_alarms(pipeline: Pipeline, run: str, logs: Sequence[str], errors: Mapping[str, str]) -> list[RunAlarms]:
    """Finds the alarms of each log with thresholds after a run, and counts the run of the others. Raises StorageError.

    errors: for each log whose run failed, the cause.
    """
    wanted = [log for log in logs if pipeline.config.alarms_of(log)]
    _count_run(pipeline, run, [log for log in logs if log not in wanted], errors)
    return [_find(pipeline, run, one, errors.get(one.log)) for one in status(pipeline, wanted)]


def _find(pipeline: Pipeline, run: str, one: LogStatus, error: str | None) -> RunAlarms:
    before = find_alarm_record(pipeline.store, one.log) or AlarmRecord()
    after = record_run(before, run, error, now())
    proof = None if one.error else find_proof(pipeline.store, one.log)
    one = with_alarms(pipeline, replace(one, proof=proof, runs=after))
    return RunAlarms(one, before, after, find_unsent(after, one.alarms))


def keep_run_alarms(pipeline: Pipeline, runs: Iterable[RunAlarms], *, is_sent: bool) -> None:
    """Writes the changed records. Raises AlreadyExistsError if another process was faster, StorageError.

    is_sent: whether the new alarms were sent.
    """
    for run in runs:
        after = record_sent(run.after, run.status.alarms) if is_sent else run.after
        _write_if_changed(pipeline, run.status.log, run.before, after)


def count_failures(
    pipeline: Pipeline, run: str, logs: Sequence[str], outcomes: Mapping[str, Sequence[Outcome]]
) -> None:
    """Counts a run by the outcomes of its steps, for `status`, and sends nothing.

    Raises AlreadyExistsError if another process was faster, StorageError.
    """
    failed = [(step, o) for step, listed in outcomes.items() for o in listed if o.error or o.status is Status.FAILED]
    errors = {o.log: f"{step}: {_describe_failure(o)}" for step, o in reversed(failed)}
    _count_run(pipeline, run, logs, errors)


def _count_run(pipeline: Pipeline, run: str, logs: Sequence[str], errors: Mapping[str, str]) -> None:
    def count(log: str) -> None:
        # The store is another program's, and `status` says so.
        if any(code in errors.get(log, "") for code in ("[LEDGER_OLDER]", "[LEDGER_NEWER]")):
            return
        before = find_alarm_record(pipeline.store, log) or AlarmRecord()
        _write_if_changed(pipeline, log, before, record_run(before, run, errors.get(log), now()))

    map_logs(count, logs, pipeline.at_once)


def _describe_failure(outcome: Outcome) -> str:
    """Returns why an outcome failed, without its next step: the next run has it."""
    error = outcome.error
    return f"[{error.code}] {error.message[:_LONGEST_ERROR]}" if error else str(outcome.status)


def _write_if_changed(pipeline: Pipeline, log: str, before: AlarmRecord, after: AlarmRecord) -> None:
    """Writes the record, unless it is unchanged, as after two successful runs."""
    if after != replace(before, run=after.run):
        write_alarm_record(pipeline.store, log, replace(after, number=before.number + 1))


def history(pipeline: Pipeline, log: str) -> list[Snapshot]:
    """Returns all snapshots that were ever begun. Raises NotFoundError if nothing was ingested yet."""
    return list(reversed(pipeline.ledger(log).read().snapshots))


def find_restorers(snapshots: Sequence[Snapshot]) -> dict[int, int]:
    """Returns, for each restore, the snapshot whose rows it restored."""
    return {s.id: _require_snapshot_id(snapshots, s, s.restored_from) for s in snapshots if s.restored_from is not None}


def _require_snapshot_id(snapshots: Sequence[Snapshot], restored: Snapshot, origin: int) -> int:
    # A snapshot with files is restored as it is. Of the tails on one base, no two end at the same sqn.
    if restored.folds_to == restored.from_sqn:
        return origin
    ends = (s for s in snapshots if s.kind is SnapshotKind.TAIL and (s.base, s.to_sqn) == (origin, restored.folds_to))
    return next((s.id for s in ends), origin)


def list_unmet_checks(pipeline: Pipeline, log: str, judged: Snapshot) -> list[CheckResult]:
    """Returns the checks of a judged snapshot that did not pass. Raises CorruptError."""
    stored = find_judgement(pipeline.store, log, judged)
    return [check for check in stored.checks if not check.passed] if stored else []


def newest_report(pipeline: Pipeline, log: str, snapshot: int | None = None) -> tuple[Snapshot, str]:
    """Returns the newest judged snapshot, or the requested one, with its report's address. Raises NotFoundError."""
    for judged in history(pipeline, log):
        if judged.verdict and snapshot in (None, judged.id):
            return judged, pipeline.store.uri(judged.verdict.path)
    which = "snapshot" if snapshot is None else f"snapshot {snapshot}"
    raise NotFoundError(
        "REPORT_NOT_FOUND",
        f"There is no quality report: no {which} of `{log}` was judged.",
        hint=f"`tidefold quality {log}` judges the staged snapshot.",
    )
