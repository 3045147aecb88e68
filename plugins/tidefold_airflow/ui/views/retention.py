"""Shows what each clean-up would delete now, what keeps the rest, and refused records. It changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.log_bounds import Bound, LogRetention, bounds, find_protected, newest
from tidefold.domain.snapshot.point_in_time import find_backfill_base
from tidefold.errors import InvalidInputError
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.quarantine.inspect import ReasonCount, RefusedRecord, count_refused, show_refused
from tidefold.operations.retention.clean import STORE, clean
from tidefold.operations.retention.details import RemovalDetails, paths_of
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold_airflow.ui.responses import hide_unexpected

LISTED = 50


@dataclass(frozen=True, slots=True)
class Step:
    """One clean-up as it would run now.

    bytes: None if unknown.
    more: the number of files that are not listed.
    """

    name: str
    what: str
    command: str
    outcome: Outcome
    files: int
    bytes: int | None
    paths: Sequence[str]
    more: int


@dataclass(frozen=True, slots=True)
class RetentionView:
    """The plans, the `keep` newest snapshots (None: all), the bounds of the log, and why each snapshot stays."""

    state: LogState
    keep: int | None
    steps: Sequence[Step]
    bounds: Sequence[Bound]
    kept: Sequence[tuple[int, str]]


def view_retention(pipeline: Pipeline, state: LogState) -> RetentionView:
    """Makes every plan separately. A plan that fails shows its error and hides no other."""
    keep, kept_log = pipeline.config.retention.keep, pipeline.config.retention.log_retention(now())
    return RetentionView(
        state,
        keep,
        _steps(pipeline, state),
        bounds(state, keep, kept_log),
        _explain_kept(state, keep, kept_log),
    )


def _steps(pipeline: Pipeline, state: LogState) -> list[Step]:
    log = state.log
    return [
        _step("subsume", "snapshots beyond those that are kept", log, lambda: subsume(pipeline, log, plan=True)),
        _step("truncate", "the log before the kept snapshots", log, lambda: truncate(pipeline, log, plan=True)),
        _step(
            "clean-local",
            "copies on the machine that serves this page",
            log,
            lambda: _of_log(retain_local(pipeline, [log], plan=True)),
        ),
        _add_size(
            pipeline,
            _step("clean", "what killed runs and aborted attempts left behind", log, lambda: _clean(pipeline, log)),
        ),
    ]


def _clean(pipeline: Pipeline, log: str) -> Outcome:
    return _of_log([o for o in clean(pipeline, [log], plan=True) if o.log != STORE])


def _of_log(outcomes: Sequence[Outcome]) -> Outcome:
    return outcomes[0]


def _step(name: str, what: str, log: str, plan: Callable[[], Outcome]) -> Step:
    try:
        outcome = plan()
    except Exception as error:
        outcome = Outcome.of_error(log, hide_unexpected(error, f"The plan of `{name}`"))
    paths = paths_of(outcome)
    size = outcome.details.bytes if isinstance(outcome.details, RemovalDetails) else None
    return Step(
        name=name,
        what=what,
        command=f"tidefold {name} {log}",
        outcome=outcome,
        files=outcome.details.files if isinstance(outcome.details, RemovalDetails) else 0,
        bytes=size if paths or size is not None else 0,
        paths=paths[:LISTED],
        more=max(len(paths) - LISTED, 0),
    )


def _add_size(pipeline: Pipeline, step: Step) -> Step:
    """Adds the bytes of the files that `clean` names."""
    if step.bytes is not None:
        return step
    paths = LogPaths(step.outcome.log)
    folders = (paths.snapshots, f"{paths.table}/_data", paths.folder)
    going = set(paths_of(step.outcome))
    entries = (e for folder in folders for e in pipeline.store.list(folder, unfinished=True))
    size = sum(e.bytes for e in entries if e.path in going)
    return Step(step.name, step.what, step.command, step.outcome, step.files, size, step.paths, step.more)


def _explain_kept(state: LogState, keep: int | None, kept_log: LogRetention | None) -> list[tuple[int, str]]:
    """Explains for each completed snapshot why it stays; newest first."""
    completed = [s for s in state.snapshots if s.state is State.COMPLETED]
    stays = find_protected(state, keep, kept_log) if keep else {s.id for s in completed}
    base = find_backfill_base(state, kept_log.since) if kept_log else None
    return [(s.id, _why(state, s, keep, base)) for s in reversed(completed) if s.id in stays]


def _why(state: LogState, snapshot: Snapshot, keep: int | None, base: Snapshot | None) -> str:
    reasons = [f"tag {t.name}" for t in state.tags if t.snapshot == snapshot.id]
    reasons += [f"hold {h.name}" for h in state.holds if h.snapshot == snapshot.id]
    if keep is None:
        reasons.append("all snapshots are kept")
    elif snapshot.id in {s.id for s in newest(state, keep)}:
        reasons.append(f"one of the newest {keep}")
    elif snapshot.kind is SnapshotKind.TAIL:
        reasons.append(f"a tail on snapshot {snapshot.base}")
    if snapshot == base:
        reasons.append("the oldest backfill begins with it")
    return ", ".join(reasons) or "something that stays is built on it"


LISTED_RECORDS = 100
_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """Counts of all reasons, and records of one `reason` or of all.

    more: there are more records than the listed ones.
    """

    counts: Sequence[ReasonCount]
    reason: str | None
    records: Sequence[RefusedRecord]
    more: bool


def view_quarantine(pipeline: Pipeline, log: str, reason: str | None) -> QuarantineView:
    """Builds the page of the quarantine. Raises InvalidInputError if the reason is not a code."""
    if reason is not None and not _REASON.fullmatch(reason):
        raise InvalidInputError("REASON_INVALID", "This is not a reason code.", hint="Choose one from the list.")
    records, more = show_refused(pipeline, log, reason, LISTED_RECORDS)
    return QuarantineView(count_refused(pipeline, log), reason, records, more)
