"""What records bring of another schema: S5, I28, bad input 58 and 64. A column that is not configured is never taken up
by itself; it waits in quarantine until the configuration names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from support.landing import CONFIG, TOPIC, ingest_items, land, make_landing, quarantined, record, state_of, take
from support.pipelines import contents
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.retry import retry
from tidefold.storage import open_store

TEXT = "{id: int, text: string}"


def configured(root: Path, columns: str, schema: str = "{drop: evolve, retype: evolve}", source: str = "") -> Pipeline:
    (root / "landing" / TOPIC).mkdir(parents=True, exist_ok=True)
    text = CONFIG.format(columns=columns, policy="quarantine").rstrip() + f"\n    schema_evolution: {schema}\n"
    if source:
        lines = [source if line.strip().startswith("source:") else line for line in text.splitlines()]
        text = "\n".join(lines)
    path = root / "tidefold.yaml"
    path.write_text(text)
    return Pipeline(load_config(path), open_store("store", root))


def rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


def with_after(offset: int, item: int, **after: Any) -> dict[str, Any]:
    return record(offset, item, after={"id": item, **after})


def test_a_renamed_column_is_not_added_beside_its_old_name(tmp_path: Path) -> None:
    """A record that brings a column and lacks another may show a rename: `add: evolve` leaves that to a person, and no
    value of a row from before is lost.
    """
    pipeline = configured(tmp_path, TEXT, "{add: evolve, drop: evolve}")
    land(tmp_path, 0, [with_after(0, 1, text="a"), with_after(1, 2, label="b")])
    outcome = take(pipeline)
    assert (outcome.error_code, outcome.facts["changes"]) == ("UNKNOWN_COLUMN", 1)
    assert "The record lacks text. If a column was renamed, add its old name to `aliases`." in outcome.message
    assert [column.name for column in state_of(pipeline).shape.columns] == ["id", "text"]
    renamed = "{id: int, label: {type: string, aliases: [text]}}"
    pipeline = configured(tmp_path, renamed, "{add: evolve, drop: evolve}")
    assert take(pipeline).facts["changes"] == 1
    assert rows(pipeline) == [{"id": 1, "label": "a"}, {"id": 2, "label": "b"}]


@pytest.mark.parametrize("more", ["", "\n    ignored: [secret, other]"])
@pytest.mark.parametrize("columns", [TEXT, "{id: int, text: {type: string, default: null}}"])
def test_a_truncate_reaches_every_key_group_whatever_records_may_bring(tmp_path: Path, columns: str, more: str) -> None:
    pipeline = configured(tmp_path, columns, "{add: evolve}" + more)
    items = [with_after(offset, offset, text="a") for offset in range(20)]
    land(tmp_path, 0, [*items, record(20, op="t", key=None, before=None, after=None), with_after(21, 7, text="b")])
    assert take(pipeline).facts["changes"] == 22
    assert rows(pipeline) == [{"id": 7, "text": "b"}]


def test_a_column_added_in_mid_segment_waits_until_it_is_configured(tmp_path: Path) -> None:
    """Bad input 58: the records are put aside with the line to add; `quarantine retry` then brings them in."""
    pipeline = configured(tmp_path, TEXT)
    land(tmp_path, 0, [with_after(0, 1, text="a"), with_after(1, 2, text="b", more=5), with_after(2, 3, text="c")])
    assert take(pipeline).facts["refused"] == {"UNKNOWN_COLUMN": 1}
    [refused] = quarantined(pipeline)
    assert (
        "which is not configured. To ingest it, add `more: {type: 'long', default: [?]}` to `columns`"
        in refused["detail"]
    )
    pipeline = configured(tmp_path, "{id: int, text: string, more: {type: int, default: 0}}")
    assert retry(pipeline, "items").facts["changes"] == 1
    expected = [
        {"id": 1, "text": "a", "more": 0},
        {"id": 2, "text": "b", "more": 5},
        {"id": 3, "text": "c", "more": 0},
    ]
    assert rows(pipeline) == expected
    assert [c.schema for c in state_of(pipeline).change_sets] == [1, 2]
    # The rest of what the source wrote before its column came, and what it wrote after.
    land(tmp_path, 3, [with_after(3, 4, text="d"), with_after(4, 5, text="e", more=None)])
    take(pipeline)
    assert rows(pipeline)[3:] == [{"id": 4, "text": "d", "more": 0}, {"id": 5, "text": "e", "more": None}]


CONNECT = {
    "type": "struct",
    "fields": [
        {
            "field": "after",
            "type": "struct",
            "fields": [
                {"field": "id", "type": "int32"},
                {"field": "text", "type": "string"},
                {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
                {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
                 "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
                {"field": "tags", "type": "array", "items": {"type": "string"}},
            ],
        }
    ],
}  # fmt: skip


def test_a_source_with_types_says_the_line_to_add(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, TEXT)
    after = {"id": 1, "text": "a", "day": 20_000, "price": "AfQ=", "tags": ["x"]}
    one = record(0, 1, after=after)
    one["value"] = {"schema": CONNECT, "payload": one["value"]}
    land(tmp_path, 0, [one])
    take(pipeline)
    [refused] = quarantined(pipeline)
    assert refused["reason"] == "UNKNOWN_COLUMN"
    assert "`day: {type: 'date', default: [?]}`, `price: {type: 'decimal(10,2)', default: [?]}`, " in refused["detail"]
    assert "`tags: {type: 'array<string>', default: [?]}` to `columns`" in refused["detail"]
    pipeline = configured(tmp_path, "{id: int, text: string, day: date, price: 'decimal(10,2)', tags: array<string>}")
    assert retry(pipeline, "items").facts["changes"] == 1
    [row] = rows(pipeline)
    assert (str(row["day"]), str(row["price"]), row["tags"]) == ("2024-10-04", "5.00", ["x"])


@pytest.mark.parametrize(
    ("schema", "after", "reason"),
    [
        ("{add: freeze}", {"text": "a", "more": 1}, "UNKNOWN_COLUMN"),
        ("{retype: freeze}", {"text": 5}, "VALUE_INVALID"),
        ("freeze", {"text": "a", "more": 1}, "UNKNOWN_COLUMN"),
    ],
)
def test_frozen_means_that_nothing_is_taken_with_such_a_record(
    tmp_path: Path, schema: str, after: dict[str, Any], reason: str
) -> None:
    pipeline = configured(tmp_path, TEXT, schema)
    land(tmp_path, 0, [with_after(0, 1, text="a"), with_after(1, 2, **after)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("error", "SCHEMA_FROZEN")
    assert reason in outcome.message
    assert "schema_evolution: {" in outcome.message
    assert not pipeline.ledger("items").exists()
    kind = "add" if reason == "UNKNOWN_COLUMN" else "retype"
    pipeline = configured(tmp_path, TEXT, f"{{{kind}: quarantine}}")
    assert take(pipeline).facts["refused"] == {reason: 1}
    assert rows(pipeline) == [{"id": 1, "text": "a"}]


def test_a_value_of_another_type_is_put_aside_and_never_null(tmp_path: Path) -> None:
    """Bad input 64: what Spark's permissive mode makes null."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [with_after(0, 1, text=5), with_after(1, 2, text=None)])
    assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 1}
    assert rows(pipeline) == [{"id": 2, "text": None}]


RENAMED = "{id: int, label: {type: string, aliases: [text]}}"


def test_a_rename_in_mid_stream_is_no_edit_of_the_table(tmp_path: Path) -> None:
    """Records bring a column under either of its names, in any order; both at once is a mistake."""
    pipeline = configured(tmp_path, TEXT)
    land(tmp_path, 0, [with_after(0, 1, text="a"), with_after(1, 2, text="b")])
    take(pipeline)
    pipeline = configured(tmp_path, RENAMED)
    mixed = [with_after(2, 1, text="aa"), with_after(3, 3, label="c"), with_after(4, 4, text="d"),
             with_after(5, 5, text="e", label="f"), record(6, 2, "d")]  # fmt: skip
    land(tmp_path, 2, mixed)
    assert take(pipeline).facts["refused"] == {"UNKNOWN_COLUMN": 1}
    assert rows(pipeline) == [
        {"id": 1, "label": "aa"},
        {"id": 3, "label": "c"},
        {"id": 4, "label": "d"},
    ]
    assert state_of(pipeline).schema == 2


def test_a_key_may_have_former_names_too(tmp_path: Path) -> None:
    (tmp_path / "landing" / TOPIC).mkdir(parents=True)
    text = CONFIG.replace("key: [id]", "key: [number]")
    columns = "{number: {type: int, aliases: [id]}, text: string}"
    path = tmp_path / "tidefold.yaml"
    path.write_text(text.format(columns=columns, policy="quarantine"))
    pipeline = Pipeline(load_config(path), open_store("store", tmp_path))
    new = record(1, 2, after={"number": 2, "text": "b"}, key={"number": 2})
    gone = record(3, 2, "d", before={"number": 2, "text": "b"}, key={"number": 2})
    land(tmp_path, 0, [record(0, 1), new, record(2, 1, "d"), gone, record(4, 3)])
    assert take(pipeline).facts["refused"] == {}
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    assert [row for batch in batches for row in batch.to_pylist()] == [{"number": 3, "text": "t1004"}]


def test_an_inline_schema_with_former_names(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, "{id: int, label: {type: string, aliases: [text]}, day: date, "
                                    "price: 'decimal(10,2)', tags: array<string>}")  # fmt: skip
    one = record(0, 1, after={"id": 1, "text": "a", "day": 1, "price": "AfQ=", "tags": None})
    one["value"] = {"schema": CONNECT, "payload": one["value"]}
    land(tmp_path, 0, [one])
    assert take(pipeline).facts["refused"] == {}
    [row] = rows(pipeline)
    assert (row["label"], str(row["price"])) == ("a", "5.00")


JSON = f"    source: {{format: json, path: landing/{TOPIC}, record: value}}"


LATER = """{id: int, label: {type: string, aliases: [text]},
             day: {type: date, default: '2026-01-31', encoding: iso}}"""


def test_plain_json_with_former_names_and_columns_that_came_later(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, LATER, source=JSON)
    lines = [{"id": 1, "text": "a"}, {"id": 2, "label": "b", "day": None}, {"id": 3, "text": "c", "day": "2026-02-01"}]
    land(tmp_path, 0, lines)
    assert ingest_items(pipeline).facts["refused"] == {}
    found = [(r["label"], r["day"] and str(r["day"])) for r in rows(pipeline)]
    assert found == [("a", "2026-01-31"), ("b", None), ("c", "2026-02-01")]


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_files_of_rows_with_former_names(tmp_path: Path, format_: str) -> None:
    source = f"    source: {{format: {format_}, path: landing/{TOPIC}}}"
    columns = "{id: int, label: {type: string, aliases: [text]}, more: {type: long, default: 7}}"
    pipeline = configured(tmp_path, columns, source=source + "\n    order: [id]")
    folder = tmp_path / "landing" / TOPIC
    old = pa.table({"id": pa.array([1], pa.int32()), "text": ["a"]})
    new = pa.table({"id": pa.array([2], pa.int32()), "label": ["b"], "more": pa.array([None], pa.int64())})
    for number, table in enumerate((old, new)):
        if format_ == "csv":
            csv.write_csv(table, folder / f"{number}.csv")
        else:
            pq.write_table(table, folder / f"{number}.parquet")
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.facts["problems"]) == ("taken", [])
    assert rows(pipeline) == [
        {"id": 1, "label": "a", "more": 7, "_order": rows(pipeline)[0]["_order"]},
        {"id": 2, "label": "b", "more": None, "_order": rows(pipeline)[1]["_order"]},
    ]


def test_a_policy_holds_an_ingest_before_anything_is_read(tmp_path: Path) -> None:
    pipeline = configured(tmp_path, TEXT)
    land(tmp_path, 0, [with_after(0, 1, text="a")])
    take(pipeline)
    land(tmp_path, 1, [with_after(1, 2)])
    before = contents(tmp_path / "store")
    outcome = take(configured(tmp_path, "{id: int}", "{drop: freeze}"))
    assert outcome.error_code == "SHAPE_CHANGED"
    assert "`schema_evolution.drop` of the log is `freeze`" in outcome.message
    assert contents(tmp_path / "store") == before
    dropped = configured(tmp_path, "{id: int}", "{drop: evolve}")
    assert take(dropped).facts["changes"] == 1
    assert rows(dropped) == [{"id": 1}, {"id": 2}]
