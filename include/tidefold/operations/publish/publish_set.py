"""Publishes what a set has decided: each log's ledger and table follow. Any process may finish it after a crash."""

from __future__ import annotations

from tidefold.domain.log_state import Snapshot, State
from tidefold.domain.sets.set_state import SetState, give_up, record_published
from tidefold.domain.snapshot import transitions
from tidefold.errors import CorruptError, RefusedError
from tidefold.ledger import SetLedger
from tidefold.operations.ground.pipeline import Pipeline


def publish_decided(pipeline: Pipeline, ledger: SetLedger, state: SetState) -> SetState:
    """Publishes the tables of a decided version that do not show it yet, then makes it the version of readers.

    Returns the state after that; without an open decision, the given one. Repeating it changes nothing.
    """
    decided = state.decided
    if decided is None:
        return state
    versions = {one.log: _publish_member(pipeline, one.log, one.snapshot) for one in decided.members}
    return ledger.commit(lambda newest: record_published(newest, decided.number, versions))


def _publish_member(pipeline: Pipeline, log: str, snapshot: int) -> int:
    """Completes and publishes one snapshot, and returns the version of its table."""
    # Commands that only look for an open decision do not load deltalake.
    from tidefold.operations.publish.publish_log import roll_forward

    ledger = pipeline.ledger(log)
    member = ledger.read().snapshot(snapshot)
    if member and member.state is State.STAGED:
        ledger.commit(lambda state: transitions.confirm(state, snapshot))
    roll_forward(pipeline, log)
    published = ledger.read().snapshot(snapshot)
    if published is None or published.table_version is None:
        # A ledger that was set back or rebuilt does not know what it had staged.
        state = published.state if published else "unknown"
        raise CorruptError(
            "SET_MEMBER_LOST",
            f"A set has decided to publish snapshot {snapshot} of `{log}`, which is {state} in the log's ledger.",
            hint=f"Put `logs/{log}` back from a copy that is newer than the decision.",
        )
    return published.table_version


def finish_set(pipeline: Pipeline, log: str, plan: bool = False) -> frozenset[int]:
    """Publishes what the set of a log has decided, if it is in one. Call it before the log's snapshots change.

    Returns the snapshot of the log that readers of the set use. With `plan` nothing changes.
    """
    chosen = pipeline.config.set_of(log)
    if chosen is None:
        return frozenset()
    ledger = pipeline.set_ledger(chosen.name)
    state = ledger.read() if plan else publish_decided(pipeline, ledger, ledger.read())
    used = state.published.member(log) if state.published else None
    return frozenset({used.snapshot} if used else ())


def give_up_staged(pipeline: Pipeline, log: str, snapshot: Snapshot | None) -> None:
    """Announces that a staged snapshot is aborted, so that the set of its log never decides for it.

    If the set has decided already, the snapshot is published instead, and the abort that follows is refused.
    """
    chosen = pipeline.config.set_of(log)
    if chosen is None or snapshot is None or snapshot.state is not State.STAGED or snapshot.as_of is not None:
        return
    ledger = pipeline.set_ledger(chosen.name)

    def transition(state: SetState) -> SetState:
        decided = state.decided.member(log) if state.decided else None
        return state if decided and decided.snapshot == snapshot.id else give_up(state, log, snapshot.id)

    publish_decided(pipeline, ledger, ledger.commit(transition))


def require_alone(pipeline: Pipeline, log: str, why: str, hint: str) -> None:
    """Raises RefusedError (SET_TOGETHER) if the log is in a set.

    why: goes on after "`log` is in set `name`".
    hint: the next step; `{set}` in it is the name of the set.
    """
    chosen = pipeline.config.set_of(log)
    if chosen:
        message = f"`{log}` is in set `{chosen.name}`{why}"
        raise RefusedError("SET_TOGETHER", message, hint=hint.format(set=chosen.name))
