"""Captured records of Debezium in Avro give the table that the same records give as JSON with schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.avro_capture import land
from support.commands import call

_TOPIC = "bank.public.types"


def _publish(folder: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str], str]:
    """Returns the schema of the table, its rows, and the configuration that `init` proposed."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    land(folder / "landing", _TOPIC, way)
    said = call("init", "landing").output
    config = Path("tidefold.yaml")
    proposed = config.read_text()
    # The column was added meanwhile; `init` says so.
    assert "`extra: {type: 'decimal(12,4)', default: null}`" in said.replace("set `extra", "`extra")
    old, new = 'extra: "decimal(12,4)"', "extra: {type: 'decimal(12,4)', default: null}"
    config.write_text(proposed.replace(old, new))
    call("run")
    table = DeltaTable(folder / "var/store/tables/types").to_pyarrow_table()
    lines = [line for line in proposed.splitlines() if not line.startswith("store_id")]
    return table.schema, sorted(map(repr, table.to_pylist())), "\n".join(lines)


def test_all_types_of_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_json = _publish(tmp_path / "json", "", monkeypatch)
    in_avro = _publish(tmp_path / "avro", "_avro", monkeypatch)
    assert in_avro[:2] == as_json[:2]
    assert len(in_avro[1]) == 4
    # JSON has the default of a decimal too.
    assert in_avro[2] == as_json[2].replace("dflt, extra: a null", "dflt: a null")
