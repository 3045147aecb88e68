"""Shows one log (snapshots over time, sources, what keeps change sets, copies)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidefold.domain.alarms import AlarmRecord
from tidefold.domain.commit_times import iso_instant
from tidefold.domain.log_state import LogState, Position, Snapshot, SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.log_bounds import Bound, bounds
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.source_progress import name_partition
from tidefold.domain.table.schema_evolution import describe_schemas, schemas_of
from tidefold.domain.table.table_spec import Column
from tidefold.domain.table.types import schema_of
from tidefold.errors import CorruptError, NotFoundError, TidefoldError, find_next_step
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.inspect.alarms import find_alarm_record
from tidefold.operations.inspect.log_status import LogStatus, status_of
from tidefold.operations.inspect.status import add_records, find_restorers
from tidefold.operations.local_copies.inventory import LocalUse, local_use
from tidefold.operations.local_copies.manage import copies_here, snapshots_here
from tidefold.presentation.tables import is_drill_old, is_proof_old
from tidefold.quality.report.result import CheckResult, ValidationResult
from tidefold.quality.report.verdict_store import find_judgement
from tidefold_airflow.ui.health import (
    Lag,
    Note,
    TimelineBar,
    Word,
    bars,
    lag_of,
    next_step_after,
    seconds_to_publish,
    to_do,
    word_of_gate,
    word_of_log,
    word_of_snapshot,
)
from tidefold_airflow.ui.request import LINES, LogPage, LogQuery, Run, read_page
from tidefold_airflow.ui.responses import hide_unexpected
from tidefold_airflow.ui.views.plan import PlanView, view_plan

LISTED = 200
LISTED_FILES = 100
_LARGEST_REPORT = 8 << 20


@dataclass(frozen=True, slots=True)
class SnapshotLine:
    """A snapshot as one line of a list.

    run: the DAG run that made it, if one did.
    step: what a person does, if it was aborted.
    """

    snapshot: Snapshot
    word: Word
    gate: Word
    seconds: float | None
    run: Run | None
    tags: tuple[str, ...] = ()
    restored: int | None = None
    local: bool = False
    step: str = ""

    @property
    def undecided(self) -> bool:
        """Whether a person may still decide about it."""
        verdict = self.snapshot.verdict
        return self.snapshot.open and verdict is not None and not verdict.allows


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The position of one partition.

    partition: as people see it.
    behind: how many offsets its topic was ahead, as the last landing saw it; None: no topic is read.
    records, refused: of those landed files that the ledger still lists.
    """

    position: Position
    partition: str
    behind: int | None
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
    plan: PlanView | None
    proof_old: bool
    drill_old: bool


def view_log(pipeline: Pipeline, state: LogState) -> LogView:
    """Builds the page of a log. Its local copies are those of the machine that serves the page."""
    here = copies_here(pipeline, state)
    local = replace(status_of(state), local=here.whole, local_partial=here.partial)
    status = add_records(pipeline, local)
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
        plan=view_plan(pipeline, state),
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
        next_step_after(state, snapshot),
    )


def run_of(name: str) -> Run | None:
    """Returns the DAG run with this name in the ledger; None if no DAG started the run."""
    dag, slash, run = name.partition("/")
    return Run(dag, run) if dag and slash and run else None


def _places(state: LogState) -> list[PartitionProgress]:
    places, behind = [], {one.partition: one.offsets for one in status_of(state).topic}
    for position in state.positions:
        mine = [e for e in state.landed if (e.topic, e.partition) == (position.topic, position.partition)]
        places.append(
            PartitionProgress(
                position=position,
                behind=behind.get(position.partition),
                partition=name_partition(position.partition),
                time=iso_instant(position.stream.max_commit_time),
                files=len(mine),
                records=sum(e.records for e in mine),
                refused=sum(e.quarantined for e in mine),
            )
        )
    return places


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a snapshot, as its manifest lists them.

    error: why they cannot be read.
    """

    files: Sequence[DataFile] = ()
    more: int = 0
    carried: int = 0
    expired: int = 0
    copied: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """Everything that the page of a snapshot shows."""

    line: SnapshotLine
    state: LogState
    files: Files
    columns: Sequence[Column]
    holds: Sequence[str]
    report: bool
    before: int | None
    after: int | None
    failed: Sequence[CheckResult] = ()
    engine: str = ""


def view_snapshot(pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> SnapshotView:
    """Builds the page of a snapshot."""
    judged = _find_judgement(pipeline, state, snapshot)
    local = snapshot.id in snapshots_here(pipeline, state)
    ids = [s.id for s in state.snapshots]
    place = ids.index(snapshot.id)
    return SnapshotView(
        line=line(state, snapshot, find_restorers(state.snapshots), local),
        state=state,
        files=_files(pipeline, state, snapshot),
        columns=_columns(state, snapshot),
        holds=[f"{h.name}: {h.why}" for h in state.holds if h.snapshot == snapshot.id],
        report=snapshot.verdict is not None,
        before=ids[place - 1] if place else None,
        after=ids[place + 1] if place + 1 < len(ids) else None,
        failed=_list_failed_checks(judged),
        engine=judged.engine if judged else "",
    )


def _find_judgement(pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> ValidationResult | None:
    """Returns the content of the verdict file; None if it is absent or cannot be read."""
    try:
        return find_judgement(pipeline.store, state.log, snapshot)
    except TidefoldError:
        return None


def _list_failed_checks(judged: ValidationResult | None) -> Sequence[CheckResult]:
    """Returns the checks that did not pass, failures before warnings."""
    wrong = [check for check in judged.checks if not check.passed] if judged else []
    return sorted(wrong, key=lambda check: not check.failed)[:LISTED_FILES]


def _columns(state: LogState, snapshot: Snapshot) -> Sequence[Column]:
    schemas = schemas_of(state)
    return schema_of(schemas, snapshot.schema).columns if snapshot.schema in {s.id for s in schemas} else ()


def _files(pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> Files:
    if snapshot.manifest is None or snapshot.kind is SnapshotKind.TAIL:
        return Files()
    try:
        manifest = read_manifest(pipeline.store, state.log, snapshot)
    except TidefoldError as error:
        return Files(error=str(error))
    ordered = sorted(manifest.files, key=lambda f: (f.hidden, f.key_groups.first, f.name))
    carried = sum(f.carried for f in ordered)
    more = max(len(ordered) - LISTED_FILES, 0)
    return Files(ordered[:LISTED_FILES], more, carried, manifest.expired, manifest.bytes_copied)


def read_stored_report(pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> bytes:
    """Returns the report that was stored with the verdict. Raises NotFoundError, or CorruptError if it is too large."""
    verdict = snapshot.verdict
    folder = f"{LogPaths(state.log).folder}/quality/"
    if verdict is None or not verdict.path.startswith(folder) or ".." in verdict.path.split("/"):
        raise NotFoundError(
            "REPORT_NOT_FOUND",
            f"Snapshot {snapshot.id} of `{state.log}` has no report.",
            hint=f"`tidefold step quality {state.log}` judges the staged snapshot.",
        )
    data = pipeline.store.read(verdict.path, 0, _LARGEST_REPORT + 1)
    if len(data) > _LARGEST_REPORT:
        raise CorruptError("REPORT_TOO_LARGE", "The report is larger than any report that tidefold writes.")
    return data


@dataclass(frozen=True, slots=True)
class LogOfRun:
    """The snapshots that the run began in one log, newest first.

    error: its ledger cannot be read.
    failure: why the run failed for the log, with the next step. The store keeps that of the newest run.
    """

    log: str
    snapshots: Sequence[SnapshotLine] = ()
    error: str = ""
    failure: str = ""

    @property
    def has_news(self) -> bool:
        return bool(self.snapshots or self.error or self.failure)


def view_run(pipeline: Pipeline, run: Run, query: LogQuery) -> LogPage[LogOfRun]:
    """Returns logs of one page, those first that the run changed. Of many logs, only those that it changed."""
    logs = list(pipeline.config.logs)
    few = len(logs) <= LINES

    def is_wanted(one: LogOfRun) -> bool:
        return few or one.has_news

    page = read_page(logs, query, pipeline.at_once, partial(_of_log, pipeline, run), is_wanted)
    return replace(page, lines=sorted(page.lines, key=lambda one: not one.has_news))


def _of_log(pipeline: Pipeline, run: Run, log: str) -> LogOfRun:
    try:
        state = pipeline.ledger(log).find()
        record = find_alarm_record(pipeline.store, log)
    except Exception as error:
        return LogOfRun(log, error=str(hide_unexpected(error, "Reading the log")))
    mine = [s for s in reversed(state.snapshots) if s.run == run.id] if state else []
    is_told = any(s.verdict and not s.verdict.allows for s in mine)
    failed = record if record and record.run == run.id and record.failures and not is_told else None
    return LogOfRun(log, lines(state, mine) if state else (), failure=_explain_failure(state, failed) if failed else "")


def _explain_failure(state: LogState | None, record: AlarmRecord) -> str:
    """Returns why the newest run failed, with the landed file that it names, if there is one, and the next step."""
    file = next((p for p in state.landing.listed if p.code == record.code), None) if state else None
    step = file.hint if file else find_next_step(record.code) or "Read the log of the failed task."
    return " ".join([f"{record.error.rstrip('.')}.", *([file.message] if file else []), step])
