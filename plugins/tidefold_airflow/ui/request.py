"""Checks the parts of a request before they reach a path, a query or a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidefold.domain.log_state import LogState, Snapshot
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold_airflow.ui.log_pages import LogQuery

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidefold.operations.pipeline import Pipeline

LONGEST_KEY = 4096
_LONGEST_ID = 250
_LONGEST_NUMBER = 15


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
    found = state.snapshot(number) if number is not None else None
    if found is None:
        raise NotFoundError(
            "SNAPSHOT_NOT_FOUND",
            f"Log `{state.log}` has no snapshot of that number.",
            hint="The page of the log lists its snapshots.",
        )
    return found


def number_of(text: str) -> int | None:
    """Parses a number of ASCII digits; None for other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def run_asked(request: Request) -> Run:
    """Returns the run in the address. Airflow's ids can be any text, so they are compared and never used as a path."""
    dag, run = request.path_params["dag_id"], request.path_params["run_id"]
    if not run or max(len(dag), len(run)) > _LONGEST_ID:
        raise NotFoundError(
            "RUN_NOT_FOUND",
            "The id of the run or of its DAG in the address is empty or too long.",
            hint="Open this page from the run in Airflow.",
        )
    return Run(dag, run)


def logs_asked(request: Request) -> LogQuery:
    """Returns which logs the reader asks for: `?name=`, `?attention=1` and `?from=`."""
    start = number_of(text_asked(request, "from", _LONGEST_NUMBER) or "0")
    if start is None:
        raise InvalidInputError("PAGE_NUMBER", "`from` is not a number.", hint="Use the links of the page.")
    name = (text_asked(request, "name", _LONGEST_ID) or "").strip()
    return LogQuery(name, bool(text_asked(request, "attention", 8)), start)


def text_asked(request: Request, name: str, longest: int) -> str | None:
    """Returns a field of a form; None if it is missing or empty."""
    text = request.query_params.get(name, "")
    if len(text) > longest:
        raise InvalidInputError(
            "TOO_LONG", f"`{name}` is longer than {longest:,} characters.", hint="Give a shorter one."
        )
    return text or None
