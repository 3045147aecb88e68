"""A run over many logs of which few have news: what it reads of the others, and that it leaves out no work."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.pipelines import judge_all, put, table_rows
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.outcome import Outcome, map_logs
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import FEW_LOGS, Fold, has_nothing_to_fold
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.full_run import FullRun
from tidefold.spark.steps import AnyStep
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline

LOG = """  {name}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{name}}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 4
    buckets: 1
"""
NAMES = [f"log_{number:03d}" for number in range(FEW_LOGS + 1)]
ONE, OTHER = NAMES[3], NAMES[70]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    for name in NAMES:
        (tmp_path / "landing" / name).mkdir(parents=True)
    config = tmp_path / "tidefold.yaml"
    config.write_text("version: 1\nstore: store\nlogs:\n" + "".join(LOG.format(name=name) for name in NAMES))
    made = open_pipeline(config)
    for name in NAMES:
        made.ledger(name).begin(made.log(name).shape)
    return made


def run(pipeline: Pipeline, run_id: str, logs: Sequence[str] = NAMES, kind: KindPolicy | None = None) -> FullRun:
    pipeline = replace(pipeline, versions={})

    def step(asked: AnyStep, chosen: Sequence[str]) -> list[Outcome]:
        found = run_without_spark(pipeline, asked, chosen)
        assert not found.spark
        return list(found.done)

    full = FullRun(pipeline, Fold(run_id, kind=kind), run_step=step)
    full.run(logs)
    return full


def named(full: FullRun) -> set[str]:
    return {one.log for outcomes in full.outcomes.values() for one in outcomes}


def test_an_idle_log_costs_three_requests(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def count(verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            calls[verb] += 1
            return call(*given)

        return counted

    for verb in ("read", "list", "open", "put_if_absent", "create", "delete", "link"):
        monkeypatch.setattr(LocalStore, verb, count(verb, getattr(LocalStore, verb)))
    full = run(pipeline, "run-1")
    assert full.idle == set(NAMES)
    assert not named(full)
    # One listing for all logs: runs that have died.
    assert calls == {"list": 2 * len(NAMES) + 1, "read": len(NAMES)}


def test_a_log_with_changes_is_published_and_the_others_leave_the_run(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "a"}], ONE)
    full = run(pipeline, "run-1")
    assert named(full) == {ONE}
    assert [one.status for one in full.outcomes["confirm"]] == ["published"]
    assert table_rows(pipeline, ONE) == {1: "a"}
    assert ONE in run(pipeline, "run-2").idle


def test_an_open_attempt_and_an_unpublished_snapshot_are_work(pipeline: Pipeline) -> None:
    for log in (ONE, OTHER):
        put(pipeline, [{"id": 1, "text": "a"}], log)
    materialize(pipeline, [ONE, OTHER], Fold("run-1"), in_process)
    judge_all(pipeline, OTHER)
    full = run(pipeline, "run-1")
    assert named(full) == {ONE, OTHER}
    assert {one.log: one.status for one in full.outcomes["confirm"]} == {ONE: "published", OTHER: "published"}


def test_a_few_logs_are_all_shown_and_a_full_snapshot_leaves_out_none(pipeline: Pipeline) -> None:
    few = run(pipeline, "run-1", NAMES[:FEW_LOGS])
    assert (few.idle, named(few)) == (frozenset(), set(NAMES[:FEW_LOGS]))
    full = run(pipeline, "run-2", kind=KindPolicy.FULL)
    assert (full.idle, named(full)) == (frozenset(), set(NAMES))


def test_a_log_whose_rows_expire_always_has_work(pipeline: Pipeline) -> None:
    assert has_nothing_to_fold(pipeline, pipeline.ledger(ONE).find(), Fold("run-1"))
    config = pipeline.log(ONE).model_copy(update={"ttl": object()})
    expiring = replace(pipeline, config=pipeline.config.model_copy(update={"logs": {ONE: config}}))
    assert not has_nothing_to_fold(expiring, expiring.ledger(ONE).find(), Fold("run-1"))


def test_a_version_that_was_read_is_not_read_again_and_commits_of_others_are_seen(pipeline: Pipeline) -> None:
    mine = replace(pipeline, versions={})
    before = mine.ledger(ONE).read()
    assert mine.ledger(ONE).read() is before
    put(pipeline, [{"id": 1, "text": "a"}], ONE)
    assert mine.ledger(ONE).read().last_sqn == 1
    # A commit on a version that another ledger of this process has read.
    put(mine, [{"id": 2, "text": "b"}], ONE)
    assert pipeline.ledger(ONE).read() == mine.ledger(ONE).read()
    assert pipeline.ledger(ONE).read().last_sqn == 2


def test_logs_are_looked_at_side_by_side() -> None:
    """Each waits until all have begun."""
    met = threading.Barrier(8, timeout=30)

    def look(log: str) -> str:
        met.wait()
        return log

    assert map_logs(look, list("abcdefgh"), 8) == list("abcdefgh")
