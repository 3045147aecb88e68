"""`init` knows a tool by most of its records, and names those that the tool does not write, or writes without a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidefold.sources.inference.proposal import ProposedLog
from tidefold.sources.inference.propose import propose


def sample(folder: Path, *records: dict[str, Any]) -> list[ProposedLog]:
    (folder / "o").mkdir()
    (folder / "o/o-1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return propose(folder)


def maxwell(number: int) -> dict[str, Any]:
    row = {"id": number, "name": f"n{number}"}
    return {"database": "s", "table": "o", "type": "insert", "ts": number, "data": row}


def mongodb(kind: str, number: int, **more: Any) -> dict[str, Any]:
    time = {"$timestamp": {"t": number, "i": 1}}
    return {
        "operationType": kind, "clusterTime": time, "ns": {"db": "s", "coll": "o"}, "documentKey": {"_id": 1}, **more,
    }  # fmt: skip


@pytest.mark.parametrize("stray", [{"database": "s", "table": "o", "type": "insert", "ts": 9}, {"hello": "you"}])
def test_a_strange_line_does_not_hide_a_tool_and_is_named(tmp_path: Path, stray: dict[str, Any]) -> None:
    [log] = sample(tmp_path, *map(maxwell, range(3)), stray, *map(maxwell, range(3, 6)))
    assert dict(log.options)["profile"] == "maxwell"
    [said] = [one for one in log.warnings if one.startswith("1 of 7 sampled records would be refused, or left out")]
    assert next(iter(stray.values())) in said
    assert log.usable


def test_a_tool_is_not_known_by_some_of_its_records(tmp_path: Path) -> None:
    [log] = sample(tmp_path, maxwell(1), maxwell(2), {"hello": "you"}, {"hello": "all"})
    assert "profile" not in dict(log.options)


def test_a_document_that_was_deleted_before_its_lookup_is_no_question(tmp_path: Path) -> None:
    whole = {"fullDocument": {"_id": 1, "name": "a"}}
    gone = [mongodb("update", 3, fullDocument=None), mongodb("delete", 4)]
    (tmp_path / "a").mkdir()
    [log] = sample(tmp_path / "a", mongodb("insert", 1, **whole), mongodb("update", 2, **whole), *gone)
    assert log.usable
    assert any("1 of 4 sampled records would be refused" in one and "settle the record" in one for one in log.warnings)
    # Without a document in any update the stream was opened without one.
    (tmp_path / "b").mkdir()
    [log] = sample(tmp_path / "b", mongodb("insert", 1, **whole), *gone)
    assert not log.usable
    (tmp_path / "c").mkdir()
    [log] = sample(tmp_path / "c", mongodb("insert", 1, **whole), mongodb("update", 2, **whole), mongodb("update", 3))
    assert 'fullDocument: "updateLookup"' in "".join(log.notes)


@pytest.mark.parametrize(
    ("name", "has_place"), [("o/o-1.jsonl", False), ("o/o+0+0000000000.json", False), ("o/o+0+0000000000.json", True)]
)
def test_records_that_are_texts_of_json_are_named_with_the_converter(
    tmp_path: Path, name: str, has_place: bool
) -> None:
    values = [json.dumps({"id": number}) for number in range(3)]
    records = [{"topic": "o", "partition": 0, "offset": n, "value": v} for n, v in enumerate(values)]
    (tmp_path / "o").mkdir()
    (tmp_path / name).write_text("".join(f"{json.dumps(one)}\n" for one in (records if has_place else values)))
    [log] = propose(tmp_path)
    assert not log.usable
    assert "value.converter=org.apache.kafka.connect.storage.StringConverter" in log.notes[0]
    assert "record_path" not in dict(log.options)


def test_the_schemas_of_ticdc_are_no_log(tmp_path: Path) -> None:
    for name, text in {
        "hr/staff/2026-11-20/CDC0001.csv": "op,id,name\nI,1,a\nI,2,b\n",
        "hr/staff/meta/schema_433_0123.json": '{"Table": "staff", "TableVersion": 433, "TableColumns": []}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    [log] = propose(tmp_path)
    assert (log.id, dict(log.options)["leave_out"]) == ("staff", ["*meta/schema_*.json", "*.index"])
