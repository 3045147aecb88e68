"""Checks the parts of a request before they reach a path, a query or a page, and divides lists into pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from tidefold.domain.log_state import LogState, Snapshot
from tidefold.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidefold.operations.ground.pipeline import Pipeline

T = TypeVar("T")
# Lines of one page, and ledgers that one page reads at most to find them.
LINES, LEDGERS = 50, 500
# Each ledger takes a moment to read, also from a disk.
_AT_ONCE = 8
_LONGEST_ID = 250
_LONGEST_NUMBER = 15


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which logs a reader asks for.

    name: a part of their names.
    attention: only those that are not in order.
    start: how many of the logs with that name come before the page.
    """

    name: str = ""
    attention: bool = False
    start: int = 0

    def choose(self, logs: Sequence[str]) -> list[str]:
        """Returns the logs with that name."""
        return [log for log in logs if self.name in log]


@dataclass(frozen=True, slots=True)
class LogPage(Generic[T]):
    """The lines of a page.

    start, end: the part of the logs that was read, from `start` up to `end`.
    count: how many logs have that name.
    configured: how many logs there are.
    """

    query: LogQuery
    lines: list[T] = field(default_factory=list)
    start: int = 0
    end: int = 0
    count: int = 0
    configured: int = 0

    @property
    def is_divided(self) -> bool:
        """Whether there is more to see than this page."""
        return self.configured > LINES

    @property
    def has_next(self) -> bool:
        return self.end < self.count

    @property
    def previous(self) -> int | None:
        """Where the page before this one starts; None: this is the first, or it is not known."""
        if not self.start:
            return None
        return 0 if self.query.attention else max(0, self.start - LINES)


def read_page(
    logs: Sequence[str], query: LogQuery, at_once: int, read: Callable[[str], T], wanted: Callable[[T], bool]
) -> LogPage[T]:
    """Reads logs in their order until the page is full, and at most LEDGERS.

    at_once: how many logs the store handles at the same time.
    read: returns the line of a log. It does not raise.
    wanted: whether a line is shown.
    """
    chosen = query.choose(logs)
    start = end = min(query.start, len(chosen))
    most = min(len(chosen), start + LEDGERS)
    lines: list[T] = []
    with ThreadPoolExecutor(max(_AT_ONCE, at_once)) as pool:
        while end < most and len(lines) < LINES:
            block = chosen[end : min(most, end + LINES)]
            for line in pool.map(read, block):
                end += 1
                if wanted(line):
                    lines.append(line)
                if len(lines) == LINES:
                    break
    return LogPage(query, lines, start, end, len(chosen), len(logs))


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a DAG.

    id: its name in the ledger.
    """

    dag: str
    run: str

    @property
    def id(self) -> str:
        return f"{self.dag}/{self.run}"


def log_asked(request: Request, pipeline: Pipeline) -> str:
    """Returns the log in the address, which must be configured."""
    log = request.path_params["log"]
    if log not in pipeline.config.logs:
        raise NotFoundError(
            "LOG_NOT_CONFIGURED", "The pipeline has no log of that name.", hint="The first page lists its logs."
        )
    return str(log)


def state_asked(pipeline: Pipeline, log: str) -> LogState:
    """Returns the state of a log that exists in the store."""
    state = pipeline.ledger(log).find()
    if state is None:
        hint = "The next run of its DAG ingests what has landed."
        raise NotFoundError("LOG_UNKNOWN", f"Log `{log}` is not started.", hint=hint)
    return state


def snapshot_asked(request: Request, state: LogState) -> Snapshot:
    """Returns the snapshot in the address."""
    number = number_of(request.path_params["snapshot"])
    snapshot = state.snapshot(number) if number is not None else None
    if snapshot is None:
        raise NotFoundError("SNAPSHOT_NOT_FOUND", f"Log `{state.log}` has no snapshot of that number.")
    return snapshot


def number_of(text: str) -> int | None:
    """Parses a number of ASCII digits; None for other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def run_asked(request: Request) -> Run:
    """Returns the run in the address. Airflow's ids can be any text, so they are compared and never used as a path."""
    dag, run = request.path_params["dag_id"], request.path_params["run_id"]
    if not run or max(len(dag), len(run)) > _LONGEST_ID:
        raise NotFoundError("RUN_NOT_FOUND", "The id of the run or of its DAG in the address is empty or too long.")
    return Run(dag, run)


def logs_asked(request: Request) -> LogQuery:
    """Returns which logs the reader asks for: `?name=`, `?attention=1` and `?from=`."""
    start = number_of(text_asked(request, "from", _LONGEST_NUMBER) or "0")
    if start is None:
        raise InvalidInputError("PAGE_NUMBER", "`from` is not a number.")
    name = (text_asked(request, "name", _LONGEST_ID) or "").strip()
    return LogQuery(name, bool(text_asked(request, "attention", 8)), start)


def text_asked(request: Request, name: str, longest: int) -> str | None:
    """Returns a field of a form; None if it is missing or empty."""
    text = request.query_params.get(name, "")
    if len(text) > longest:
        raise InvalidInputError("TOO_LONG", f"`{name}` is longer than {longest:,} characters.")
    return text or None
