"""Takes up the columns that are configured now, before anything is taken in or folded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tidefold.changelog.schema_alignment import Aligner
from tidefold.domain.log_state import LogState
from tidefold.domain.table.schema_evolution import add_found, evolve
from tidefold.operations.pipeline import Pipeline, now


def apply_configured_schema(pipeline: Pipeline, state: LogState, run: str = "") -> LogState:
    """The log in its configured schema, written to the ledger if that is a new one.

    Raises RefusedError, and changes nothing, for what a policy holds.
    """
    config = pipeline.log(state.log)
    move = partial(evolve, shape=config.shape, policies=config.policies, instant=now(), run=run)
    if move(state) == state:
        return state
    ledger = pipeline.ledger(state.log)
    return ledger.commit(move) if ledger.exists() else move(state)


def add_found_columns(pipeline: Pipeline, log: str, types: Mapping[str, str], run: str) -> None:
    """Adds columns that records brought to the log, in its ledger."""
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        ledger.begin(pipeline.log(log).shape)
    ledger.commit(lambda state: add_found(state, types, now(), run))


def preview_configured_schema(pipeline: Pipeline, state: LogState) -> LogState:
    """The same without writing anything, for those who only look ahead."""
    config = pipeline.log(state.log)
    return evolve(state, config.shape, config.policies, "")


def aligner_to_newest(state: LogState) -> Aligner:
    """What brings change sets of every schema of a log to its newest."""
    return Aligner(state.shape, state.schema, state.schemas)
