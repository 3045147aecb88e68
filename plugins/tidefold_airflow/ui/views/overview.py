"""Shows the logs of the pipeline, page by page, its sets, and the doctor's newest findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.log_bounds import Bound, LogRetention, bounds, find_protected, newest
from tidefold.domain.snapshot.point_in_time import find_backfill_base
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ground.removal_details import RemovalDetails, paths_of
from tidefold.operations.inspect.log_status import LogStatus, status_of
from tidefold.operations.inspect.status import add_records, status, with_alarms
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.quarantine.inspect import ReasonCount, RefusedRecord, count_refused, show_refused
from tidefold.operations.retention.clean import STORE, clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.sets.status import SetStatus, read_set_status
from tidefold_airflow.ui.health import Lag, Note, Word, lag_of, to_do, word_of_log
from tidefold_airflow.ui.request import LogPage, LogQuery, read_page
from tidefold_airflow.ui.responses import hide_unexpected

# The tones of a log, and those of logs that a person should look at.
_TONES = ("bad", "warn", "busy", "calm", "good")
_OUT_OF_ORDER = _TONES[:2]
LISTED = 50
LISTED_RECORDS = 100
_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log: its status, in a word and in full, and what to do."""

    status: LogStatus
    word: Word
    lag: Lag
    to_do: list[Note]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the logs of a page.

    words: how many logs are in each state, those first that a person should look at.
    """

    logs: int
    words: Sequence[tuple[Word, int]]
    changes: int
    quarantined: int
    rows: int
    bytes: int


def overview(pipeline: Pipeline, query: LogQuery) -> LogPage[LogLine]:
    """Returns the lines of a page, in the order of the configuration. An unreadable log shows its error."""

    def is_wanted(line: LogLine) -> bool:
        return line.word.tone in _OUT_OF_ORDER if query.attention else True

    return read_page(list(pipeline.config.logs), query, pipeline.at_once, partial(_line, pipeline), is_wanted)


def totals(lines: list[LogLine]) -> Totals:
    """Computes the sums over the logs of a page."""
    latest = [line.status.latest for line in lines if line.status.latest]
    words = Counter(line.word for line in lines)
    return Totals(
        logs=len(lines),
        words=sorted(words.items(), key=lambda one: (_TONES.index(one[0].tone), one[0].text)),
        changes=sum(line.lag.changes for line in lines),
        quarantined=sum(line.status.quarantined for line in lines),
        rows=sum(s.rows for s in latest),
        bytes=sum(s.bytes_full for s in latest),
    )


def _line(pipeline: Pipeline, log: str) -> LogLine:
    lag, state = Lag(), None
    try:
        state = pipeline.ledger(log).find()
        status = add_records(pipeline, status_of(state) if state else LogStatus(log, begun=False))
        lag = lag_of(state) if state else lag
    except Exception as error:
        hidden = Outcome.of_error(log, hide_unexpected(error, "Reading the log"))
        status = with_alarms(pipeline, LogStatus(log, begun=True, error=hidden))
    return LogLine(status, word_of_log(status), lag, to_do(status, state))


@dataclass(frozen=True, slots=True)
class SetLine:
    """One set: its status, in a word and in full."""

    status: SetStatus
    word: Word


def view_sets(pipeline: Pipeline, lines: Sequence[LogLine]) -> list[SetLine]:
    """Returns the sets whose logs the reader may all see. lines: logs that the page has read already."""
    statuses = {line.status.log: line.status for line in lines}
    shown = [one for one in pipeline.config.sets.values() if {*one.logs} <= pipeline.config.logs.keys()]
    states = [read_set_status(pipeline, one, _read_logs(pipeline, one.logs, statuses)) for one in shown]
    return [SetLine(one, _choose_word(one)) for one in states]


def _read_logs(pipeline: Pipeline, logs: Sequence[str], statuses: dict[str, LogStatus]) -> list[LogStatus]:
    missing = [log for log in logs if log not in statuses]
    return [*(statuses[log] for log in logs if log in statuses), *status(pipeline, missing)]


def _choose_word(state: SetStatus) -> Word:
    if state.error:
        return Word("unreadable", "bad")
    if state.waits:
        return Word("waits", "warn")
    if state.version is None:
        return Word("not published", "calm")
    return Word("up to date", "good") if state.position == state.point else Word("changes wait", "busy")


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
        state, keep, _steps(pipeline, state), bounds(state, keep, kept_log), _explain_kept(state, keep, kept_log)
    )


def _steps(pipeline: Pipeline, state: LogState) -> list[Step]:
    log = state.log
    return [
        _step("subsume", "snapshots beyond those that are kept", log, lambda: subsume(pipeline, log, plan=True)),
        _step("truncate", "the log before the kept snapshots", log, lambda: truncate(pipeline, log, plan=True)),
        _step(
            "clean --local",
            "copies on the machine that serves this page",
            log,
            lambda: retain_local(pipeline, [log], plan=True)[0],
        ),
        _add_size(
            pipeline,
            _step(
                "clean",
                "what killed runs and aborted attempts left behind",
                log,
                lambda: next(o for o in clean(pipeline, [log], plan=True) if o.log != STORE),
            ),
        ),
    ]


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
        command=f"tidefold retain {name} {log}",
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
    return replace(step, bytes=size)


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
        raise InvalidInputError("REASON_INVALID", "This is not a reason code.")
    records, more = show_refused(pipeline, log, reason, LISTED_RECORDS)
    return QuarantineView(count_refused(pipeline, log), reason, records, more)
