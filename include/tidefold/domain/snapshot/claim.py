r"""The transitions that begin a snapshot (a fold, a restore, an import, a tail\).

Each takes a state and returns the next one, or raises a typed error. With nothing to do it returns the given state
(I4).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum

from tidefold.domain.commit_times import latest_commit_time
from tidefold.domain.external_snapshot import External, Ownership
from tidefold.domain.ingest.append import never_took, stop
from tidefold.domain.landing_problems import find_refused
from tidefold.domain.log_state import Expire, LogState, Snapshot, SnapshotKind, State, Stopped
from tidefold.domain.snapshot.transitions import AbortCause, end_attempt, require_published, require_snapshot
from tidefold.domain.table.table_spec import VERSION
from tidefold.errors import InvalidInputError, RefusedError


class RestoreMode(StrEnum):
    """What a restore does with the changes after the snapshot.

    STAY: they wait, and the log is stopped, until somebody resumes it.
    SKIP: they are left out for good.
    REPLAY: the next fold folds them again.
    CARRY: as REPLAY. The change sets of a tail are not folded either: its base is restored, and they wait in the log.
    """

    STAY = "stay"
    SKIP = "skip"
    REPLAY = "replay"
    CARRY = "carry"


def name_span(first: int, last: int) -> str:
    """Returns the name of a range of change sets, for messages."""
    return f"change set {first}" if first == last else f"change sets {first} to {last}"


def describe_replayed(mode: str, first: int, last: int) -> str:
    """Returns what happens to the change sets after a restored snapshot that are not left out."""
    when = "folded after `tidefold move resume`" if mode == RestoreMode.STAY else "folded again by the next run"
    return f"{when}: {name_span(first, last)}"


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """The snapshot to restore, and what happens to the changes after it."""

    snapshot: int
    mode: RestoreMode


@dataclass(frozen=True, slots=True)
class WatchedAttempt:
    """An attempt as the ledger has it, and how many of its heartbeats were seen."""

    attempt: Snapshot
    heartbeats: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The request for a snapshot.

    takeover: supersede an open attempt of another run.
    stalled: supersede this attempt of another run if the ledger has not changed it since.
    because: why the snapshot is of this kind.
    expire: which rows it drops for their age.
    renew: make it even without new changes.
    external: the snapshot outside the store whose rows it gets.
    lateness: how far below the highest order a delete is still remembered, in the unit of the first order column.
    token: the random part of the attempt's token.
    by: who asks.
    partly: the first snapshot may lack a landed file.
    """

    run: str
    request: str
    kind: SnapshotKind
    instant: str
    takeover: bool = False
    stalled: WatchedAttempt | None = None
    restore: RestorePoint | None = None
    because: str = ""
    expire: Expire | None = None
    renew: bool = False
    external: External | None = None
    lateness: int | None = None
    token: str = ""
    by: str = ""
    partly: bool = False


def claim(state: LogState, request: Claim) -> LogState:
    """Starts an attempt under a new epoch.

    Returns the state unchanged if there is nothing to fold, or if this run's snapshot already exists, in whatever
    state. Raises RefusedError if another run's attempt is open, or if this run made another request before.
    """
    mine = same_request(state, request)
    if mine and mine.state is not State.ONGOING:
        return state
    attempt = state.open_attempt
    stalled = request.stalled if request.stalled and request.stalled.attempt == attempt else None
    if attempt and attempt.run != request.run and not request.takeover and not stalled:
        raise build_open_error(state, attempt)
    if state.stays and not request.restore and not request.external:
        return state
    if not attempt and not state.unfolded and not request.restore and not request.renew and not request.external:
        return state
    require_published(state)
    if request.restore:
        require_completed(state, request.restore.snapshot)
    elif not request.external and not request.partly:
        _require_whole_load(state)
    free = supersede(state, attempt, stalled)
    # Two owners would delete each other's files.
    for owner in find_owners(free):
        if request.external and owner.external and owner.external.address == request.external.address:
            raise build_owned_error(free.log, owner.id)
    return _begin(free, replace(request, expire=_freeze_expire(state, request)))


def _require_whole_load(state: LogState) -> None:
    """Raises InvalidInputError if the first snapshot would lack a landed file: nobody would miss its rows."""
    if state.latest or state.shape.order == VERSION:  # Each full extract is a whole table.
        return
    # A record stopped these: what comes before it is taken.
    partly = {entry.name for entry in state.landed if not entry.complete}
    if refused := find_refused(state.landing, partly):
        raise InvalidInputError(
            "LOAD_INCOMPLETE",
            f"`{state.log}` has no completed snapshot, and nothing is published while a landed file is refused as a "
            f"whole. [{refused.code}] {refused.message}{state.landing.others(state.log)}",
            hint=f"{refused.hint} To publish without `{refused.file}`, set `leave_out: [{json.dumps(refused.file)}]` "
            f"under `source`. Then `tidefold run {state.log}`.",
        )


def _freeze_expire(state: LogState, request: Claim) -> Expire | None:
    """Returns which rows are dropped. A retry of a run drops no row that its first attempt would have kept (I24)."""
    expire = request.expire
    for before in (s.expire for s in state.snapshots if (s.run, s.request) == (request.run, request.request)):
        if expire and before and before.column == expire.column:
            expire = min(expire, before, key=lambda one: one.before)
    return expire


def same_request(state: LogState, request: Claim) -> Snapshot | None:
    """Returns the snapshot that this run made before. Raises RefusedError if its request was another one."""
    mine = find_by_run(state, request.run)
    if mine and mine.request != request.request:
        raise RefusedError(
            "RUN_CHANGED", f"Run `{request.run}` already made snapshot {mine.id} of `{state.log}` for another request."
        )
    return mine


def tail(state: LogState, request: Claim) -> LogState:
    """Makes a snapshot of the newest materialized one and the change sets after it, complete at once (C10).

    Returns the state unchanged if this run has one, or nothing was appended since the newest snapshot. Raises
    RefusedError if there is no materialized snapshot, whose verdict a tail inherits.
    """
    latest = state.latest
    if same_request(state, request):
        return state
    if latest is None:
        raise RefusedError(
            "NOTHING_MATERIALIZED",
            f"`{state.log}` has no completed snapshot, and a tail-only snapshot is built on one.",
            hint=f"`tidefold run {state.log}` makes one.",
        )
    if newest_sqn(state) == state.last_sqn:
        return state
    # A tail is no attempt: it takes no epoch and writes no data files.
    attempt = begin_attempt(state, replace(request, kind=SnapshotKind.TAIL, token=""), latest)
    complete = replace(
        attempt,
        epoch=state.epoch,
        state=State.COMPLETED,
        bytes_full=latest.bytes_full + _count_log_bytes(state, attempt.from_sqn),
        bytes_written=_count_log_bytes(state, newest_sqn(state)),
    )
    return state.with_snapshot(complete)


def _count_log_bytes(state: LogState, after: int) -> int:
    """The bytes of the change sets after an sqn."""
    return sum(c.location.length for c in state.change_sets_in(after, state.last_sqn))


def newest_sqn(state: LogState) -> int:
    """Returns the last sqn of the newest materialized snapshot, or of a tail on it."""
    latest = state.latest
    built = (s for s in state.snapshots if s.state is State.COMPLETED and s.as_of is None)
    on_it = (s.to_sqn for s in built if latest and s.base == latest.id)
    return max(on_it, default=0) if latest is None else max(latest.to_sqn, max(on_it, default=0))


def next_id(state: LogState) -> int:
    """Returns the id of the next snapshot."""
    return max((s.id for s in state.snapshots), default=state.last_snapshot) + 1


def find_by_run(state: LogState, run: str) -> Snapshot | None:
    """Returns the newest snapshot that this run began and that was not aborted."""
    return next((s for s in reversed(state.snapshots) if s.run == run and s.state is not State.ABORTED), None)


def build_open_error(state: LogState, attempt: Snapshot) -> RefusedError:
    """Returns the error that another run has an open attempt."""
    log = state.log
    abort = f"`tidefold step abort {log}{f' --snapshot {attempt.id}' if attempt.as_of else ''}`"
    if attempt.state is State.STAGED and not attempt.as_of:
        # It has no heartbeat, and may wait for a person: no run may take it for dead.
        hint = (
            "If that run still works, or waits for an approval, wait until it ends. Otherwise "
            f"{name_next(log, attempt)} goes on with it, and {abort} undoes it, as --takeover does. "
            "`--takeover-after` leaves it to a person."
        )
    else:
        by_cron = "" if attempt.as_of else " With `--takeover-after 600`, a run by cron does so if nothing moves."
        hint = "If that run still works, wait until it ends. If it was killed, call again with --takeover, or run "
        hint += f"{abort}.{by_cron}"
    return RefusedError(
        "ATTEMPT_OPEN",
        f"Run `{attempt.run}` has an open attempt on `{state.log}`: {attempt.title} is {attempt.state}.",
        hint=hint,
    )


def name_next(log: str, attempt: Snapshot) -> str:
    """Returns the command that goes on with an attempt at the next snapshot; empty: none does, it begins again."""
    if attempt.reshape:
        return f"`tidefold plan {log} --apply`"
    begun_by_other = attempt.restored_from is not None or attempt.external is not None
    return "" if attempt.state is State.ONGOING and begun_by_other else f"`tidefold run {log} --run {attempt.run}`"


def supersede(state: LogState, attempt: Snapshot | None, stalled: WatchedAttempt | None = None) -> LogState:
    """Aborts an open attempt, because the next one replaces it. The cause names what was seen of a stalled one."""
    if attempt is None:
        return state
    cause = AbortCause.supersede(state.epoch + 1, stalled.heartbeats if stalled else None)
    return end_attempt(state, attempt, cause.text)


def begin_attempt(state: LogState, request: Claim, base: Snapshot | None) -> Snapshot:
    """Returns an attempt under a new epoch that folds all change sets after `base` onto it."""
    after = base.to_sqn if base else 0
    return Snapshot(
        id=next_id(state),
        epoch=state.epoch + 1,
        run=request.run,
        request=request.request,
        kind=request.kind,
        state=State.ONGOING,
        base=base.id if base else None,
        from_sqn=after,
        to_sqn=max(state.last_sqn, after),
        started_at=request.instant,
        kind_reason=request.because,
        expire=request.expire,
        horizon=base.horizon if base else None,
        schema=state.schema,
        # A ledger that was set back may give an id and an epoch a second time, but never a token.
        token=f"{state.incarnation}{request.token}" if request.token else "",
    )


def _begin(state: LogState, request: Claim) -> LogState:
    begun = replace(begin_attempt(state, request, state.latest), horizon=_horizon(state, request))
    if request.restore:
        begun = _restoring(state, begun, request.restore)
        state = _stop_at(state, request, request.restore)
    if request.external:
        begun = _importing(state, begun, request.external)
    return replace(state, epoch=begun.epoch).with_snapshot(replace(begun, max_commit_time=_until(state, begun)))


def _until(state: LogState, begun: Snapshot) -> int | None:
    """Returns the last commit time of the changes to fold; None: not known."""
    if begun.external:
        return begun.reshape.max_commit_time if begun.reshape else None
    below = None if begun.parent is None else require_snapshot(state, begun.parent)
    folded = state.change_sets_in(begun.from_sqn, begun.folds_to)
    return latest_commit_time([below.max_commit_time] if below else [], (c.times for c in folded))


def _horizon(state: LogState, request: Claim) -> int | None:
    """Returns the horizon. It is never below that of the base, which has forgotten earlier deletes."""
    horizon = state.latest.horizon if state.latest else None
    if request.lateness is None or request.restore or request.external:
        return horizon
    tops = [c.top - request.lateness for c in state.change_sets if c.top is not None]
    return max([*tops, *([] if horizon is None else [horizon])], default=None)


def require_completed(state: LogState, snapshot: int) -> Snapshot:
    """Returns the snapshot to restore. Raises NotFoundError, RefusedError if it is not completed."""
    wanted = require_snapshot(state, snapshot)
    if wanted.state is not State.COMPLETED:
        raise RefusedError(
            "WRONG_STATE",
            f"Snapshot {wanted.id} of `{state.log}` is {wanted.state} and cannot be restored.",
            hint=f"`tidefold snapshot history {state.log}` shows which snapshots are COMPLETED.",
        )
    return wanted


def _restoring(state: LogState, begun: Snapshot, request: RestorePoint) -> Snapshot:
    """Returns the attempt that restores the rows of a snapshot under a new id. One more restore undoes it."""
    wanted = require_completed(state, request.snapshot)
    if state.reshaped and wanted.id < state.reshaped.id:
        raise RefusedError(
            "SHAPE_OLDER",
            f"Snapshot {wanted.id} of `{state.log}` has the table definition from before snapshot {state.reshaped.id}.",
            hint=f"`tidefold move export {state.log} {wanted.id} --to FOLDER` writes its rows. To have them in the "
            f"table, put the former configuration back and run `tidefold plan {state.log}`.",
        )
    is_tail = wanted.kind is SnapshotKind.TAIL
    origin = wanted.base if is_tail else wanted.id
    end = wanted.from_sqn if is_tail and request.mode is RestoreMode.CARRY else wanted.to_sqn
    begun = replace(
        begun, restored_from=origin, from_sqn=wanted.from_sqn if is_tail else wanted.to_sqn, horizon=wanted.horizon
    )
    if request.mode is RestoreMode.SKIP:
        skipped = wanted.to_sqn if wanted.to_sqn < state.last_sqn else None
        return replace(begun, to_sqn=state.last_sqn, skipped_from=skipped)
    if wanted.as_of:
        raise RefusedError(
            "AS_OF_NO_REPLAY",
            f"Snapshot {wanted.id} of `{state.log}` contains the changes committed before {wanted.as_of}. "
            "The changes that it leaves out are spread over the log, so no position of the log continues it.",
        )
    if end < state.truncated_to:
        raise RefusedError(
            "LOG_CUT",
            f"The changes after snapshot {origin} of `{state.log}` cannot be replayed: the snapshot ends with "
            f"change set {end}, and the log was {state.cut_reason} up to {state.truncated_to}.",
            hint="`--log-position skip` restores the snapshot and leaves out the later changes.",
        )
    return replace(begun, to_sqn=end)


def _stop_at(state: LogState, request: Claim, wanted: RestorePoint) -> LogState:
    """Stops the log if the restored rows are to stay. A log that another restore has stopped stays stopped by that."""
    if wanted.mode is not RestoreMode.STAY or state.stays:
        return state
    why = f"the rows of snapshot {wanted.snapshot} stay"
    return stop(state, Stopped(request.run, request.by or request.run, why, "", request.instant))


def _importing(state: LogState, begun: Snapshot, external: External) -> Snapshot:
    """Returns the attempt that imports rows, and leaves out unfolded changes. An empty log continues where they end."""
    begun = replace(begun, external=external, horizon=None)
    if reshape := external.reshape:
        # The change sets of the plan follow those of the log.
        first = state.last_sqn
        until, schema = first + external.sqn, reshape.schemas[-1].id
        return replace(begun, from_sqn=first, to_sqn=until, schema=schema, horizon=reshape.horizon)
    if never_took(state):
        return replace(begun, from_sqn=external.sqn, to_sqn=external.sqn)
    begins = max(begun.from_sqn, state.truncated_to)
    return replace(begun, from_sqn=begins, skipped_from=begins if begins < state.last_sqn else None)


def find_owners(state: LogState) -> tuple[Snapshot, ...]:
    """Returns the snapshots that own, or will own, an original outside the store that is not deleted yet."""
    gone = (State.ABORTED, State.DELETED)
    return tuple(
        s for s in state.snapshots if s.external and s.external.ownership is Ownership.CLAIM and s.state not in gone
    )


def build_owned_error(log: str, snapshot: int) -> RefusedError:
    return RefusedError(
        "ORIGINAL_CLAIMED",
        f"Snapshot {snapshot} of `{log}` owns this original and deletes it when it is retired.",
        hint=f"`tidefold restore {log} {snapshot}` restores its rows.",
    )


class KindPolicy(StrEnum):
    """How the kind is selected: always the same kind, or by cost."""

    FULL = "full"
    INCREMENTAL = "incremental"
    AUTO = "auto"
