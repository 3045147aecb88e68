"""Reading without Spark: published, by snapshot, live. Requirement C10 (read), promise I5."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines import contents, judge_all, make_pipeline, put
from tidefold.changelog.columns import DELETE
from tidefold.fold.distribute import in_process
from tidefold.launch import PROJECT
from tidefold.lifecycle.errors import NotFoundError
from tidefold.operations.confirm import confirm
from tidefold.operations.materialize import materialize
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.read import read_rows


def rows(pipeline: Pipeline, **how: Any) -> dict[int, str | None]:
    _, batches = read_rows(pipeline, "accounts", **how)
    found = [row for batch in batches for row in batch.to_pylist()]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["text"] for row in found}


def test_live_equals_the_oracle_after_every_append_and_writes_nothing(tmp_path: Path) -> None:
    pipeline, chance, model = make_pipeline(tmp_path), random.Random(3), {}
    for number in range(12):
        changes = []
        for _ in range(chance.randrange(1, 15)):
            key = chance.randrange(30)
            if chance.random() < 0.3:
                changes.append({"id": key, "text": None, "_op": DELETE})
                model.pop(key, None)
            else:
                changes.append({"id": key, "text": f"{number}"})
                model[key] = f"{number}"
        put(pipeline, changes)
        before = contents(tmp_path / "store")
        assert rows(pipeline, live=True) == model
        assert contents(tmp_path / "store") == before
        if number % 4 == 3:
            materialize(pipeline, ["accounts"], f"run-{number}", in_process)
            assert rows(pipeline, live=True) == model
            judge_all(pipeline)
            confirm(pipeline, "accounts")
            assert rows(pipeline) == rows(pipeline, live=True) == model


def test_a_snapshot_and_the_table_are_read_as_they_are(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])
    with pytest.raises(NotFoundError) as nothing:
        rows(pipeline)
    assert nothing.value.code == "NOTHING_PUBLISHED"
    for run in ("one", "two"):
        put(pipeline, [{"id": 1, "text": run}])
        materialize(pipeline, ["accounts"], run, in_process)
        judge_all(pipeline)
        confirm(pipeline, "accounts")
    assert rows(pipeline) == rows(pipeline, snapshot=2) == {1: "two"}
    assert rows(pipeline, snapshot=1) == {1: "one"}
    with pytest.raises(NotFoundError):
        rows(pipeline, snapshot=9)


def test_a_look_at_the_first_rows_of_a_larger_table_ends(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": i, "text": "a"} for i in range(150_000)])
    materialize(pipeline, ["accounts"], "run", in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    for live in ([], ["--live"]):
        done = subprocess.run(
            [sys.executable, "-m", "tidefold.cli", "read", "accounts", "--limit", "2", "--format", "json", *live],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT / "include")},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert [len(json.loads(done.stdout)["rows"]), json.loads(done.stdout)["more"]] == [2, True]
