"""A set whose logs and transactions come from topics: it publishes points of the source, and holds when one is lost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.bank_sets import BANK, ENDS, KEYS, TOPICS, config, count_until, land, replay
from support.commands import attempt, call
from support.kafka_broker import KafkaBroker
from support.kafka_logs import dump
from tidefold.operations.sets.read import find_tables
from tidefold.operations.sets.status import read_set_status
from tidefold.wiring import open_pipeline

_LOGS = ("branches", "tellers", "history")
_POSITIONS = sorted(replay().rows)


class BankTopics:
    """The topics of three tables of the captured bank, and of their transactions."""

    def __init__(self, broker: KafkaBroker, folder: Path) -> None:
        self.broker, self.folder, self.prefix = broker, folder, f"bank{uuid.uuid4().hex[:8]}"
        self.sent = dict.fromkeys((*_LOGS, ENDS), 0)
        for name in self.sent:
            broker.create(self.name(name))

    def name(self, log: str) -> str:
        return TOPICS[log].replace("bank", self.prefix, 1)

    def configure(self, path: str = "") -> None:
        """Configures the topics; path: which of them land in folders instead, as `all` or `transactions`."""
        text = "version: 1\nstore: store\nspark: {above: 8GB}\n" + config("").partition("\n")[2].partition("\n")[2]
        for log in _LOGS:
            landed = f"path: landing/{TOPICS[log]}"
            text = text.replace(landed, landed if path == "all" else self._place(log))
        head, _, rest = text.partition("  accounts:\n")
        text = head + "  branches:\n" + rest.partition("  branches:\n")[2]
        place = f"transactions: landing/{TOPICS[ENDS]}" if path else self._place(ENDS)
        text += f"sets:\n  bank:\n    logs: [{', '.join(_LOGS)}]\n    may_be_empty: [history]\n    {place}\n"
        (self.folder / "tidefold.yaml").write_text(text)

    def _place(self, name: str) -> str:
        return f"kafka: {{servers: '{self.broker.servers}', topic: {self.name(name)}}}"

    def send(self, upto: Mapping[str, int], batch: int = 0) -> None:
        """Sends the records up to these numbers. batch: in transactions of so many; another is aborted before each."""
        for name, before in self.sent.items():
            records = [json.loads(line) for line in BANK.list_lines(name)[before : upto[name]]]
            self.sent[name] = max(before, upto[name])
            sent = [{"key": dump(r["key"]), "value": dump(r["value"])} for r in records]
            if batch:
                self._send_in_transactions(self.name(name), sent, batch)
            else:
                self.broker.send(self.name(name), sent)

    def _send_in_transactions(self, topic: str, records: list[dict[str, bytes | None]], batch: int) -> None:
        producer = self.broker.producer(**{"transactional.id": uuid.uuid4().hex})
        producer.init_transactions()
        for at in range(0, len(records), batch):
            for end in (producer.abort_transaction, producer.commit_transaction):
                producer.begin_transaction()
                for record in records[at : at + batch]:
                    producer.produce(topic, partition=0, **record)
                producer.flush()
                end()
        self.broker.settle(topic)

    def read_point(self) -> int | None:
        """Returns the position of the published version, whose rows are those of the source."""
        pipeline = open_pipeline(self.folder / "tidefold.yaml")
        version = pipeline.set_ledger("bank").read().published
        if version is None:
            return None
        found: dict[str, dict[int, Any]] = {log: {} for log in _LOGS}
        for log, one in find_tables(pipeline, "bank").items():
            rows = DeltaTable(one.address, version=one.version).to_pyarrow_table().to_pylist()
            found[log] = {row[KEYS[log]]: row for row in rows}
        assert found == {log: replay().rows[version.position][log] for log in _LOGS}
        return version.position

    def list_waits(self) -> list[str]:
        pipeline = open_pipeline(self.folder / "tidefold.yaml")
        return [one.why for one in read_set_status(pipeline, pipeline.config.sets["bank"], ()).waits]


@pytest.fixture
def bank(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BankTopics:
    monkeypatch.chdir(tmp_path)
    made = BankTopics(broker, tmp_path)
    made.configure()
    return made


def test_offsets_without_a_record_hold_no_set(bank: BankTopics) -> None:
    """Exactly-once connectors write in transactions: their marks, and aborted records, have offsets, too."""
    upto = count_until(_POSITIONS[12])
    bank.send({**upto, "tellers": upto["tellers"] - 3}, batch=60)
    print(call("run", code=None).output)
    first = bank.read_point()
    assert first is not None
    assert _POSITIONS[0] < first < _POSITIONS[12], bank.list_waits()
    bank.send(upto, batch=60)
    call("run")
    assert bank.read_point() == _POSITIONS[12]
    assert call("step", "ingest").output.count("nothing new") == len(_LOGS)


def test_files_then_topics(bank: BankTopics) -> None:
    upto = count_until(_POSITIONS[9])
    for topic in TOPICS.values():
        (bank.folder / "landing" / topic).mkdir(parents=True)
    land(bank.folder, upto)
    for file in (bank.folder / "landing").glob("*/*"):
        text = file.read_bytes().replace(b'"topic":"bank.', f'"topic":"{bank.prefix}.'.encode())
        (file.parent / file.name.replace("bank", bank.prefix, 1)).write_bytes(text)
        file.unlink()
    bank.configure("all")
    call("run")
    assert bank.read_point() == _POSITIONS[9]
    later = count_until(_POSITIONS[15])
    bank.send(later)
    bank.configure()
    call("step", "ingest", "--own")
    call("run")
    assert bank.read_point() == _POSITIONS[15]
    begin = f"{upto[ENDS]:010d}"
    assert [file.name for file in (bank.folder / "store/landed/set/bank").glob("*.zst")] == [
        f"{bank.name(ENDS)}+0+{begin}.jsonl.zst"
    ]
    assert bank.list_waits() == []


def test_clean_deletes_transactions_before_the_point(bank: BankTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were kept for ever, whatever `retention.landed` said."""
    from tidefold.operations.retention import clean

    file = bank.folder / "tidefold.yaml"
    file.write_text(file.read_text().replace("logs:", "retention: {landed: 30d}\nlogs:", 1))
    for at in (4, 6, 9):
        bank.send(count_until(_POSITIONS[at]))
        call("run")
    landed = bank.folder / "store/landed/set/bank"
    files = sorted(landed.glob("*.zst"))
    assert len(files) == 3
    call("retain", "clean")
    assert sorted(landed.glob("*.zst")) == files
    monkeypatch.setattr(clean, "now", lambda: "2100-01-01T00:00:00+00:00")
    call("retain", "clean")
    assert sorted(landed.glob("*.zst")) == files[2:]
    bank.send(count_until(_POSITIONS[12]))
    call("run")
    assert bank.read_point() == _POSITIONS[12]
    assert bank.list_waits() == []


def test_lost_transactions_hold_the_set(bank: BankTopics) -> None:
    upto = count_until(_POSITIONS[6])
    bank.send(upto)
    call("run")
    bank.send(count_until(_POSITIONS[9]))
    bank.broker.forget(bank.name(ENDS), upto[ENDS] + 2)
    said = attempt("run").output
    assert "KAFKA_GAP" in said
    assert "under another name" in said
    assert bank.read_point() == _POSITIONS[6]
    assert "KAFKA_NO_GAP" in attempt("step", "ingest", "--accept-gap", "never mind").output


def test_a_transaction_topic_may_have_forgotten_what_the_snapshot_contains(bank: BankTopics) -> None:
    end = json.loads(BANK.list_lines(ENDS)[1])["value"]
    earlier = [{"key": None, "value": dump({**end, "id": f"7:{position}"})} for position in (1000, 2000, 3000)]
    bank.broker.send(bank.name(ENDS), earlier)
    upto = count_until(_POSITIONS[6])
    bank.send(upto)
    bank.broker.forget(bank.name(ENDS), 2)
    call("run")
    assert bank.read_point() == _POSITIONS[6], bank.list_waits()


def test_a_transaction_topic_that_forgot_more_is_named(bank: BankTopics) -> None:
    bank.send(count_until(_POSITIONS[6]))
    bank.broker.forget(bank.name(ENDS), 2)
    call("run", code=None)
    assert bank.read_point() == _POSITIONS[0]
    assert "the records at offsets 0 to 1 have not landed, and later ones have" in bank.list_waits()
    call("run", code=None)
    assert bank.read_point() == _POSITIONS[0]
