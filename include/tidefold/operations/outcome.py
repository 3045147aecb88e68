"""The result of an operation on one log: the same value for the command line, the Spark jobs and Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidefold.errors import TidefoldError, unforeseen

_log = logging.getLogger(__name__)


class Status(StrEnum):
    """What an operation did to a log, in one word. The words are part of the JSON output."""

    ABORTED = "aborted"
    ALREADY = "already"
    ASKED = "asked"
    CLEANED = "cleaned"
    COMPLETED = "completed"
    DAMAGED = "damaged"
    DROPPED = "dropped"
    ERROR = "error"
    FAILED = "failed"
    HELD = "held"
    INCOMPLETE = "incomplete"
    NOTHING = "nothing"
    PASSED = "passed"
    PENDING = "pending"
    PLANNED = "planned"
    POINTLESS = "pointless"
    PUBLISHED = "published"
    REBUILT = "rebuilt"
    REFUSED = "refused"
    REGISTERED = "registered"
    RELEASED = "released"
    REMOVED = "removed"
    REPAIRED = "repaired"
    RESTORED = "restored"
    RESUMED = "resumed"
    SAVED = "saved"
    SETTLED = "settled"
    SQUASHED = "squashed"
    STAGED = "staged"
    STOPPED = "stopped"
    SUBSUMED = "subsumed"
    TAGGED = "tagged"
    TAKEN = "taken"
    TRUNCATED = "truncated"
    UNREGISTERED = "unregistered"
    UNTAGGED = "untagged"
    WAITS = "waits"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as a value, which crosses process borders.

    `exit_code`: the code that a process ends with because of it.
    `transient`: the same call may succeed later although nobody changes anything.
    """

    code: str
    message: str
    hint: str = ""
    exit_code: int = 1
    transient: bool = False

    @classmethod
    def of(cls, error: TidefoldError) -> ErrorInfo:
        return cls(error.code, error.message, error.hint, error.exit_code, error.transient)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an operation on one log.

    `message`: one line for people.
    `facts`: the numbers behind it.
    `error`: why the operation failed. The log is as it was; with `stopped` or `incomplete`, all before the error is
    done.
    """

    log: str
    status: Status
    message: str
    snapshot: int | None = None
    error: ErrorInfo | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_error(cls, log: str, error: TidefoldError, snapshot: int | None = None) -> Outcome:
        return cls(log, Status.ERROR, str(error), snapshot, ErrorInfo.of(error))

    @property
    def error_code(self) -> str | None:
        """The stable code of the error; None: there is none."""
        return self.error.code if self.error else None

    def to_dict(self) -> dict[str, Any]:
        """The outcome as the JSON output shows it."""
        facts = dict(self.facts)
        if self.error:
            facts["exit_code"] = self.error.exit_code
        return {
            "log": self.log,
            "result": str(self.status),
            "message": self.message,
            "snapshot": self.snapshot,
            "error": self.error_code,
            "facts": facts,
        }


def each_log(logs: Iterable[str], act: Callable[[str], Outcome]) -> list[Outcome]:
    """Acts on every log, whatever happens to the others; an error of a log is its outcome."""
    outcomes = []
    for log in logs:
        try:
            outcomes.append(act(log))
        except Exception as error:
            found = unforeseen(error)
            if found is not error:
                _log.error("%s: %s", log, found, exc_info=error)
            outcomes.append(Outcome.of_error(log, found))
    return outcomes
