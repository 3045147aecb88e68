"""How a run ends for a log: one table for exit codes, for Airflow's colours and events, and for the words of the page.

`docs/reference/airflow.md` shows the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidefold.errors import CorruptError, GateFailedError
from tidefold.operations.ground.outcome import Outcome, Status

# The next step after a snapshot that the gate refused was aborted.
AFTER_REFUSAL = "Mend the data or the suite: the next run folds its changes again."


class RunEnding(StrEnum):
    """What became of a log in a run. If its steps ended in several ways, the last of this list counts."""

    NOTHING_NEW = "nothing new"
    PUBLISHED = "published"
    STOPPED = "stopped on purpose"
    WAITS = "waits for a person"
    LEFT_OUT = "rows left out"
    REFUSED = "refused"
    DAMAGED = "damaged"
    FAILED = "failed"


class Require(StrEnum):
    """Of how many logs the tables must be published before what follows starts."""

    ALL = "all"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an ending means.

    exit_code: of the command line; None: that of the error.
    task, run: the state of Airflow's task `confirm` for the log, and of the run. A green task sends an asset event.
    follows: how what follows the tasks starts because of this log: `yes`, `no`, or `idle`: the log does not matter.
    word: that of the page.
    """

    exit_code: int | None
    task: str
    run: str
    follows: str
    word: str


MEANINGS: Mapping[RunEnding, Meaning] = {
    RunEnding.PUBLISHED: Meaning(0, "success", "success", "yes", "up to date"),
    RunEnding.NOTHING_NEW: Meaning(0, "skipped", "success", "yes", "up to date"),
    RunEnding.STOPPED: Meaning(0, "skipped", "success", "idle", "stopped"),
    RunEnding.WAITS: Meaning(GateFailedError.exit_code, "skipped", "success", "no", "waits for a person"),
    RunEnding.LEFT_OUT: Meaning(2, "success", "failed", "no", "rows left out"),
    RunEnding.REFUSED: Meaning(GateFailedError.exit_code, "failed", "failed", "no", "needs attention"),
    RunEnding.DAMAGED: Meaning(CorruptError.exit_code, "failed or skipped", "failed", "no", "damaged"),
    RunEnding.FAILED: Meaning(None, "failed or skipped", "failed", "no", "needs attention"),
}
_RESULTS = {
    Status.FAILED: RunEnding.REFUSED,
    Status.ASKED: RunEnding.WAITS,
    Status.WAITS: RunEnding.WAITS,
    Status.SKIPPED: RunEnding.STOPPED,
    Status.PUBLISHED: RunEnding.PUBLISHED,
    Status.ALREADY: RunEnding.PUBLISHED,
    Status.NOTHING: RunEnding.NOTHING_NEW,
}
_CODES = {"GATE_FAILED": RunEnding.REFUSED, "UNAVAILABLE_VALUE": RunEnding.LEFT_OUT}


def ending_of(outcome: Outcome) -> RunEnding | None:
    """Returns how a step ended for a log; None: it did its part, and a later step decides."""
    exit_code = outcome.error.exit_code if outcome.error else 0
    return find_ending(outcome.status, outcome.error_code, exit_code)


def find_ending(result: str, code: str | None, exit_code: int = 0) -> RunEnding | None:
    """As `ending_of`, from the result and the error code of a step."""
    if code:
        damaged = exit_code == CorruptError.exit_code
        return RunEnding.DAMAGED if damaged else _CODES.get(code, RunEnding.FAILED)
    return _RESULTS.get(Status(result))


def worst(endings: Iterable[RunEnding | None]) -> RunEnding:
    """Returns the ending that counts of those of a log's steps."""
    return max((one for one in endings if one), key=list(RunEnding).index, default=RunEnding.NOTHING_NEW)


def may_follow(endings: Iterable[RunEnding], require: Require) -> bool:
    """Whether what follows the tasks may start. Logs that were stopped on purpose do not decide."""
    decisions = [MEANINGS[one].follows == "yes" for one in endings if MEANINGS[one].follows != "idle"]
    return bool(decisions) and (all(decisions) if require is Require.ALL else any(decisions))
