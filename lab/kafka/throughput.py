"""Measures records for each CPU second, from a topic beside landed files: `python -m kafka.throughput RECORDS ROUNDS`.

Records are Debezium's, of about 1 kB as a line, with four headers. Each way runs in a process of its own, one after the
other, and the next round begins again: only ratios within a round count. The broker's time is not counted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.commands import call
from support.kafka_broker import KafkaBroker
from support.kafka_logs import dump

_TOPIC = "shop.public.items"
_HEADERS = {
    "__debezium.context.connectorLogicalName": "shop",
    "__debezium.context.taskId": "0",
    "__debezium.context.connectorName": "postgresql",
    "__debezium.context.runId": "3f0c6d52-8a4e-4c7d-9a55-0d6f0c1b7c11",
}
_WAYS = ("read and throw away", "topic", "files", "packed files")
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["support.commands", "tidefold.operations.ingest.ingest", "confluent_kafka"])


def _make_records(count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    chance = random.Random(0)
    for i in range(count):
        row = {"id": i, "amount": chance.randrange(10**9), "note": f"{chance.getrandbits(400):x}" * 2}
        source = {
            "version": "3.6.1.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1793520000000 + i,
            "ts_us": 1793520000000000 + i, "snapshot": "last" if i == count - 1 else "true", "db": "shop",
            "sequence": '[null,"1000"]', "schema": "public", "table": "items", "txId": 7, "lsn": 1000,
        }  # fmt: skip
        value = {"before": None, "after": row, "source": source, "op": "r", "ts_ms": 1793520000000}
        yield {"id": i}, value


def _configure(folder: Path, place: str) -> None:
    folder.mkdir()
    (folder / "tidefold.yaml").write_text(
        "version: 1\nstore: store\nspark: {above: 80GB}\nlogs:\n  items:\n"
        f"    source: {{format: debezium-json, connector: postgresql, {place}}}\n"
        "    key: [id]\n    columns: {id: long, amount: long, note: string}\n"
    )


def _measure(answer: SimpleQueue[float], servers: str, folder: Path | None) -> None:
    from tidefold.sources.kafka.client import Topic

    before = time.process_time()
    if folder is None:
        topic = Topic(servers, _TOPIC, {})
        ((_, end),) = [(one.first, one.end) for one in topic.describe()[1]]
        for _ in topic.read(0, 0, end):
            pass
    else:
        call("step", "ingest", "-c", str(folder / "tidefold.yaml"))
    answer.put(time.process_time() - before)


def main(count: int, rounds: int) -> int:
    best = dict.fromkeys(_WAYS, float("inf"))
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        (home / "broker").mkdir()
        broker = KafkaBroker(home / "broker")
        try:
            size = _fill(broker, home, count)
            kafka = json.dumps({"servers": broker.servers, "topic": _TOPIC})
            places = {"topic": f"kafka: {kafka}"}
            places |= {way: f"path: {home}/{way.split()[0]}" for way in ("files", "packed files")}
            for number in range(rounds):
                for way in _WAYS:
                    folder = home / f"{way.replace(' ', '-')}{number}" if way in places else None
                    if folder:
                        _configure(folder, places[way])
                    answer: SimpleQueue[float] = _FORKS.SimpleQueue()
                    running = _FORKS.Process(target=_measure, args=(answer, broker.servers, folder))
                    running.start()
                    took = answer.get()
                    running.join()
                    best[way] = min(best[way], took)
                    print(f"round {number}: {way}: {count / took:,.0f} records a CPU second", flush=True)
        finally:
            broker.kill()
    print(f"{count:,} records of {size} B as a line; load {os.getloadavg()[0]:.0f}; the best of {rounds} rounds:")
    for way, took in best.items():
        print(f"{way}: {count / took:,.0f} records a CPU second; the topic has {took / best['topic']:.0%} of it")
    return int(best["topic"] > 2 * best["files"])


def _fill(broker: KafkaBroker, home: Path, count: int) -> int:
    """Sends the records, and lands them as files, plain and packed. Returns how long a line is."""
    broker.create(_TOPIC)
    for name in ("files", "packed"):
        (home / name).mkdir()
    producer, headers = broker.producer(), [{"key": name, "value": value} for name, value in _HEADERS.items()]
    sent = [(name, value.encode()) for name, value in _HEADERS.items()]
    file, lines = f"{_TOPIC}+0+0000000000.jsonl", list[bytes]()
    for offset, (key, value) in enumerate(_make_records(count)):
        producer.produce(_TOPIC, partition=0, key=dump(key), value=dump(value), headers=sent)
        producer.poll(0)
        if offset % 10_000 == 0:
            producer.flush()
        line = {"topic": _TOPIC, "partition": 0, "offset": offset, "timestamp": 0, "key": key, "value": value}
        lines.append(dump({**line, "headers": headers}) or b"")
    producer.flush()
    data = b"\n".join(lines) + b"\n"
    (home / "files" / file).write_bytes(data)
    with pa.CompressedOutputStream(str(home / "packed" / f"{file}.zst"), "zstd") as stream:
        stream.write(data)
    return len(data) // count


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
