"""Names snapshots, so that retention keeps them; starts no JVM."""

from __future__ import annotations

import re

from tidefold.lifecycle import retention
from tidefold.lifecycle.errors import InvalidInputError
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def tag(pipeline: Pipeline, log: str, name: str, snapshot: int) -> Outcome:
    """Gives a completed snapshot a name. Raises RefusedError, NotFoundError, InvalidInputError."""
    check_name(name)
    ledger = pipeline.ledger(log)
    known = any(t.name == name for t in ledger.read().tags)
    ledger.commit(lambda state: retention.tag(state, name, snapshot))
    return Outcome(log, "already" if known else "tagged", f"snapshot {snapshot} is `{name}`", snapshot)


def check_name(name: str) -> None:
    """Raises InvalidInputError when it cannot name a tag, a hold or a reader."""
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
        return Outcome(log, "nothing", f"there is no tag `{name}`")
    ledger.commit(lambda state: retention.untag(state, name))
    return Outcome(log, "untagged", f"snapshot {found.snapshot} is no longer `{name}`", found.snapshot)
