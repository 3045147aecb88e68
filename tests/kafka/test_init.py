"""`init --kafka` proposes a configuration that runs as it is, and names what it leaves out."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

from support.avro_capture import AVRO, SentRecord, read_topic
from support.commands import attempt, call
from support.kafka_broker import KafkaBroker

_TELLERS = "bank.public.pgbench_tellers"


def _send(broker: KafkaBroker, topic: str, records: list[SentRecord], partition: int = 0) -> None:
    sent = ({"key": one.key(), "value": one.value(), "headers": one.headers() or []} for one in records)
    broker.send(topic, sent, partition)


def test_topics_become_logs_that_run(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    mark = f"i{uuid.uuid4().hex[:8]}"
    tellers, orders, ddl, empty = (f"{mark}.{name}" for name in ("bank.tellers", "shop.orders", "bank", "empty"))
    for topic in (tellers, orders, ddl, empty, f"{mark}.bank.transaction"):
        broker.create(topic, 2 if topic == orders else 1)
    _send(broker, tellers, list(read_topic(_TELLERS)))
    for part in range(2):
        rows = [json.dumps({"id": i, "status": "paid"}).encode() for i in range(part * 1000, part * 1000 + 600)]
        _send(broker, orders, [SentRecord(0, None, row) for row in rows], part)
    _send(broker, ddl, [SentRecord(0, b"{}", b'{"ddl": "create table a", "tableChanges": []}')])
    ask = ("init", "--kafka", broker.servers, "--topics", f"{mark}.*")
    assert "--registry ADDRESS" in attempt(*ask, "--config", "other.yaml").output
    (tmp_path / "schemas").symlink_to(AVRO / "schemas")
    said = attempt(*ask, "--registry", "schemas").output
    left_out = [line for line in said.splitlines() if line.startswith("left out:")]
    assert [line.split(": ")[1] for line in left_out] == [ddl, f"{mark}.bank.transaction", empty]
    sources = {log: entry["source"] for log, entry in yaml.safe_load(Path("tidefold.yaml").read_text())["logs"].items()}
    kafka = {"servers": broker.servers, "topic": orders}
    assert sources["orders"] == {"format": "json", "kafka": kafka}
    avro = {"servers": broker.servers, "registry": "schemas", "topic": tellers}
    assert sources["tellers"] == {"format": "debezium-json", "connector": "postgresql", "kafka": avro}
    assert "warning" not in call("validate").output
    call("run")
    counts = {log: DeltaTable(f"var/store/tables/{log}").to_pyarrow_table().num_rows for log in sources}
    assert counts == {"orders": 1200, "tellers": 10}


def test_the_five_lines_of_the_page(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/how-to/land-files.md").read_text()
    text = page.split("## From a topic")[1].split("```yaml\n")[1].split("```")[0]
    assert text.count("\n") == 5
    Path("tidefold.yaml").write_text(text.replace("broker:9092", broker.servers))
    broker.create("shop.orders")
    _send(broker, "shop.orders", [SentRecord(0, None, b'{"id": 1, "status": "paid"}')])
    call("run")
    assert "paid" in call("read", "orders").output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "INIT_OPTIONS"),
        (("landing", "--kafka", "a:1"), "INIT_OPTIONS"),
        (("--kafka", "user:word@a:1"), "INIT_OPTIONS"),
        (("--kafka", "a:1", "--registry", "http://user:word@a"), "INIT_OPTIONS"),
        (("--kafka", "127.0.0.1:1", "--registry", "nothing"), "REGISTRY_UNREADABLE"),
        (("--kafka", "127.0.0.1:1", "--connection", "nothing"), "CONNECTION_MISSING"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = attempt("init", *words)
    assert done.exit_code
    assert code in done.output
    assert "user:word" not in done.output
    assert not list(tmp_path.iterdir())


def test_no_topic_is_left(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "KAFKA_NO_TOPIC" in attempt("init", "--kafka", broker.servers, "--topics", "nothing*").output
