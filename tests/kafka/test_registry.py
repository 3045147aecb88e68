"""A topic in Avro: its table is the one of the source, and its secrets stay where those of Kafka are."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from support.avro_capture import AVRO, SentRecord, read_topic
from support.commands import attempt, call
from support.kafka_broker import KafkaBroker
from support.schema_registry import SchemaRegistry, serve_schemas
from tidefold.operations.doctor.pipeline_checks import check_landing
from tidefold.wiring import open_pipeline

_SENT = "bank.public.pgbench_tellers"
_TOPIC = f"registry.{_SENT}"
_USER = "reader:s3cr3t-of-schemas"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    schemas = {int(file.stem): {"schema": file.read_text()} for file in (AVRO / "schemas").glob("*.avsc")}
    with serve_schemas(schemas) as serving:
        serving.user = _USER
        yield serving


def _send(broker: KafkaBroker, records: list[SentRecord]) -> None:
    broker.send(_TOPIC, ({"key": r.key(), "value": r.value(), "headers": r.headers()} for r in records))


def test_a_topic_in_avro(
    broker: KafkaBroker, registry: SchemaRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    broker.create(_TOPIC)
    records = list(read_topic(_SENT))
    kafka = {"servers": broker.servers, "topic": _TOPIC, "registry": registry.url, "connection": "bank"}
    text = "version: 1\nstore: store\nspark: {above: 8GB}\nlogs:\n  tellers:\n    source: {format: debezium-json, "
    text += f"connector: postgresql, kafka: {json.dumps(kafka)}}}\n    key: [tid]\n"
    Path("tidefold.yaml").write_text(text + "    columns: {tid: int, bid: int, tbalance: int, filler: string}\n")
    said = []
    for user in ("", _USER):
        settings = {"schema.registry.basic.auth.user.info": user} if user else {}
        monkeypatch.setenv("AIRFLOW_CONN_BANK", json.dumps({"conn_type": "kafka", "extra": settings}))
        said += [str(list(check_landing(open_pipeline(Path("tidefold.yaml")).config)))]
    assert "REGISTRY_UNREADABLE" in said[0]
    assert "its registry answers" in said[1]
    _send(broker, records[:60])
    schema = registry.schemas[10]
    unknown = [{"key": r.key(), "value": b"\0" + (99).to_bytes(4, "big") + r.value()[5:]} for r in records[60:100]]
    broker.send(_TOPIC, unknown)
    for _ in range(2):
        said.append(attempt("run").output)
        assert "SCHEMA_MISSING" in said[-1]
    # What is before the record has landed.
    (landed,) = Path("store/landed/tellers").glob("*.zst")
    assert len(pa.CompressedInputStream(str(landed), "zstd").read().splitlines()) == 60
    registry.schemas[99] = schema
    said.append(call("run").output)
    # What landed needs the registry no more.
    registry.failing = [(401, {}, b"")]
    _send(broker, records[100:])
    said.append(attempt("run").output)
    assert "REGISTRY_UNREADABLE" in said[-1]
    said.append(call("run").output)
    with (AVRO / "pgbench_tellers.csv").open() as truth:
        expected = [
            [int(value) if value.lstrip("-").isdigit() else value or None for value in row] for row in csv.reader(truth)
        ]
    rows = DeltaTable("store/tables/tellers").to_pyarrow_table().to_pylist()
    assert sorted([row[name] for name in ("tid", "bid", "tbalance", "filler")] for row in rows) == expected
    secret = _USER.partition(":")[2]
    assert not [text for text in said if secret in text]
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
