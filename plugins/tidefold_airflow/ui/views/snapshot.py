"""Shows one snapshot with everything that the store records of it, its stored report, and one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.table.table_spec import Column
from tidefold.domain.table.types import schema_of, schemas_of
from tidefold.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.ledger import read_manifest
from tidefold.operations.inspect.status import find_restorers
from tidefold.operations.local_copies.manage import snapshots_here
from tidefold.operations.pipeline import Pipeline
from tidefold.quality.report.result import CheckResult, ValidationResult
from tidefold.quality.report.verdict_store import find_stored_judgement
from tidefold_airflow.ui.request import LINES, LogPage, LogQuery, Run, read_page
from tidefold_airflow.ui.responses import hide_unexpected
from tidefold_airflow.ui.views.log import SnapshotLine, line, lines

LISTED = 100
_LARGEST_REPORT = 8 << 20


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
    verdict = snapshot.verdict
    if verdict is None:
        return None
    try:
        return find_stored_judgement(pipeline.store, state.log, snapshot.id, verdict.manifest, verdict.suite)
    except TidefoldError:
        return None


def _list_failed_checks(judged: ValidationResult | None) -> Sequence[CheckResult]:
    """Returns the checks that did not pass, failures before warnings."""
    wrong = [check for check in judged.checks if not check.passed] if judged else []
    return sorted(wrong, key=lambda check: not check.failed)[:LISTED]


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
    more = max(len(ordered) - LISTED, 0)
    return Files(ordered[:LISTED], more, carried, manifest.expired, manifest.bytes_copied)


def read_stored_report(pipeline: Pipeline, state: LogState, snapshot: Snapshot) -> bytes:
    """Returns the report that was stored with the verdict. Raises NotFoundError, or CorruptError if it is too large."""
    verdict = snapshot.verdict
    folder = f"{LogPaths(state.log).folder}/quality/"
    if verdict is None or not verdict.path.startswith(folder) or ".." in verdict.path.split("/"):
        raise NotFoundError(
            "REPORT_NOT_FOUND",
            f"Snapshot {snapshot.id} of `{state.log}` has no report.",
            hint=f"`tidefold quality {state.log}` judges the staged snapshot.",
        )
    data = pipeline.store.read(verdict.path, 0, _LARGEST_REPORT + 1)
    if len(data) > _LARGEST_REPORT:
        raise CorruptError(
            "REPORT_TOO_LARGE", "The report is larger than any report that tidefold writes.", hint="Look at the file."
        )
    return data


@dataclass(frozen=True, slots=True)
class LogOfRun:
    """The snapshots that the run began in one log, newest first.

    error: its ledger cannot be read.
    """

    log: str
    snapshots: Sequence[SnapshotLine] = ()
    error: str = ""


def view_run(pipeline: Pipeline, run: Run, query: LogQuery) -> LogPage[LogOfRun]:
    """Returns logs of one page, those first that the run changed. Of many logs, only those that it changed."""
    logs = list(pipeline.config.logs)
    few = len(logs) <= LINES

    def is_wanted(one: LogOfRun) -> bool:
        return few or bool(one.snapshots or one.error)

    page = read_page(logs, query, pipeline.at_once, partial(_of_log, pipeline, run), is_wanted)
    return replace(page, lines=sorted(page.lines, key=lambda one: not (one.snapshots or one.error)))


def _of_log(pipeline: Pipeline, run: Run, log: str) -> LogOfRun:
    try:
        state = pipeline.ledger(log).find()
    except Exception as error:
        return LogOfRun(log, error=str(hide_unexpected(error, "Reading the log")))
    mine = [s for s in reversed(state.snapshots) if s.run == run.id] if state else []
    return LogOfRun(log, lines(state, mine) if state else ())
