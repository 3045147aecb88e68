"""What an operation did to one log: the same value for the command line, the Spark jobs and Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidefold.errors import TidefoldError, unforeseen

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`result` is one word (taken, nothing, staged, already, passed, failed, published, aborted, error), `message` one
    line for people, `facts` the numbers behind it. With `error` (a code) the log was left as it was; if the result is
    `stopped`, everything up to the error was done.
    """

    log: str
    result: str
    message: str
    snapshot: int | None = None
    error: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_error(cls, log: str, error: TidefoldError, snapshot: int | None = None) -> Outcome:
        return cls(log, "error", str(error), snapshot, error.code, {"exit_code": error.exit_code})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
