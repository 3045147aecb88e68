"""The status of a set: its point, its lag, which log is the slowest, why it waits, and what is undecided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from tidefold.config import SetConfig
from tidefold.domain.sets.set_state import SetState, release_snapshots
from tidefold.domain.wording import count_noun, shorten_reason
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.operations.ground.outcome import ErrorInfo, Outcome
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.inspect.log_status import LogStatus
from tidefold.operations.snapshot.abort import abort


@dataclass(frozen=True, slots=True)
class SetReason:
    """Why a set waits for one of its logs, or for its transaction topic."""

    log: str
    why: str


@dataclass(frozen=True, slots=True)
class SetStatus:
    """The status of one set.

    name, logs: as configured.
    version, position, instant: of the published version, and when it was decided; None: nothing is published.
    restored: the version whose rows the published one has again; 0: none.
    point: the newest position that is proved for all logs; None: none is.
    lag: how many landed transactions the set is behind, as its slowest topic is.
    slowest: the log that is furthest behind, or the transaction topic; empty: none is.
    waits: why the set is not at the newest transaction, by log; also that of the transaction topic.
    decided: the number of a version that is not yet published everywhere; None: none is open.
    error: set if the ledger of the set cannot be read.
    """

    name: str
    logs: tuple[str, ...]
    version: int | None = None
    position: int | None = None
    instant: str = ""
    restored: int = 0
    point: int | None = None
    lag: int = 0
    slowest: str = ""
    waits: tuple[SetReason, ...] = ()
    decided: int | None = None
    error: ErrorInfo | None = None

    def age(self, now: datetime) -> float | None:
        """Returns the seconds since the published version was decided; None: nothing is published."""
        return (now - datetime.fromisoformat(self.instant)).total_seconds() if self.instant else None


def release_set(pipeline: Pipeline, chosen: SetConfig, position: int, by: str, why: str) -> None:
    """Records who says that the snapshot by signal which holds a set had ended at a position. Raises RefusedError."""
    if not (by.strip() and why.strip()):
        raise InvalidInputError("SET_OPTIONS", "A release needs a name and a reason.", hint="Give --by and --reason.")
    instant = now()
    ledger = pipeline.set_ledger(chosen.name)
    ledger.commit(lambda state: release_snapshots(state, position, by, shorten_reason(why), instant))


def read_sets(pipeline: Pipeline, statuses: Sequence[LogStatus]) -> list[SetStatus]:
    """Returns the status of each set with one of these logs. Reads one ledger for each set."""
    logs = {one.log: one for one in statuses}
    asked = [one for one in pipeline.config.sets.values() if logs.keys() & {*one.logs}]
    return [read_set_status(pipeline, one, [logs[log] for log in one.logs if log in logs]) for one in asked]


def read_set_status(pipeline: Pipeline, chosen: SetConfig, logs: Iterable[LogStatus]) -> SetStatus:
    """Returns the status of one set. logs: the status of its logs, which may hold it."""
    try:
        state = pipeline.set_ledger(chosen.name).read()
    except TidefoldError as error:
        return SetStatus(chosen.name, chosen.logs, error=ErrorInfo.of(error))
    version, behind = state.published, dict(state.behind or {})
    slowest = max(behind, key=lambda log: behind[log], default="")
    return SetStatus(
        chosen.name,
        chosen.logs,
        version=version.number if version else None,
        position=version.position if version else None,
        instant=version.instant if version else "",
        restored=version.restored if version else 0,
        point=state.point.position if state.point else None,
        lag=behind.get(slowest, 0),
        slowest=slowest,
        waits=tuple(_find_reasons(state, logs)),
        decided=state.decided.number if state.decided else None,
    )


def _find_reasons(state: SetState, logs: Iterable[LogStatus]) -> Iterator[SetReason]:
    for log, why in (state.waits or {}).items():
        yield SetReason(log, why)
    for status in logs:
        if status.error:
            yield SetReason(status.log, status.error.message)
        elif status.why:
            yield SetReason(status.log, status.why)
        elif status.attempt:
            yield SetReason(status.log, f"snapshot {status.attempt.id} is {status.attempt.state}")


def set_lines(status: SetStatus) -> Iterator[str]:
    """Yields what people see of a set, without a table."""
    if status.error:
        yield f"set {status.name}: [{status.error.code}] {status.error.message} {status.error.hint}".rstrip()
        return
    if status.version is None:
        where = "nothing is published" if status.point is not None else "no point is proved yet"
    else:
        restored = f" (restored from version {status.restored})" if status.restored else ""
        where = f"version {status.version}{restored} at position {status.position}, since {status.instant}"
    lag = f"; {count_noun(status.lag, 'transaction')} behind, as its slowest topic `{status.slowest}`"
    yield f"set {status.name}: {where}{lag if status.lag else ''}."
    if status.point is not None and status.point != status.position:
        advice = "" if status.waits else "; `tidefold run`"
        yield f"set {status.name}: the point {status.point} is proved and not published yet{advice}."
    for one in status.waits:
        yield f"set {status.name}: waits for {one.log}: {one.why.rstrip('.')}."
    if status.decided:
        yield f"set {status.name}: version {status.decided} is decided; the next command publishes the rest of it."


def abort_version(pipeline: Pipeline, log: str, reason: str, snapshot: int) -> Outcome:
    """Aborts a snapshot, and those that the same run staged for the other logs of its set.

    They would never be published without it, and would block the next run.
    """
    aborted = pipeline.ledger(log).read().snapshot(snapshot)
    outcome = abort(pipeline, log, reason, snapshot=snapshot)
    chosen = pipeline.config.set_of(log)
    for other in chosen.logs if chosen and aborted else ():
        state = pipeline.ledger(other).find() if other != log else None
        attempt = state.open_attempt if state else None
        if attempt and aborted and attempt.run == aborted.run:
            # It may have been decided about meanwhile.
            with suppress(TidefoldError):
                abort(pipeline, other, f"`{log}` of its set was aborted: {reason}", snapshot=attempt.id)
    return outcome
