"""Names snapshots, so that retention keeps them; starts no JVM.

Who needs more of a log than retention keeps: holds on a snapshot with the log behind it, and consumers of the log.

Starts no JVM.
"""

from __future__ import annotations

import re

from tidefold.domain.log_state import Consumer, Hold
from tidefold.domain.retention import retention
from tidefold.errors import InvalidInputError
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.details import ConsumerDetails

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def tag(pipeline: Pipeline, log: str, name: str, snapshot: int) -> Outcome:
    """Gives a completed snapshot a name. Raises RefusedError, NotFoundError, InvalidInputError."""
    check_name(name)
    ledger = pipeline.ledger(log)
    known = any(t.name == name for t in ledger.read().tags)
    ledger.commit(lambda state: retention.tag(state, name, snapshot))
    return Outcome(log, Status.ALREADY if known else Status.TAGGED, f"snapshot {snapshot} is `{name}`", snapshot)


def check_name(name: str) -> None:
    """Raises InvalidInputError when it cannot name a tag, a hold or a consumer."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            "NAME_INVALID",
            f"`{name}` cannot be a name.",
            hint="Use 1 to 63 letters, digits, `_`, `.` and `-`, beginning with a letter or digit.",
        )


def untag(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Frees a name."""
    ledger = pipeline.ledger(log)
    found = next((t for t in ledger.read().tags if t.name == name), None)
    if found is None:
        return Outcome(log, Status.NOTHING, f"there is no tag `{name}`")
    ledger.commit(lambda state: retention.untag(state, name))
    return Outcome(log, Status.UNTAGGED, f"snapshot {found.snapshot} is no longer `{name}`", found.snapshot)


def hold(pipeline: Pipeline, log: str, name: str, snapshot: int, why: str) -> Outcome:
    """Keeps a completed snapshot and the log behind it until `release`. Raises RefusedError, InvalidInputError."""
    check_name(name)
    if not why.strip():
        raise InvalidInputError("HOLD_UNNAMED", "A hold needs a reason.", hint="Give it with --reason.")
    ledger = pipeline.ledger(log)
    known = any(h.name == name for h in ledger.read().holds)
    ledger.commit(lambda state: retention.hold(state, Hold(name, snapshot, why)))
    message = f"snapshot {snapshot} and the log behind it are held as `{name}`: {why}"
    return Outcome(log, Status.ALREADY if known else Status.HELD, message, snapshot)


def release(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Ends a hold."""
    ledger = pipeline.ledger(log)
    found = next((h for h in ledger.read().holds if h.name == name), None)
    if found is None:
        return Outcome(log, Status.NOTHING, f"there is no hold `{name}`")
    ledger.commit(lambda state: retention.release(state, name))
    return Outcome(log, Status.RELEASED, f"snapshot {found.snapshot} is no longer held by `{name}`", found.snapshot)


def register(pipeline: Pipeline, log: str, name: str, sqn: int) -> Outcome:
    """Records that a consumer has read the log up to `sqn`: later change sets are kept for it. Raises RefusedError."""
    check_name(name)
    ledger = pipeline.ledger(log)
    ledger.commit(lambda state: retention.register(state, Consumer(name, sqn)))
    return Outcome(
        log, Status.REGISTERED, f"consumer `{name}` has read up to change set {sqn}", details=ConsumerDetails(sqn=sqn)
    )


def unregister(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Forgets a consumer."""
    ledger = pipeline.ledger(log)
    if not any(r.name == name for r in ledger.read().readers):
        return Outcome(log, Status.NOTHING, f"there is no consumer `{name}`")
    ledger.commit(lambda state: retention.unregister(state, name))
    return Outcome(log, Status.UNREGISTERED, f"consumer `{name}` is removed")
