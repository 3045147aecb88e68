"""Confirms the snapshots of a set together: one conditional write decides for all of them, or for none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidefold.config import SetConfig
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.sets.point import SetPoint
from tidefold.domain.sets.set_state import Member, SetState, decide, decide_again
from tidefold.errors import ConflictError, GateFailedError, RefusedError, TidefoldError, wrap_unexpected
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.publish.publish_log import roll_forward
from tidefold.operations.publish.publish_set import publish_decided
from tidefold.operations.sets.read import StagedVersion, explain_staged, find_restored_version
from tidefold.operations.snapshot.confirm import Confirmation, confirm, let_through, require_no_override

if TYPE_CHECKING:
    from tidefold.operations.sets.checks import UnequalSums

_TRIES = 10
_SUMS = (
    "Compare the source's own sums. If they agree, look for quarantined records: `tidefold quarantine show LOG`. No "
    "override publishes unequal sums: correct the source, or remove the rule from `equal_sums`."
)


def confirm_logs(pipeline: Pipeline, logs: Sequence[str], run_id: str | None, reconcile: bool = False) -> list[Outcome]:
    """Confirms and publishes the snapshots of a run: logs in a set together, each other log alone.

    A set that is held does not stop other sets and logs.
    """
    alone = [log for log in logs if pipeline.config.set_of(log) is None]
    wanted = Confirmation(run=run_id, reconcile=reconcile)
    outcomes = {o.log: o for o in for_each_log(alone, lambda log: confirm(pipeline, log, wanted))}
    for chosen in pipeline.config.sets.values():
        if any(log in chosen.logs for log in logs):
            outcomes |= confirm_set(pipeline, chosen, run_id)
    return [outcomes[log] for log in logs]


def confirm_past(pipeline: Pipeline, logs: Sequence[str], run_id: str) -> list[Outcome]:
    """Confirms the snapshots that a run made as of an instant. They are kept and not published, so a set is not asked.

    A log of a set that got none is not changed.
    """
    wanted = Confirmation(run=run_id)

    def act(log: str) -> Outcome:
        state = pipeline.ledger(log).find()
        snapshot = wanted.choose(state) if state else None
        if snapshot is None and pipeline.config.set_of(log):
            return Outcome(log, Status.NOTHING, "this run made no snapshot of it")
        return confirm(pipeline, log, wanted)

    return for_each_log(logs, act)


def confirm_log(pipeline: Pipeline, log: str, wanted: Confirmation = Confirmation()) -> Outcome:
    """Confirms one snapshot; if its log is in a set, the whole set."""
    chosen = pipeline.config.set_of(log)
    state = pipeline.ledger(log).find() if chosen else None
    candidate = wanted.choose(state) if state else None
    if chosen is None or (candidate and candidate.as_of):
        return confirm(pipeline, log, wanted)
    if wanted.reconcile:
        roll_forward(pipeline, log, wanted.reconcile)
    if candidate is None:
        require_no_override([log, *(one for one in chosen.logs if one != log)], wanted.override)
    elif candidate.state is State.STAGED:
        let_through(pipeline, log, candidate.id, wanted.override)
    return confirm_set(pipeline, chosen, candidate.run if candidate else wanted.run)[log]


def confirm_set(pipeline: Pipeline, chosen: SetConfig, run_id: str | None) -> dict[str, Outcome]:
    """Decides for the snapshots of all logs of a set, publishes them, and returns an outcome for each log.

    If one log cannot be published at the set's point, none is: each log's outcome names it.
    """
    try:
        return _confirm(pipeline, chosen, run_id)
    except Exception as error:
        failure = wrap_unexpected(error)
        return {log: Outcome.of_error(log, failure) for log in chosen.logs}


def _confirm(pipeline: Pipeline, chosen: SetConfig, run_id: str | None) -> dict[str, Outcome]:
    ledger = pipeline.set_ledger(chosen.name)
    for _ in range(_TRIES):
        # The set is read before its logs: a later change of a log needs a later version of the set.
        state = publish_decided(pipeline, ledger, ledger.read())
        logs = {log: pipeline.ledger(log).find() for log in chosen.logs}
        again = find_restored_version(state, logs, run_id)
        if again is None and state.point is None:
            return _describe_idle(chosen, state, "has no point yet")
        if again is None and _shows_restored(state, logs):
            return _describe_published(chosen, state, Status.ALREADY)
        candidates = {log: _find_candidate(log, one, state, run_id, again) for log, one in logs.items()}
        held = {log: one for log, one in candidates.items() if isinstance(one, TidefoldError)}
        if held:
            return _describe_held(chosen, logs, held)
        members = tuple(Member(log, one.id) for log, one in candidates.items() if isinstance(one, Snapshot))
        if not members:
            return _describe_idle(chosen, state, "has no rows yet")
        wanted = _decide(state, members, run_id or "", again)
        if wanted is state:
            return _describe_published(chosen, state, Status.ALREADY)
        if unequal := _find_unequal_sums(pipeline, chosen, members):
            error = GateFailedError("SET_SUMS", unequal.message, hint=_SUMS)
            return _describe_held(chosen, logs, dict.fromkeys(unequal.logs, error))
        decided = ledger.try_commit(state, wanted)
        if decided:
            return _describe_published(chosen, publish_decided(pipeline, ledger, decided), Status.PUBLISHED)
    raise ConflictError("SET_BUSY", f"Other processes changed set `{chosen.name}` {_TRIES} times.")


def _decide(state: SetState, members: tuple[Member, ...], run: str, again: StagedVersion | None) -> SetState:
    """Returns the state with the decision; the given one if these snapshots are published already."""
    if again is None:
        return decide(state, members, run, now())
    return decide_again(state, again.version, members, run, now())


def _shows_restored(state: SetState, logs: Mapping[str, LogState | None]) -> bool:
    """Whether all tables show a restored version, and no log has begun to fold the later changes again."""
    if state.published is None or not state.published.restored:
        return False
    members = state.published.snapshots
    newest = {log: one.latest.id for log, one in logs.items() if log in members and one and one.latest}
    return newest == members and not any(one and one.open_attempt for one in logs.values())


def _find_unequal_sums(pipeline: Pipeline, chosen: SetConfig, members: Sequence[Member]) -> UnequalSums | None:
    """Returns the first configured sums that differ; None: all are equal."""
    if not chosen.equal_sums:
        return None
    # It reads rows, which a confirmation does not need otherwise.
    from tidefold.operations.sets.checks import find_unequal_sums

    return find_unequal_sums(pipeline, chosen, {one.log: one.snapshot for one in members})


def _find_candidate(
    log: str, state: LogState | None, of_set: SetState, run_id: str | None, again: StagedVersion | None
) -> Snapshot | TidefoldError | None:
    """Returns the snapshot of a log that has exactly the changes of the set's point; None: it has no change at all.

    An error: why the log cannot be published at the point. again: the version whose rows are published again.
    """
    if again:
        return again.find_candidate(log, state, of_set)
    assert of_set.point is not None
    if missing := explain_missing(log, state, of_set.point):
        return missing
    if state is None or (state.latest is None and state.open_attempt is None and not state.change_sets):
        return None
    staged = state.open_attempt
    if staged and staged.state is State.STAGED and staged.to_sqn == state.last_sqn and not staged.restored_from:
        if run_id is not None and staged.run != run_id:
            return _hold(log, f"snapshot {staged.id} of another run ({staged.run}) is open")
        return explain_staged(log, staged, of_set) or staged
    if state.latest and state.latest.to_sqn == state.last_sqn and state.latest.published:
        return state.latest
    return _hold(log, "no snapshot contains all its changes up to the point")


def explain_missing(log: str, state: LogState | None, point: SetPoint) -> TidefoldError | None:
    """Returns why a log has not exactly the changes up to the point; None: it has."""
    cut = point.cut(log)
    if cut is None:
        return _hold(log, "it has not reached the point yet")
    taken = max((p.next_offset for p in state.positions), default=0) if state else 0
    if taken != cut:
        return _hold(log, f"it has ingested the records before offset {taken}, and the point needs those before {cut}")
    return None


def _hold(log: str, why: str) -> RefusedError:
    return RefusedError("SET_HELD", why, hint=f"`tidefold status {log}` shows the log; then `tidefold run`.")


def _describe_held(
    chosen: SetConfig, logs: Mapping[str, LogState | None], held: Mapping[str, TidefoldError]
) -> dict[str, Outcome]:
    """Returns the outcomes of a set that is held. Nothing was decided."""
    outcomes = {}
    log, first = next(iter(held.items()))
    for name in chosen.logs:
        own = held.get(name)
        if own:
            why = own.message.rstrip(".")
            message = f"Set `{chosen.name}` is held by `{name}`: {why}. None of its tables is published."
        else:
            message = f"Set `{chosen.name}` is held by `{log}`, so `{name}` is not published either."
        cause = own or first
        kind = GateFailedError if isinstance(cause, GateFailedError) else RefusedError
        state = logs[name]
        staged = state.open_attempt if state else None
        error = kind(cause.code, message, hint=cause.hint)
        outcomes[name] = Outcome.of_error(name, error, staged.id if staged else None)
    return outcomes


def _describe_idle(chosen: SetConfig, state: SetState, why: str) -> dict[str, Outcome]:
    waits = "; ".join(f"`{log}`: {reason}" for log, reason in (state.waits or {}).items())
    message = f"set `{chosen.name}` {why}" + (f" ({waits})" if waits else "")
    return {log: Outcome(log, Status.NOTHING, message) for log in chosen.logs}


def _describe_published(chosen: SetConfig, state: SetState, status: Status) -> dict[str, Outcome]:
    version = state.published
    assert version is not None
    outcomes = {}
    for log in chosen.logs:
        member = version.member(log)
        outcomes[log] = Outcome(log, Status.NOTHING, f"`{log}` has no rows in version {version.number} of its set")
        if member:
            message = (
                f"snapshot {member.snapshot} is version {member.version} of the table, in version {version.number} of "
                f"set `{chosen.name}` at position {version.position}"
            )
            outcomes[log] = Outcome(log, status, message, member.snapshot)
    return outcomes
