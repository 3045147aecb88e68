"""Who needs more of a log than retention keeps: holds on a snapshot with the log behind it, and readers of the log.

Starts no JVM.
"""

from __future__ import annotations

from tidefold.lifecycle import retention
from tidefold.lifecycle.errors import InvalidInputError
from tidefold.lifecycle.values import Hold, Reader
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.tag import check_name


def hold(pipeline: Pipeline, log: str, name: str, snapshot: int, why: str) -> Outcome:
    """Keeps a completed snapshot and the log behind it until `release`. Raises RefusedError, InvalidInputError."""
    check_name(name)
    if not why.strip():
        raise InvalidInputError("HOLD_UNNAMED", "A hold needs a reason.", hint="Give it with --why.")
    ledger = pipeline.ledger(log)
    known = any(h.name == name for h in ledger.read().holds)
    ledger.commit(lambda state: retention.hold(state, Hold(name, snapshot, why)))
    message = f"snapshot {snapshot} and the log behind it are held as `{name}`: {why}"
    return Outcome(log, "already" if known else "held", message, snapshot)


def release(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Ends a hold."""
    ledger = pipeline.ledger(log)
    found = next((h for h in ledger.read().holds if h.name == name), None)
    if found is None:
        return Outcome(log, "nothing", f"there is no hold `{name}`")
    ledger.commit(lambda state: retention.release(state, name))
    return Outcome(log, "released", f"snapshot {found.snapshot} is no longer held by `{name}`", found.snapshot)


def register(pipeline: Pipeline, log: str, name: str, sqn: int) -> Outcome:
    """Notes that a reader has read the log up to `sqn`: what follows is kept for him. Raises RefusedError."""
    check_name(name)
    ledger = pipeline.ledger(log)
    ledger.commit(lambda state: retention.register(state, Reader(name, sqn)))
    return Outcome(log, "registered", f"reader `{name}` has read up to change set {sqn}", facts={"sqn": sqn})


def unregister(pipeline: Pipeline, log: str, name: str) -> Outcome:
    """Forgets a reader."""
    ledger = pipeline.ledger(log)
    if not any(r.name == name for r in ledger.read().readers):
        return Outcome(log, "nothing", f"there is no reader `{name}`")
    ledger.commit(lambda state: retention.unregister(state, name))
    return Outcome(log, "unregistered", f"reader `{name}` is forgotten")
