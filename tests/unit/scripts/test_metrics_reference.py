"""The page of metrics names every number that a run sends."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from metrics_reference import describe_metrics
from support.pipelines import judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold_airflow.observability.metrics import of_alarms, of_outcomes, of_status

PAGE = "\n".join(describe_metrics())
NAMED = set(re.findall(r"`([a-z_]+\.[a-z_.<>]+|[a-z_]+)`", PAGE))


def find_unnamed(step: str, outcomes: list[Outcome]) -> set[str]:
    found = {gauge.name for gauge in of_outcomes(step, outcomes)} - {f"{step}.failed"}
    return {name for name in found if name not in NAMED and f"{name.rpartition('.')[0]}.<name>" not in NAMED}


def test_every_number_of_a_run_is_on_the_page(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])
    assert find_unnamed("materialize", materialize(pipeline, ["accounts"], Fold("run-1"), in_process)) == set()
    judge_all(pipeline)
    assert find_unnamed("confirm", [confirm(pipeline, "accounts")]) == set()
    for step, act in (("subsume", subsume), ("truncate", truncate)):
        assert find_unnamed(step, [act(pipeline, "accounts")]) == set()
    assert find_unnamed("clean", clean(pipeline, ["accounts"])) == set()


def test_every_number_of_a_status_is_on_the_page(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])

    [found] = status(pipeline, ["accounts"])
    names = {gauge.name for gauge in (*of_status([found], datetime.now(UTC)), *of_alarms(found))}
    assert {name for name in names if name not in NAMED and not name.startswith("alarm.")} == set()
