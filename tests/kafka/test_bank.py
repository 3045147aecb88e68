"""The bank of the sample goes through a real broker: the tables are those of the source, with equal places."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.commands import call
from support.kafka_broker import KafkaBroker

_BANK = Path(__file__).parents[1] / "data" / "bank"
_COLUMNS = {
    "branches": ("bid", "{bid: int, bbalance: int, filler: string}"),
    "tellers": ("tid", "{tid: int, bid: int, tbalance: int, filler: string}"),
}


def _read_phase(log: str, phase: int) -> Iterator[dict[str, Any]]:
    for file in sorted((_BANK / "landing" / f"phase{phase}" / f"bank.public.pgbench_{log}").glob("*.gz")):
        yield from map(json.loads, gzip.decompress(file.read_bytes()).splitlines())


def _as_sent(record: Mapping[str, Any]) -> dict[str, Any]:
    def dump(value: Any) -> bytes | None:
        return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    headers = [(h["key"], h["value"]) for h in record.get("headers") or ()]
    return {"key": dump(record["key"]), "value": dump(record["value"]), "headers": headers}


def _read_truth(log: str, phase: int) -> list[tuple[str, ...]]:
    with gzip.open(_BANK / "truth" / f"phase{phase}" / f"pgbench_{log}.csv.gz") as raw:
        return sorted(map(tuple, list(csv.reader(io.TextIOWrapper(raw, "utf-8")))[1:]))


def _read_table(folder: Path, log: str) -> list[tuple[str, ...]]:
    table = DeltaTable(folder / "store" / "tables" / log)
    names = [f.name for f in table.schema().fields]
    rows = table.to_pyarrow_table().select(names).to_pylist()
    return sorted(tuple("" if v is None else str(v) for v in row.values()) for row in rows)


def test_three_phases(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "version: 1\nstore: store\nspark: {above: 8GB}\nlogs:\n"
    for log, (key, columns) in _COLUMNS.items():
        broker.create(f"bank.public.pgbench_{log}")
        kafka = f"kafka: {{servers: '{broker.servers}', topic: bank.public.pgbench_{log}}}"
        text += f"  {log}:\n    source: {{format: debezium-json, connector: postgresql, {kafka}}}\n"
        text += f"    key: [{key}]\n    columns: {columns}\n"
    Path("tidefold.yaml").write_text(text)
    for phase in (1, 2, 3):
        for log in _COLUMNS:
            broker.send(f"bank.public.pgbench_{log}", map(_as_sent, _read_phase(log, phase)))
        call("run")
        for log in _COLUMNS:
            assert _read_table(tmp_path, log) == _read_truth(log, phase)
    assert call("step", "ingest").output.count("nothing new") == len(_COLUMNS)
