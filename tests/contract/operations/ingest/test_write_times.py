"""Rows that expire by their last change: tidefold writes the commit time of each change to the age column. N10.

Flink's `OnCreateAndWrite`, for rows, map entries and queue elements; `OnReadAndWrite` cannot be known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.landing import TOPIC, record
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.config import ConfigError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

NOW = datetime.now(UTC).replace(microsecond=0)
TTL = "ttl: {column: changed_at, days: 30, on: create-and-write}"
STATE = "{format: state-json, path: landing, kind: map, state_key: [id]}"
JSON = "{format: json, path: landing, op: {column: op}}"
CSV = "{format: csv, path: landing, op: {column: op}, commit_time: at}"


def make(
    folder: Path, source: str, key: str, columns: str, more: str = "", ttl: str = TTL, type_: str = "timestamp"
) -> Pipeline:
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    (folder / "tidefold.yaml").write_text(
        f"version: 1\nstore: store\nlogs:\n  items:\n    source: {source}\n    key: {key}\n"
        f"    columns: {{{columns}, changed_at: {type_}}}\n    {ttl}\n    {more or 'buckets: 2'}\n"
    )
    return open_pipeline(folder / "tidefold.yaml")


def land(folder: Path, begin: int, values: Sequence[tuple[float, Any]]) -> None:
    """Lands Kafka records of these ages in days."""
    records = [
        {"topic": "items", "partition": 0, "offset": begin + i, "timestamp": millis(days), "key": None, "value": value}
        for i, (days, value) in enumerate(values)
    ]
    text = "".join(json.dumps(one) + "\n" for one in records)
    (folder / f"landing/items+0+{begin:010d}.jsonl").write_text(text)


def millis(days: float) -> int:
    return int((NOW - timedelta(days=days)).timestamp()) * 1000


def cycle(pipeline: Pipeline, run: str) -> list[dict[str, Any]]:
    """Ingests, folds and publishes. Returns the rows."""
    [taken] = ingest(pipeline, ["items"], in_process)
    assert taken.error_code is None, taken
    return fold(pipeline, run)


def fold(pipeline: Pipeline, run: str) -> list[dict[str, Any]]:
    materialize(pipeline, ["items"], Fold(run), in_process)
    judge_all(pipeline, "items")
    confirm(pipeline, "items", Confirmation(run=run))
    found: list[dict[str, Any]] = DeltaTable(pipeline.store.uri("tables/items")).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: tuple(map(str, row.values())))


def put(name: str, n: int) -> dict[str, Any]:
    return {"op": "put", "key": {"id": 1}, "value": {"name": name, "n": n}}


@pytest.mark.parametrize("type_", ["timestamp", "date"])
def test_a_map_entry_expires_by_its_last_change(tmp_path: Path, type_: str) -> None:
    """Each entry by itself: a write makes it young again, a write of another entry does not."""
    pipeline = make(tmp_path, STATE, "[id, name]", "id: int, name: string, n: long", type_=type_)
    land(tmp_path, 0, [(40, put("a", 1)), (40, put("b", 1)), (20, put("c", 1))])
    land(tmp_path, 3, [(10, put("a", 2))])
    found = cycle(pipeline, "run-1")
    ages = {"a": NOW - timedelta(days=10), "c": NOW - timedelta(days=20)}
    assert {row["name"]: row["changed_at"] for row in found} == {
        name: at if type_ == "timestamp" else at.date() for name, at in ages.items()
    }


def test_a_partial_change_makes_the_row_young(tmp_path: Path) -> None:
    """Whatever it brings; a delete has no age."""
    pipeline = make(tmp_path, JSON, "[id]", "id: int, a: string, b: string", "merge: partial")
    land(tmp_path, 0, [(40, {"op": "c", "id": 1, "a": "x"}), (40, {"op": "c", "id": 2, "a": "x"})])
    land(tmp_path, 2, [(5, {"op": "u", "id": 1, "b": "y"}), (50, {"op": "c", "id": 3}), (1, {"op": "d", "id": 3})])
    assert cycle(pipeline, "run-1") == [{"id": 1, "a": "x", "b": "y", "changed_at": NOW - timedelta(days=5)}]


def test_what_a_record_brings_does_not_count(tmp_path: Path) -> None:
    """The source cannot make a row older or younger than its change."""
    pipeline = make(tmp_path, JSON, "[id]", "id: int")
    land(tmp_path, 0, [(1, {"op": "c", "id": 1, "changed_at": 5})])
    assert cycle(pipeline, "run-1") == [{"id": 1, "changed_at": NOW - timedelta(days=1)}]


def test_the_time_of_a_file_without_kafka_is_its_commit_time(tmp_path: Path) -> None:
    columns = "id: int, at: timestamp"
    pipeline = make(tmp_path, CSV, "[id]", columns, "order: [at]", type_="date")
    lines = [f"{op},{i},{NOW - timedelta(days=d):%Y-%m-%dT%H:%M:%SZ}" for op, i, d in (("c", 1, 40), ("c", 2, 3))]
    (tmp_path / "landing/one.csv").write_text("\n".join(["op,id,at", *lines, ""]))
    [row] = cycle(pipeline, "run-1")
    assert (row["id"], row["changed_at"]) == (2, date.fromordinal(NOW.date().toordinal() - 3))


def test_a_record_that_a_retry_reads_has_its_own_time(tmp_path: Path) -> None:
    """I32: its rows are as if it had been readable at once."""
    more = "schema_evolution: {add: quarantine}"
    pipeline = make(tmp_path, JSON, "[id]", "id: int", more)
    land(tmp_path, 0, [(7, {"op": "c", "id": 1, "x": 1}), (3, {"op": "c", "id": 2})])
    assert [row["id"] for row in cycle(pipeline, "run-1")] == [2]
    later = make(tmp_path, JSON, "[id]", "id: int", f"{more}\n    ignored: [x]")
    assert retry(later, "items").facts["changes"] == 1
    found = fold(later, "run-2")
    assert [row["changed_at"] for row in found] == [NOW - timedelta(days=days) for days in (7, 3)]


def test_a_log_that_had_the_column_from_its_source_goes_on(tmp_path: Path) -> None:
    """The definition of the table stays the same, so nothing is rewritten."""
    before = make(tmp_path, JSON, "[id]", "id: int", ttl="ttl: {column: changed_at, days: 30}")
    old = int((NOW - timedelta(days=2)).timestamp() * 1_000_000)
    land(tmp_path, 0, [(9, {"op": "c", "id": 1, "changed_at": old}), (9, {"op": "c", "id": 2, "changed_at": old})])
    cycle(before, "run-1")
    land(tmp_path, 2, [(1, {"op": "u", "id": 2})])
    found = cycle(make(tmp_path, JSON, "[id]", "id: int"), "run-2")
    assert [row["changed_at"] for row in found] == [NOW - timedelta(days=days) for days in (2, 1)]


@pytest.mark.parametrize(
    ("ttl", "columns", "key", "message"),
    [
        ("{column: changed_at, days: 3, on: read-and-write}", "id: int", "[id]", "nobody tells tidefold"),
        ("{column: changed_at, days: 3, on: create-and-write}", "id: int", "[id, changed_at]", "`key` or `order`"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, ttl: str, columns: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, JSON, key, columns, ttl=f"ttl: {ttl}")
    [problem] = caught.value.problems
    assert problem.code == "TTL_ON"
    assert message in problem.message


def test_a_log_of_a_program_writes_the_column_itself(tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(
        "version: 1\nstore: store\nlogs:\n  items:\n    key: [id]\n    order: arrival\n"
        f"    columns: {{id: int, changed_at: timestamp}}\n    {TTL}\n"
    )
    with pytest.raises(ConfigError) as caught:
        open_pipeline(tmp_path / "tidefold.yaml")
    assert [problem.code for problem in caught.value.problems] == ["TTL_ON"]


def test_debezium_changes_have_the_time_of_their_transaction(tmp_path: Path) -> None:
    """Records of a connector never bring the column."""
    folder = tmp_path / "landing" / TOPIC
    folder.mkdir(parents=True)
    (tmp_path / "tidefold.yaml").write_text(
        "version: 1\nstore: store\nlogs:\n  items:\n"
        f"    source: {{format: debezium-json, connector: postgresql, path: landing/{TOPIC}}}\n"
        f"    key: [id]\n    columns: {{id: int, text: string, changed_at: timestamp}}\n    {TTL}\n"
    )
    times = [millis(days) * 1000 for days in (40, 2, 1)]
    records = [record(i, item, ts_us=at) for i, (item, at) in enumerate(zip((1, 2, 3), times, strict=True))]
    records.append(record(3, 3, op="d", ts_us=times[2]))
    (folder / f"{TOPIC}+0+0000000000.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    [row] = cycle(open_pipeline(tmp_path / "tidefold.yaml"), "run-1")
    assert (row["id"], row["changed_at"]) == (2, NOW - timedelta(days=2))
