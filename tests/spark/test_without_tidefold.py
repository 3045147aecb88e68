"""docs/examples/merge_job.py, a plain PySpark job, gives the rows that tidefold publishes from the same files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from local_airflow.settings import PROJECT
from tidefold.cli.app import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(4, whole=True)

JOB = PROJECT / "docs/examples/merge_job.py"
CONFIG = """\
version: 1
store: store
logs:
  orders:
    source: {format: json, path: landing, record: value, op: {column: op, delete: [d]}}
    key: [id]
    order: [seq]
    columns:
      id: long
      seq: long
      amount: {type: long, default: null}
      note: {type: string, default: null}
"""


def make_changes(batch: int) -> list[dict[str, Any]]:
    """Changes of 30 keys in a random order. No change of a later batch is older than a delete before it: only
    tidefold remembers those.
    """
    rng = random.Random(batch)
    changes: list[dict[str, Any]] = []
    for seq in range(batch * 100, batch * 100 + 60):
        row = {"id": rng.randrange(30), "seq": seq}
        changes.append(row | ({"op": "d"} if rng.random() < 0.2 else {"op": "u", "amount": seq, "note": f"n {seq}"}))
    rng.shuffle(changes)
    return changes


def test_the_job_gives_the_rows_of_tidefold(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job: dict[str, Any] = {"__name__": "merge_job"}
    exec(JOB.read_text(), job)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    (tmp_path / "landing").mkdir()
    for batch in range(3):
        lines = "".join(f"{json.dumps(change)}\n" for change in make_changes(batch))
        (tmp_path / "landing" / f"{batch}.jsonl").write_text(lines)
        done = CliRunner().invoke(app, ["run"])
        assert done.exit_code == 0, done.output
        job["merge"](spark, str(tmp_path / "landing"), str(tmp_path / "plain"))
        names = ["id", "seq", "amount", "note"]
        tables = (tmp_path / "store/tables/orders", tmp_path / "plain")
        ours, plain = (
            sorted(tuple(row) for row in spark.read.format("delta").load(str(table)).select(*names).collect())
            for table in tables
        )
        assert ours == plain
        assert len(ours) > 5
