"""Gives a log its configured columns before anything is ingested or folded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tidefold.changelog.schema_alignment import Aligner
from tidefold.domain.log_state import LogState
from tidefold.domain.table.schema_evolution import add_found, evolve
from tidefold.operations.pipeline import Pipeline, now


def apply_configured_schema(pipeline: Pipeline, state: LogState, run: str = "") -> LogState:
    """Returns the log with its configured schema. Commits a new schema to the ledger.

    Raises RefusedError, and changes nothing, if a policy forbids the change.
    """
    config = pipeline.log(state.log)
    move = partial(evolve, shape=config.shape, policies=config.policies, instant=now(), run=run)
    if move(state) == state:
        return state
    ledger = pipeline.ledger(state.log)
    return ledger.commit(move) if ledger.exists() else move(state)


def add_found_columns(pipeline: Pipeline, log: str, types: Mapping[str, str], run: str) -> None:
    """Adds columns that came with records to the log."""
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        ledger.begin(pipeline.log(log).shape)
    ledger.commit(lambda state: add_found(state, types, now(), run))


def aligner_to_newest(state: LogState) -> Aligner:
    """Returns an aligner from every schema of a log to its newest one."""
    return Aligner(state.shape, state.schema, state.schemas)
