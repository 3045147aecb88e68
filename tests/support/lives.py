"""Transitions that bring the ledger of a real store into every state of a log's life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support.builders import arrival, manifest_of, verdict_for
from tidefold.domain.ingest.append import append
from tidefold.domain.log_state import LogState, SnapshotKind
from tidefold.domain.snapshot import claim as claims
from tidefold.domain.snapshot import transitions
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.snapshot.attempt import hash_request
from tidefold.quality.suite.suite import load_suite
from tidefold.wiring import open_pipeline

CONFIG = """\
version: 1
store: store
logs:
  accounts:
    source: {format: debezium-json, connector: postgresql, path: landing/accounts}
    key: [id]
    columns: {id: int, text: string}
  tellers:
    source: {format: debezium-json, connector: postgresql, path: landing/tellers}
    key: [id]
    columns: {id: int, text: string}
"""
Move = Callable[[LogState], LogState]


def make_pipeline(folder: Path, config: str = CONFIG) -> Pipeline:
    """Returns a pipeline of two logs in a folder, with nothing ingested."""
    path = folder / "tidefold.yaml"
    path.write_text(config)
    return open_pipeline(path)


def take(state: LogState, changes: int = 10, refused: int = 0) -> LogState:
    found = arrival(state, changes)
    return append(state, [replace(found, landed=replace(found.landed, quarantined=refused))])


def claim(run: str) -> Move:
    """Returns the claim of an ordinary run."""
    return lambda state: claims.claim(
        state, claims.Claim(run, hash_request({"kind": SnapshotKind.FULL}), SnapshotKind.FULL, now())
    )


def stage(state: LogState) -> LogState:
    assert state.open_attempt
    return transitions.stage(state, manifest_of(state, state.open_attempt), f"digest-{state.open_attempt.id}")


def judge(passed: bool) -> Move:
    def move(state: LogState) -> LogState:
        assert state.open_attempt
        suite = load_suite(None, state.shape, 0.5).sha256
        verdict = replace(
            verdict_for(state.open_attempt, passed, suite), path=f"logs/accounts/quality/{state.open_attempt.id}.html"
        )
        return transitions.record_verdict(state, state.open_attempt.id, verdict)

    return move


def confirm(state: LogState) -> LogState:
    assert state.open_attempt
    return transitions.confirm(state, state.open_attempt.id)


def publish(state: LogState) -> LogState:
    assert state.latest
    return transitions.record_publication(state, state.latest.id, state.latest.id - 1)


def abort(state: LogState) -> LogState:
    assert state.open_attempt
    return transitions.abort(state, state.open_attempt.id, "by hand")


PUBLISHED = (take, claim("run-1"), stage, judge(True), confirm, publish)


def live(pipeline: Pipeline, *through: Move) -> LogState:
    """Commits these transitions of `accounts` one by one."""
    ledger = pipeline.ledger("accounts")
    state = ledger.begin(pipeline.log("accounts").shape)
    for move in through:
        state = ledger.commit(move)
    return state
