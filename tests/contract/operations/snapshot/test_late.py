"""Late changes: a horizon that snapshots announce, and what becomes of what comes from before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import timed_rows
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

LOG = "accounts"
CONFIG = """
version: 1
store: store
logs:
  accounts:
    source: {{format: json, path: landing, record: value, op: {{column: op}}}}
    columns: {{id: int, at: long, text: string}}
    key: [id]
    order: [at]
    buckets: 1
    late: {{allowed_lateness: 10, policy: {policy}}}
"""


def opened(folder: Path, policy: str = "quarantine") -> Pipeline:
    (folder / "landing").mkdir(exist_ok=True)
    (folder / "tidefold.yaml").write_text(CONFIG.format(policy=policy))
    return open_pipeline(folder / "tidefold.yaml")


def land(folder: Path, start: int, *changes: tuple[int, int, str | None]) -> None:
    """Changes as (id, at, text); without a text the row is deleted."""
    rows = [
        {"op": "u" if text else "d", "id": i, "at": at, **({"text": text} if text else {})} for i, at, text in changes
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "landing" / f"accounts+0+{start:010d}.jsonl").write_text(lines)


def cycle(pipeline: Pipeline, run: str) -> Outcome:
    [taken] = ingest(pipeline, [LOG], in_process)
    assert taken.error_code is None
    [outcome] = materialize(pipeline, [LOG], Fold(run), in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, LOG)
    assert confirm(pipeline, LOG).status == "published"
    return taken


def table(pipeline: Pipeline) -> dict[int, Any]:
    from deltalake import DeltaTable

    rows = DeltaTable(pipeline.store.uri(f"tables/{LOG}")).to_pyarrow_table().to_pylist()
    return {row["id"]: row["text"] for row in rows}


def begun(folder: Path, policy: str = "quarantine") -> Pipeline:
    """Row 1 was deleted at 20; the third snapshot has forgotten that: 40 is the newest, 30 the horizon."""
    pipeline = opened(folder, policy)
    land(folder, 0, (1, 10, "one"), (2, 15, "two"))
    cycle(pipeline, "run-1")
    land(folder, 2, (1, 20, None), (3, 40, "three"))
    cycle(pipeline, "run-2")
    land(folder, 4, (4, 41, "four"))
    cycle(pipeline, "run-3")
    return pipeline


def test_above_the_horizon_nothing_comes_back_and_below_it_nothing_comes_in(tmp_path: Path) -> None:
    """The delete is remembered until its horizon was announced; then it is forgotten."""
    pipeline = begun(tmp_path)
    state = pipeline.ledger(LOG).read()
    assert [s.horizon for s in state.snapshots] == [5, 30, 31]
    land(tmp_path, 5, (1, 19, "late"), (2, 35, "in time"), (5, 30, "just too late"), (6, 31, "just in time"))
    taken = cycle(pipeline, "run-4")
    assert taken.facts["refused"] == {"LATE": 2}
    assert table(pipeline) == {2: "in time", 3: "three", 4: "four", 6: "just in time"}


def test_a_late_change_finds_its_place_while_its_delete_is_remembered(tmp_path: Path) -> None:
    pipeline = opened(tmp_path)
    land(tmp_path, 0, (1, 10, "one"), (1, 20, None))
    cycle(pipeline, "run-1")
    land(tmp_path, 2, (1, 19, "late"), (2, 12, "new"))
    cycle(pipeline, "run-2")
    assert table(pipeline) == {2: "new"}


def test_what_is_accepted_from_before_the_horizon_is_folded(tmp_path: Path) -> None:
    pipeline = begun(tmp_path, "accept")
    land(tmp_path, 5, (1, 19, "late"), (3, 39, "older"))
    taken = cycle(pipeline, "run-4")
    assert taken.facts["refused"] == {}
    # The delete at 20 is forgotten; the row at 40 is not.
    assert table(pipeline) == {1: "late", 2: "two", 3: "three", 4: "four"}


def test_late_records_stay_until_they_are_accepted(tmp_path: Path) -> None:
    pipeline = begun(tmp_path)
    land(tmp_path, 5, (5, 7, "late"), (6, 50, "new"))
    cycle(pipeline, "run-4")
    assert retry(pipeline, LOG).facts["changes"] == 0
    accepting = opened(tmp_path, "accept")
    assert retry(accepting, LOG).facts["changes"] == 1
    assert materialize(accepting, [LOG], Fold("run-5"), in_process)[0].status == "staged"
    judge_all(accepting, LOG)
    confirm(accepting, LOG)
    assert table(accepting)[5] == "late"


@pytest.mark.parametrize(
    ("merge", "changes", "left"),
    [("last", 0, 0), ("partial", 0, 0), ("first", 0, 1), ("history", 1, 0), ("{engine: aggregate}", 0, 1)],
)
def test_a_refused_record_that_newer_ones_of_its_key_follow(
    tmp_path: Path, merge: str, changes: int, left: int
) -> None:
    """A log in its own order keeps no order: where a row is put together of several changes none may come in behind.
    The last one alone counts, so an older one is settled, as is one whose columns a newer one gives; a history finds
    its place.
    """
    opened(tmp_path)
    text = (tmp_path / "tidefold.yaml").read_text().split("    order:")[0] + f"    merge: {merge}\n"
    (tmp_path / "tidefold.yaml").write_text(text.replace("at: long", "at: int"))
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    land(tmp_path, 0, (1, 2**40, "too wide"), (1, 2, "newer"))
    assert cycle(pipeline, "run-1").facts["refused"] == {"VALUE_INVALID": 1}
    (tmp_path / "tidefold.yaml").write_text(text)
    widened = open_pipeline(tmp_path / "tidefold.yaml")
    assert retry(widened, LOG).facts["changes"] == changes
    assert sum(entry.quarantined for entry in widened.ledger(LOG).read().landed) == left


def test_tombstones_go_at_the_horizon_and_only_touched_ones_are_read(tmp_path: Path) -> None:
    """Review of apache/spark PR 56016: tombstones stay for ever, and all of them are read each time."""
    pipeline = timed_rows.opened(tmp_path, f"{timed_rows.BY_TIME}\n    late: {{allowed_lateness: 100}}")
    timed_rows.land(tmp_path, 0, [timed_rows.gone(i, 10) for i in range(400)])
    timed_rows.take(pipeline)
    first = timed_rows.publish(pipeline, "run-1")
    assert sum(f.rows for f in first.files if f.hidden) == 400
    timed_rows.land(tmp_path, 400, [timed_rows.put(1_000, 50, "one bucket is touched")])
    timed_rows.take(pipeline)
    second = timed_rows.publish(pipeline, "run-2")
    assert sorted(f.carried for f in second.files if f.hidden) == [False, True, True, True]
    timed_rows.land(tmp_path, 500, [timed_rows.put(2_000 + i, 500, "much later") for i in range(40)])
    timed_rows.take(pipeline)
    timed_rows.publish(pipeline, "run-3")
    timed_rows.land(tmp_path, 600, [timed_rows.put(2_000 + i, 501, "horizon of the last") for i in range(40)])
    timed_rows.land(tmp_path, 700, [timed_rows.put(5, 11, "too late to know")])
    taken = timed_rows.take(pipeline)
    assert taken.facts["refused"] == {"LATE": 1}
    last = timed_rows.publish(pipeline, "run-4")
    assert [f for f in last.files if f.hidden] == []
    assert len(timed_rows.rows(pipeline)) == 41
