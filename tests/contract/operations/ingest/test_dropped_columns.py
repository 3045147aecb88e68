"""A `default` counts for records from before its column. A later record without the column shows a DROP."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidefold.cli.app import app

Row = dict[str, Any]
Land = Callable[..., None]


def record(offset: int, id_: int, order: int | None = None, op: str = "c", **more: Any) -> Row:
    place = 100 + (offset if order is None else order)
    source = {"sequence": f'[null,"{place}"]', "ts_us": place}
    value = {"op": op, "after": {"id": id_, **more}, "source": {**source, "snapshot": "false"}}
    return {"topic": "d", "partition": 0, "offset": offset, "key": {"id": id_}, "value": value, "headers": []}


def configure(*columns: str, more: str = "") -> None:
    text = (
        "version: 1\nstore: store\nlogs:\n  d:\n    source: {format: debezium-json, connector: postgresql, path: l}\n"
    )
    text += f"    key: [id]\n    columns: {{id: long, {', '.join(columns)}}}\n    buckets: 1\n{more}"
    Path("tidefold.yaml").write_text(text)


def land(records: Sequence[Row], files: int = 1) -> None:
    folder = Path("l")
    folder.mkdir(exist_ok=True)
    for n in range(files):
        part = records[len(records) * n // files : len(records) * (n + 1) // files]
        if part:
            name = f"d+{part[0]['partition']}+{part[0]['offset']:010d}.jsonl"
            (folder / name).write_text("".join(json.dumps(one) + "\n" for one in part))


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def rows() -> list[Row]:
    return sorted(json.loads(call("read", "d", "--format", "json").stdout)["rows"], key=lambda row: int(row["id"]))


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)


V, G = "v: string", "g: {type: string, default: null}"
# v alone, then g is added, then dropped, then added again with a default.
HISTORY = [record(0, 1, v="a"), record(1, 2, v="b", g="old"), record(2, 3, v="c"), record(3, 4, v="d", g="new")]


@pytest.mark.rotates(3)
@pytest.mark.parametrize("files", [1, 2, 4])
@pytest.mark.parametrize("runs", ["one run", "a run for each"])
def test_a_drop_is_seen_whatever_the_files_and_the_runs(files: int, runs: str) -> None:
    """Fault: rows kept their old values, and mixed with those of the next column of that name."""
    configure(V, G)
    for part in [HISTORY] if runs == "one run" else [HISTORY[:1], HISTORY[1:2], HISTORY[2:]]:
        land(part, files)
        done = call("step", "ingest")
    assert done.exit_code == 2
    assert "[MISSING_COLUMN]" in done.output
    assert "`after` has no g, which earlier records have" in done.output
    assert call("step", "ingest").exit_code == 2, "it does not continue by itself"
    # A person decides what the drop means, and then what the new column means.
    configure(V, more="    schema_evolution: {drop: evolve}\n")
    done = call("step", "ingest")
    assert "[UNKNOWN_COLUMN]" in done.output
    configure(V, "g: {type: string, default: x}", more="    schema_evolution: {drop: evolve}\n")
    assert call("step", "ingest").exit_code == 0
    assert call("run").exit_code == 0
    assert [(row["id"], row["g"]) for row in rows()] == [(1, "x"), (2, "x"), (3, "x"), (4, "new")]


def test_records_from_before_the_column_are_read_in_each_partition() -> None:
    configure(V, G)
    land([record(0, 1, v="a"), record(1, 2, v="b", g="x")])
    other = [{**one, "partition": 1} for one in (record(0, 3, v="c"), record(1, 4, v="d", g="y"))]
    land(other)
    assert call("run").exit_code == 0
    assert [row["g"] for row in rows()] == [None, "x", None, "y"]


CONNECT, TIME = "org.apache.kafka.connect.data", "io.debezium.time"
DECIMAL = {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "2", "connect.decimal.precision": "10"}}
DAY = "1970-01-02"
NEW_COLUMNS = [
    ({"type": "int32", "default": 42}, 7, "f: {type: 'int', default: 42}", 42),
    ({"type": "int32", "default": 42, "optional": True}, None, "f: {type: 'int', default: 42}", 42),
    ({"type": "int32", "optional": True}, 7, "f: {type: 'int', default: null}", None),
    ({"type": "int32"}, 7, "f: {type: 'int', default: [?]}", None),
    ({"type": "boolean", "default": True}, False, "f: {type: 'boolean', default: true}", True),
    ({"type": "string", "default": 'a"b: c'}, "x", """f: {type: 'string', default: "a\\"b: c"}""", 'a"b: c'),
    ({"type": "bytes", "default": "AJY=", **DECIMAL}, "AA==", "f: {type: 'decimal(10,2)', default: 1.50}", "1.50"),
    ({"type": "int32", "name": f"{TIME}.Date", "default": 1}, 2, "f: {type: 'date', default: 1970-01-02}", DAY),
    (
        {"type": "int64", "name": f"{TIME}.MicroTimestamp", "default": 1_500_000},
        0,
        "f: {type: 'timestamp', default: 1970-01-01T00:00:01.500000Z}",
        "1970-01-01 00:00:01.500000+00:00",
    ),
    ({"type": "double", "default": 1.5}, 0.0, "f: {type: 'double', default: 1.5}", 1.5),
]  # fmt: skip


@pytest.mark.rotates(6)
@pytest.mark.parametrize(("field", "value", "line", "before"), NEW_COLUMNS)
def test_the_default_of_a_new_column_is_the_source_s(field: Row, value: Any, line: str, before: Any) -> None:
    """Fault: `default: null` was proposed where the schema beside the record says 42; who obeyed had null for ever."""
    fields = [{"field": "id", "type": "int64"}, {"field": "v", "type": "string"}]
    configure(V)
    land([record(0, 1, v="a")])
    new = record(1, 2, v="b", f=value)
    schema = {"type": "struct", "fields": [{"field": "after", "fields": [*fields, {**field, "field": "f"}]}]}
    new["value"] = {"schema": schema, "payload": new["value"]}
    land([new])
    said = call("step", "ingest").output
    assert f"`{line}`" in said
    assert ("which default f has" in said) == ("[?]" in line)
    configure(V, line)
    if "[?]" in line:
        assert call("validate").exit_code == 2, "it cannot be copied without an answer"
        return
    done = call("run")
    assert done.exit_code == 0, done.output
    assert rows()[0]["f"] == before
    # The source decides what is added by itself, too.
    configure(V, more="    schema_evolution: {add: evolve}\n")
    call("retain", "drop", "d", "--yes")
    assert ("[UNKNOWN_COLUMN]" in call("step", "ingest").output) == (before is not None)


def test_without_a_schema_a_person_says_the_default() -> None:
    configure(V)
    land([record(0, 1, v="a"), record(1, 2, v="b", f=7)])
    said = call("step", "ingest").output
    assert "`f: {type: 'long', default: [?]}`" in said
    assert "`null` if there is none" in said


def test_a_record_that_comes_again_drops_nothing() -> None:
    configure(V, G)
    land([record(0, 1, v="a"), record(1, 2, v="b", g="x"), record(2, 1, order=0, v="a"), record(3, 3, v="c", g="y")])
    done = call("run")
    assert done.exit_code == 0, done.output
    assert [row["g"] for row in rows()] == [None, "x", "y"]


@pytest.mark.parametrize("runs", [1, 2])
def test_the_last_records_that_come_again_with_an_older_schema_drop_nothing(runs: int) -> None:
    """Torture, seed 10: a killed connector sent its last record again, without a column that a snapshot had shown."""
    configure(V, G, more="    schema_evolution: {drop: evolve}\n")
    sent = [record(0, 1, v="a"), record(1, 2, v="b", g=None)]
    again = [record(2, 1, order=0, v="a"), record(3, 2, order=1, v="b"), record(4, 3, v="c", g="y")]
    if runs == 2:
        land(sent)
        assert call("run").exit_code == 0
        land(again)
    else:
        land(sent + again, files=5)
    done = call("run")
    assert done.exit_code == 0, done.output
    assert [row["g"] for row in rows()] == [None, None, "y"]
    land([record(5, 4, v="d")])
    assert "`after` has no g, which earlier records have" in call("step", "ingest").output


def test_a_column_that_the_source_added_is_dropped_like_any_other() -> None:
    configure(V, more="    schema_evolution: {add: evolve}\n")
    land(HISTORY[:3])
    done = call("step", "ingest")
    assert "`after` has no g, which earlier records have" in done.output


def test_what_a_rebuilt_ledger_knows_of_columns() -> None:
    """The position is in the manifest: a DROP after `rebuild` is seen, too."""
    configure(V, G)
    land(HISTORY[:2])
    assert call("run").exit_code == 0
    for one in Path("store/logs/d/ledger").glob("*.json"):
        one.unlink()
    done = call("move", "rebuild", "d", "--yes")
    assert done.exit_code == 0, done.output
    land(HISTORY[2:])
    assert "`after` has no g, which earlier records have" in call("step", "ingest").output
