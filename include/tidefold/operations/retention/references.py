"""Adds and removes tags, holds and consumers of a log.

A tag keeps a snapshot. A hold keeps a snapshot and the log after it. A consumer keeps the log after its position.
"""

from __future__ import annotations

import re

from tidefold.domain.log_state import Consumer, Hold, LogState
from tidefold.domain.retention import references
from tidefold.domain.wording import shorten_reason
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, apply_transition
from tidefold.operations.ground.removal_details import ConsumerDetails

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def check_name(name: str) -> None:
    """Raises InvalidInputError if the text cannot be the name of a tag, a hold or a consumer."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError("NAME_INVALID", f"`{name}` cannot be the name of a tag, hold or consumer.")


def tag(pipeline: Pipeline, log: str, name: str, snapshot: int) -> Outcome:
    """Gives a completed snapshot a name. Raises RefusedError, NotFoundError, InvalidInputError."""
    check_name(name)

    def describe(state: LogState) -> Outcome:
        status = Status.ALREADY if any(t.name == name for t in state.tags) else Status.TAGGED
        return Outcome(log, status, f"snapshot {snapshot} has the tag `{name}`", snapshot)

    return apply_transition(pipeline, log, lambda state: references.tag(state, name, snapshot), describe)


def untag(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Removes a tag."""

    def describe(state: LogState) -> Outcome:
        tag = next((t for t in state.tags if t.name == name), None)
        if tag is None:
            return Outcome(log, Status.NOTHING, f"there is no tag `{name}`")
        return Outcome(log, Status.UNTAGGED, f"snapshot {tag.snapshot} lost the tag `{name}`", tag.snapshot)

    return apply_transition(pipeline, log, lambda state: references.untag(state, name), describe)


def hold(pipeline: Pipeline, log: str, name: str, snapshot: int, why: str) -> Outcome:
    """Keeps a completed snapshot and the log after it until `release`. Raises RefusedError, InvalidInputError."""
    check_name(name)
    if not why.strip():
        raise InvalidInputError("HOLD_REASON_MISSING", "A hold needs a reason.")

    why = shorten_reason(why)

    def describe(state: LogState) -> Outcome:
        status = Status.ALREADY if any(h.name == name for h in state.holds) else Status.HELD
        return Outcome(log, status, f"hold `{name}` keeps snapshot {snapshot} and the log after it: {why}", snapshot)

    return apply_transition(pipeline, log, lambda state: references.hold(state, Hold(name, snapshot, why)), describe)


def release(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Ends a hold."""

    def describe(state: LogState) -> Outcome:
        hold = next((h for h in state.holds if h.name == name), None)
        if hold is None:
            return Outcome(log, Status.NOTHING, f"there is no hold `{name}`")
        message = f"hold `{name}` no longer keeps snapshot {hold.snapshot}"
        return Outcome(log, Status.RELEASED, message, hold.snapshot)

    return apply_transition(pipeline, log, lambda state: references.release(state, name), describe)


def register(pipeline: Pipeline, log: str, name: str, sqn: int) -> Outcome:
    """Records that a consumer has read the log up to `sqn`: later change sets are kept for it. Raises RefusedError."""
    check_name(name)
    pipeline.ledger(log).commit(lambda state: references.register(state, Consumer(name, sqn)))
    message = f"consumer `{name}` has read up to change set {sqn}"
    return Outcome(log, Status.REGISTERED, message, details=ConsumerDetails(sqn=sqn))


def unregister(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Removes a consumer."""

    def describe(state: LogState) -> Outcome:
        if not any(c.name == name for c in state.consumers):
            return Outcome(log, Status.NOTHING, f"there is no consumer `{name}`")
        return Outcome(log, Status.UNREGISTERED, f"consumer `{name}` is removed")

    return apply_transition(pipeline, log, lambda state: references.unregister(state, name), describe)
