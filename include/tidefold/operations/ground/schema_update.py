"""Gives a log its configured columns before anything is ingested or folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tidefold.changelog.schema import Aligner
from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import TTL_DAYS, FollowedTtl
from tidefold.domain.table.schema_evolution import add_found, evolve
from tidefold.operations.ground.pipeline import Pipeline, now


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


def select_columns(types: Mapping[str, str]) -> dict[str, str]:
    """Returns the columns among what records bring, with their types: they may also bring `ttl.days`."""
    return {name: type_ for name, type_ in types.items() if name != TTL_DAYS}


def add_found_columns(pipeline: Pipeline, log: str, types: Mapping[str, str], run: str) -> None:
    """Gives the log the columns, the types and the `ttl.days` that came with records."""
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        ledger.begin(pipeline.log(log).shape)
    columns = select_columns(types)
    ttl = pipeline.log(log).ttl
    follows = FollowedTtl(int(types[TTL_DAYS]), ttl.days) if ttl and TTL_DAYS in types else None
    ledger.commit(
        lambda state: replace(add_found(state, columns, now(), run), followed_ttl=follows or state.followed_ttl)
    )


def aligner_to_newest(state: LogState) -> Aligner:
    """Returns an aligner from every schema of a log to its newest one."""
    return Aligner(state.shape, state.schema, state.schemas)
