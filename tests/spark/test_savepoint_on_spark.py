"""A stop with a savepoint and a large canonical import as users call them: real steps, tasks of Spark, gate. N9, N8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from support.pipelines import CONFIG, make_pipeline, put, table_rows
from support.planning import pending
from support.savepoints import canonical_rows
from tidefold.cli.app import app
from tidefold.compute.runners import on_spark
from tidefold.domain.external_snapshot import Ownership
from tidefold.domain.log_state import SnapshotKind
from tidefold.operations.requests import Import
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import MaterializeStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(4, whole=True)

ROWS = {i: f"a {i}" for i in range(300)}


def call(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "-c", str(config / "tidefold.yaml")], prog_name="tidefold")


def test_a_table_moves_to_another_store_by_stop_and_import(spark: SparkSession, tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", str(tmp_path / "save")
    pipeline = make_pipeline(one)
    put(pipeline, [{"id": i, "text": t} for i, t in ROWS.items()])
    done = call(one, "move", "savepoint", "accounts", "--to", place, "--as", "canonical", "--stop", "--format", "json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert list(said["steps"]) == ["materialize", "quality", "confirm"]
    assert said["outcomes"][0]["facts"]["rows"] == len(ROWS)
    assert canonical_rows(tmp_path / "save") == ROWS

    other = make_pipeline(two, CONFIG.replace("store: store", "store: store\nspark: {above: 1B}"))
    asking = Import("in", place, Ownership.CLAIM)
    assert pending(other, ["accounts"], asking) == ["accounts"]
    assert run_without_spark(other, MaterializeStep(asking), ["accounts"]).spark == ("accounts",)
    assert materialize(other, ["accounts"], asking, on_spark(spark))[0].status == "staged"
    for verb in ("quality", "confirm"):
        done = call(two, "step", verb, "accounts")
        assert done.exit_code == 0, done.output
    assert table_rows(other) == ROWS
    [snapshot] = other.ledger("accounts").read().snapshots
    assert (snapshot.kind, snapshot.run) == (SnapshotKind.INCREMENTAL, "in")
    assert f"imported (claim) from {place}, snapshot 1 there" in call(two, "snapshot", "history", "accounts").stdout
