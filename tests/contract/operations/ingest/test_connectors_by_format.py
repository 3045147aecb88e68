"""Connectors that are known by their documented format alone: SQL Server, Oracle, MongoDB.

The records in tests/data/connectors have the fields of the connectors' documentation. Nobody captured them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.landing import TOPIC, changes_of, land, make_landing, state_of, take
from tidefold.cli.app import app
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.storage import open_store

DATA = Path(__file__).parents[3] / "data/connectors"
DOCUMENTS = """{
      id: long, text: string, at: {type: timestamp, encoding: iso}, price: {type: "decimal(10,2)", encoding: string},
      tags: "array<string>", document: string}"""


def make(root: Path, connector: str, columns: str = "{id: int, text: string}", more: str = "") -> Pipeline:
    make_landing(root, columns)
    path = root / "tidefold.yaml"
    path.write_text(path.read_text().replace("connector: postgresql", f"connector: {connector}") + more)
    return Pipeline(load_config(path), open_store("store", root))


def records(connector: str) -> list[dict[str, Any]]:
    lines = (DATA / f"{connector}.jsonl").read_text().splitlines()
    return [{"topic": TOPIC, "partition": 0, **json.loads(line)} for line in lines]


def rows_of(pipeline: Pipeline) -> dict[int, Any]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return {row["id"]: row for batch in batches for row in batch.to_pylist()}


def texts_of(pipeline: Pipeline) -> dict[int, str]:
    return {item: row["text"] for item, row in rows_of(pipeline).items()}


@pytest.mark.parametrize(
    ("connector", "expected", "resent"),
    [
        ("sqlserver", {1001: "Sally", 2002: "George"}, 1),
        ("oracle", {1: "a2", 3: "c3", 4: "d"}, 1),
        ("mongodb", {1001: "Sally", 1004: "Anne Marie", 1005: "Ed"}, 1),
    ],
)
@pytest.mark.parametrize("pieces", [1, 3, 9])
def test_what_was_sent_again_changes_nothing(
    connector: str, expected: dict[int, str], resent: int, pieces: int, tmp_path: Path
) -> None:
    pipeline = make(tmp_path, connector, DOCUMENTS if connector == "mongodb" else "{id: int, text: string}")
    found = records(connector)
    size = -(-len(found) // pieces)
    total = 0
    for start in range(0, len(found), size):
        land(tmp_path, start, found[start : start + size])
        outcome = take(pipeline)
        assert (outcome.error_code, outcome.facts["refused"]) == (None, {}), outcome
        total += outcome.facts["resent"]
    assert total == resent
    assert texts_of(pipeline) == expected
    status = CliRunner().invoke(app, ["status", "--config", str(tmp_path / "tidefold.yaml")])
    assert f"items: connector {connector} is experimental" in status.stdout


def test_the_order_of_sql_server(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "sqlserver")
    land(tmp_path, 0, records("sqlserver"))
    take(pipeline)
    orders = [tuple(change[f"_o{i}"] for i in range(5)) for change in changes_of(pipeline)]
    assert orders == sorted(orders)
    assert orders[0] == ((0x27 << 32) + 0x758, 3, 0, 0, 0)
    assert orders[-1] == ((0x28 << 32) + 0x10, 5, (0x28 << 32) + 0x10, 2, 1)


@pytest.mark.parametrize(
    ("connector", "source"),
    [
        ("sqlserver", {"commit_lsn": None}),
        ("sqlserver", {"commit_lsn": "00000027:00000758"}),
        ("sqlserver", {"change_lsn": "no"}),
        ("sqlserver", {"event_serial_no": "x"}),
        ("oracle", {"commit_scn": None}),
        ("oracle", {"commit_scn": "12,13"}),
        ("mongodb", {"ts_ms": None}),
        ("mongodb", {"ord": -1}),
    ],
)
def test_a_record_without_its_order_is_refused(connector: str, source: dict[str, Any], tmp_path: Path) -> None:
    pipeline = make(tmp_path, connector, DOCUMENTS if connector == "mongodb" else "{id: int, text: string}")
    one = records(connector)[2]
    one["value"]["source"] |= source
    land(tmp_path, 2, [one])
    assert take(pipeline).facts["refused"] == {"ORDER_MISSING": 1}


@pytest.mark.parametrize("connector", ["sqlserver", "oracle"])
def test_a_new_snapshot_replaces_what_was_there(connector: str, tmp_path: Path) -> None:
    pipeline = make(tmp_path, connector)
    found = records(connector)
    land(tmp_path, 0, found)
    newer = {"commit_lsn": "00000099:00000001:0001"} if connector == "sqlserver" else {"scn": "9999999"}
    again = [{**one, "offset": 50 + i} for i, one in enumerate(records(connector)[:2])]
    for one in again:
        one["value"]["source"] |= newer
    land(tmp_path, 50, again)
    assert take(pipeline).facts["refused"] == {}
    assert texts_of(pipeline) == {one["key"]["id"]: one["value"]["after"]["text"] for one in found[:2]}


def test_rows_of_a_mongodb_snapshot_with_rising_times_do_not_clear_each_other(tmp_path: Path) -> None:
    """Nobody captured one: a row without the mark of the first must not remove those before it."""
    pipeline = make(tmp_path, "mongodb", DOCUMENTS)
    found = records("mongodb")[:2]
    found[1]["value"]["source"] |= {"ts_ms": 1729000000999, "snapshot": "true"}
    land(tmp_path, 0, found)
    take(pipeline)
    assert texts_of(pipeline) == {1001: "Sally", 1002: "George"}


def test_a_document_becomes_a_row_and_stays_whole(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "mongodb", DOCUMENTS)
    found = records("mongodb")
    land(tmp_path, 0, found[:3])
    take(pipeline)
    rows = rows_of(pipeline)
    first = rows[1001]
    assert (str(first["price"]), first["tags"], first["at"].isoformat()) == (
        "12.50",
        ["a", "b"],
        "2023-11-14T22:13:20.123000+00:00",
    )
    assert (rows[1002]["price"], rows[1002]["tags"]) == (None, None)
    assert json.loads(rows[1004]["document"])["address"]["zip"] == {"$numberInt": "75001"}


def test_a_field_without_a_column_is_unknown_unless_the_document_is_kept(tmp_path: Path) -> None:
    nested = "{id: long, text: string, address: {type: string, encoding: json}}"
    pipeline = make(tmp_path, "mongodb", nested, "    schema_evolution: {add: quarantine}\n")
    land(tmp_path, 0, records("mongodb")[:3])
    assert take(pipeline).facts["refused"] == {"UNKNOWN_COLUMN": 1}
    assert json.loads(rows_of(pipeline)[1004]["address"]) == {"city": "Paris", "zip": 75001}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"$oid": "596e275826f08b2730779e1f"}, "596e275826f08b2730779e1f"),
        ("1234", "1234"),
        ({"$uuid": "73ffd264-44b3-4c69-90e8-e7d1dfc035d4"}, "73ffd264-44b3-4c69-90e8-e7d1dfc035d4"),
    ],
)
def test_keys_of_documents(given: Any, found: str, tmp_path: Path) -> None:
    pipeline = make(tmp_path, "mongodb", "{id: string, document: string}")
    first, *_, gone, _ = records("mongodb")[:6]
    for one in (first, gone):
        one["key"] = {"id": json.dumps(given)}
    first["value"]["after"] = json.dumps({"_id": given, "a": 1})
    land(tmp_path, 0, [first])
    take(pipeline)
    assert list(rows_of(pipeline)) == [found]
    land(tmp_path, 4, [gone])
    take(pipeline)
    assert rows_of(pipeline) == {}
    assert state_of(pipeline).landed[-1].changes == 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_document_beside_its_schema(wrapped: bool, tmp_path: Path) -> None:
    """The schema of a document is that of a text."""
    pipeline = make(tmp_path, "mongodb", "{id: long, document: string}")
    one = records("mongodb")[0]
    if wrapped:
        text = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "field": "after"}
        one["value"] = {"schema": {"type": "struct", "fields": [text]}, "payload": one["value"]}
        one["key"] = {"schema": {"type": "struct", "fields": []}, "payload": one["key"]}
    land(tmp_path, 0, [one])
    assert take(pipeline).facts["refused"] == {}
    assert json.loads(rows_of(pipeline)[1001]["document"])["text"] == "Sally"


@pytest.mark.parametrize(
    "broken", [{"$date": {}}, {"$date": {"$numberLong": None}}, {"$numberInt": []}, {"$date": {"$numberLong": "x"}}]
)
def test_a_document_with_a_broken_value_is_refused_alone(broken: Any, tmp_path: Path) -> None:
    pipeline = make(tmp_path, "mongodb", DOCUMENTS)
    lines = records("mongodb")[:2]
    lines[0]["value"]["after"] = json.dumps({"_id": {"$numberLong": "1001"}, "at": broken})
    land(tmp_path, 0, lines)
    assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 1}
    assert texts_of(pipeline) == {1002: "George"}
