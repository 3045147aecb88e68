"""The scale of a decimal in base64 is known, by a schema or by a promise, or its partition stops (DECIMAL_SCALE)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tidefold.cli.app import app

Row = dict[str, Any]
DEBEZIUM, JSON = {"format": "debezium-json", "connector": "postgresql"}, {"format": "json"}


def coded(number: int) -> str:
    return base64.b64encode(number.to_bytes(8, "big", signed=True)).decode()


def with_schema(number: int, scale: int) -> Row:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": str(scale)}}
    fields = [{"field": "id", "type": "int64"}, {**decimal, "field": "c"}]
    return {"schema": {"type": "struct", "fields": [{"field": "after", "fields": fields}]}, "payload": coded(number)}


@dataclass(frozen=True)
class Case:
    """A log with one decimal. `values`: of its records. `rows`: of its table. `stops`: the record after it stops it."""

    name: str
    column: Any
    values: list[Any]
    rows: list[Any]
    stops: bool = False
    source: Any = None


def case(name: str, type_: str, encoding: str, values: list[Any], rows: list[Any], **more: Any) -> Case:
    return Case(name, {"type": type_, **({"encoding": encoding} if encoding else {})}, values, rows, **more)


EXACT = [Decimal("123.45"), Decimal("-0.01")]
CASES = [
    case("nothing", "decimal(8,2)", "", [coded(12345)], [], stops=True),
    case("encoding_alone", "decimal(8,2)", "base64", [coded(12345)], [], stops=True),
    case("array_alone", "array<decimal(8,2)>", "", [[coded(12345)]], [], stops=True),
    case("rows_alone", "decimal(8,2)", "base64", [coded(12345)], [], stops=True, source=JSON),
    case("promised", "decimal(8,2)", "base64(2)", [coded(12345), coded(-1)], EXACT),
    case("promised_rows", "decimal(8,2)", "base64(2)", [coded(12345), coded(-1)], EXACT, source=JSON),
    case("promised_array", "array<decimal(8,2)>", "base64(2)", [[coded(12345), coded(-1)]], [EXACT]),
    # The table's type was widened; what the source writes was not.
    case("wider_table", "decimal(12,4)", "base64(2)", [coded(12345), coded(-1)], EXACT),
    # 12.3456 of numeric(12,4), and a number that has too many digits for numeric(8,2).
    case("too_long", "decimal(8,2)", "base64(2)", [coded(12345), coded(10**8), coded(1)], EXACT[:1], stops=True),
    case("long_rows", "decimal(8,2)", "base64(2)", [coded(12345), coded(10**8)], EXACT[:1], stops=True, source=JSON),
    case("by_schema", "decimal(8,2)", "", [with_schema(12345, 2), with_schema(-10, 3)], EXACT),
    case("schema", "decimal(8,2)", "base64(2)", [with_schema(12345, 2), with_schema(-10, 3)], EXACT[:1], stops=True),
    case("own_scale", "decimal(8,2)", "", [{"scale": 2, "value": coded(12345)}], EXACT[:1]),
]  # fmt: skip


def record(case: Case, offset: int, value: Any) -> Row:
    schema = value.get("schema") if isinstance(value, dict) else None
    row = {"id": offset, "c": value["payload"] if schema else value}
    source = {"sequence": f'[null,"{offset + 1}"]', "ts_us": offset, "snapshot": "false"}
    sent = row if case.source else {"op": "c", "after": row, "source": source}
    whole = {"schema": schema, "payload": sent} if schema else sent
    return {"topic": case.name, "partition": 0, "offset": offset, "key": {"id": offset}, "value": whole, "headers": []}


def test_no_decimal_is_read_with_a_scale_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: after ALTER TABLE, values were a hundred times off, and nothing said so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    logs = {}
    for one in CASES:
        source = {**(one.source or DEBEZIUM), "path": f"landing/{one.name}"}
        logs[one.name] = {"source": source, "key": ["id"], "columns": {"id": "long", "c": one.column}, "buckets": 1}
        folder = tmp_path / "landing" / one.name
        folder.mkdir(parents=True)
        lines = [json.dumps(record(one, offset, value)) for offset, value in enumerate(one.values)]
        (folder / f"{one.name}+0+0000000000.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": logs}))
    done = CliRunner().invoke(app, ["run"])
    assert done.exit_code == 2
    for one in CASES:
        table = tmp_path / "store/tables" / one.name
        rows = DeltaTable(table).to_pyarrow_table().sort_by("id").column("c").to_pylist() if table.exists() else []
        assert rows == one.rows, one.name
        said = f"{one.name}: [DECIMAL_SCALE] Line {len(one.rows) + 1} of "
        assert (said in done.output) == one.stops, (one.name, done.output)
    assert "promise it: `encoding: base64(2)`" in done.output


@pytest.mark.parametrize(
    ("type_", "encoding"), [("string", "base64(2)"), ("long", "base64(2)"), ("decimal(8,2)", "base64()")]
)
def test_only_a_decimal_has_a_promised_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: str, encoding: str
) -> None:
    monkeypatch.chdir(tmp_path)
    column = {"type": type_, "encoding": encoding}
    log = {"source": {**DEBEZIUM, "path": "landing/a"}, "key": ["id"], "columns": {"id": "long", "c": column}}
    (tmp_path / "tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": {"a": log}}))
    assert "COLUMN_ENCODING" in CliRunner().invoke(app, ["validate"]).output
