"""Replays captures of the torture rig into a broker: `python -m kafka.replay FOLDER...`, and kills what reads them.

A folder is that of a seed which `TORTURE_KEEP=1 make torture` kept. Its records land twice: as files, undisturbed, and
in topics, in pieces, with aborted transactions between them, while runs, the broker and Spark are killed. Some seeds
begin with files, others end with files. Rows and counts must be equal.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import yaml
from deltalake import DeltaTable

from support.commands import attempt
from support.kafka_broker import KafkaBroker
from tidefold.wiring import open_pipeline

_COUNTS = ("records", "changes", "tombstones", "quarantined", "resent", "ignored")
_FORMS = ("topics", "files, then topics", "topics", "topics, then files", "topics on Spark")
_PIECES, _KILLS = 3, 3


# Each process begins with all that is imported here, so that a kill meets the work and not the start.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["support.commands", "tidefold.spark.steps", "confluent_kafka"])


class _Record(msgspec.Struct):
    key: msgspec.Raw
    value: msgspec.Raw
    headers: list[dict[str, Any]] = []


class Store:
    """A folder with a configuration of the seed's logs. places: the `source` of each log, and that of the set."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True)
        self.folder, self.config, self.path = folder, json.loads(json.dumps(config)), folder / "tidefold.yaml"

    def place(self, places: Mapping[str, dict[str, Any]], transactions: dict[str, Any]) -> None:
        for log, place in places.items():
            source = self.config["logs"][log]["source"]
            for name in ("path", "kafka"):
                source.pop(name, None)
            source.update(place)
        for one in self.config.get("sets", {}).values():
            for name in ("transactions", "kafka"):
                one.pop(name, None)
            one.update(transactions)
        self.path.write_text(yaml.safe_dump(self.config))

    def start(self, *words: str) -> BaseProcess:
        running = _FORKS.Process(target=_call, args=(*words, "-c", str(self.path)))
        running.start()
        return running

    def settle(self) -> str:
        """Runs until a run changes nothing; returns what it said."""
        before, done = None, ""
        for _ in range(8):
            done = attempt("run", "-c", str(self.path)).output
            if before == (before := self.read()):
                break
        return done

    def read(self) -> dict[str, tuple[Counter[str], Counter[str]]]:
        """Returns the rows and the counts of each log."""
        pipeline, found = open_pipeline(self.path), {}
        for log in self.config["logs"]:
            table, state = self.folder / "store" / "tables" / log, pipeline.ledger(log).find()
            rows = DeltaTable(table).to_pyarrow_table().to_pylist() if (table / "_delta_log").exists() else []
            counts = Counter[str]()
            for entry in state.landed if state else ():
                counts.update({name: getattr(entry, name) for name in _COUNTS})
            found[log] = Counter(repr(sorted(row.items())) for row in rows), counts
        return found


class Replay:
    """The capture of one seed."""

    def __init__(self, broker: KafkaBroker, seed: Path, folder: Path, number: int) -> None:
        self.broker, self.captured, self.chance = broker, seed / "captured", random.Random(number)
        self.form, self.number, self.folder = _FORMS[number % len(_FORMS)], number, folder
        config = yaml.safe_load((seed / "tidefold.yaml").read_text())
        self.topics = {log: Path(entry["source"]["path"]).name for log, entry in config["logs"].items()}
        self.topics = {log: topic for log, topic in self.topics.items() if (self.captured / topic).is_dir()}
        logs = {log: config["logs"][log] for log in self.topics}
        for entry in logs.values():
            for name in ("record", "names", "files"):  # What landed may have been the values alone.
                entry["source"].pop(name, None)
        self.config: dict[str, Any] = {"version": 1, "store": "store", "spark": {"above": "8GB"}, "logs": logs}
        self.transactions = ""
        for name, one in config.get("sets", {}).items():
            self.transactions = Path(one["transactions"]).name
            own = {"logs": [log for log in one["logs"] if log in logs], "may_be_empty": one.get("may_be_empty", [])}
            self.config["sets"] = {name: own}
        self.lines = {topic: self._read(topic) for topic in (*self.topics.values(), self.transactions) if topic}
        self.kills = Counter[str]()

    def _read(self, topic: str) -> list[bytes]:
        files = sorted((self.captured / topic).glob("*.jsonl"))
        return [line for file in files for line in file.read_bytes().splitlines()]

    def name(self, topic: str) -> str:
        return f"r{self.number}{topic}"

    def play(self) -> str:
        """Returns what differs; empty: nothing."""
        whole = Store(self.folder / "files", self.config)
        whole.place(*self._list_folders(whole))
        for piece in range(_PIECES):  # What is known of a key depends on what came before, so the pieces are the same.
            self._land(whole, piece / _PIECES, (piece + 1) / _PIECES)
            attempt("run", "-c", str(whole.path))
        said = whole.settle()
        store = Store(self.folder / "topics", self.config)
        if self.form == "topics on Spark":
            store.config["spark"] = {"above": "0B", "driver_memory": "1g"}
        for topic in self.lines:
            self.broker.create(self.name(topic))
        self._deliver(store)
        told = store.settle()
        expected, got = whole.read(), store.read()
        different = [log for log in expected if expected[log] != got[log]]
        lines = [f"{log}: {_describe(expected[log], got[log])}" for log in different]
        return "\n".join([*lines, said[-1500:], told[-1500:]]) if different else ""

    def _deliver(self, store: Store) -> None:
        """Lets the records come in pieces."""
        for piece in range(_PIECES):
            by_files = self.form == ("files, then topics", "", "topics, then files")[piece]
            if by_files:
                self._land(store, piece / _PIECES, (piece + 1) / _PIECES)
            # The topic has what landed as files, too, so that offsets are the same.
            self._send(piece / _PIECES, (piece + 1) / _PIECES)
            store.place(*(self._list_folders(store) if by_files else self._list_topics()))
            if piece == (1 if self.form.startswith("files") else 2):
                self._move(store)
            if piece and self.form.startswith(("files, then", "topics, then")):
                attempt("step", "ingest", "--own", "-c", str(store.path))
            self._disturb(store)

    def _move(self, store: Store) -> None:
        """Takes what landed to where the next files are: later records of a transaction may need it."""
        for log, topic in self.topics.items():
            folders = [store.folder / "landing" / self.name(topic), store.folder / "store" / "landed" / log]
            if "files" in self.form:
                source, target = folders if self.form.startswith("files") else folders[::-1]
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("_topic"), dirs_exist_ok=True)

    def _land(self, store: Store, begin: float, end: float) -> None:
        for topic, lines in self.lines.items():
            first, last = int(len(lines) * begin), int(len(lines) * end)
            folder = store.folder / "landing" / self.name(topic)
            folder.mkdir(parents=True, exist_ok=True)
            renamed = (re.sub(rb'^\{"topic":"', b'{"topic":"r%d' % self.number, line) for line in lines[first:last])
            if last > first:
                (folder / f"{self.name(topic)}+0+{first:010d}.jsonl").write_bytes(b"\n".join(renamed) + b"\n")

    def _send(self, begin: float, end: float) -> None:
        for topic, lines in self.lines.items():
            name, sent = self.name(topic), lines[int(len(lines) * begin) : int(len(lines) * end)]
            records = [_as_sent(line) for line in sent]
            if self.form.startswith("topics") and "files" not in self.form:
                producer = self.broker.producer(**{"transactional.id": f"{name}{begin}"})
                producer.init_transactions()
                for ends in (producer.abort_transaction, producer.commit_transaction):
                    producer.begin_transaction()
                    for record in records if ends == producer.commit_transaction else records[:5]:
                        producer.produce(name, partition=0, **record)
                    producer.flush()
                    ends()
                self.broker.settle(name)
            else:
                self.broker.send(name, records)

    def _list_folders(self, store: Store) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        at = {topic: str(store.folder / "landing" / self.name(topic)) for topic in self.lines}
        places = {log: {"path": at[topic]} for log, topic in self.topics.items()}
        return places, {"transactions": at.get(self.transactions)}

    def _list_topics(self) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        def at(topic: str) -> dict[str, Any]:
            return {"kafka": {"servers": self.broker.servers, "topic": self.name(topic), "max_records": most}}

        most = self.chance.choice([2_000, 10_000_000])
        return {log: at(topic) for log, topic in self.topics.items()}, at(self.transactions)

    def _disturb(self, store: Store) -> None:
        """Ingests until an ingest is not killed; the last one publishes, too."""
        for _ in range(_KILLS):
            running, what = store.start("step", "ingest"), self.chance.choice(["ingest", "ingest", "broker", "Spark"])
            running.join(self.chance.uniform(0.5, 40.0 if "Spark" in self.form else 12.0))
            if not running.is_alive():
                break
            if what == "broker":
                self.broker.kill()
                running.join()
                self.broker.start()
            elif what == "ingest" or not _kill_java(running.pid or 0):
                what = "ingest"
                os.killpg(running.pid or 0, signal.SIGKILL)
            running.join()
            self.kills[what] += 1
        attempt("run", "-c", str(store.path))


def _call(*words: str) -> None:
    os.setsid()
    sys.exit(attempt(*words).exit_code)


def _kill_java(above: int) -> bool:
    """Kills the JVM that a process started; False: it has none."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = stat.read_text().rpartition(")")[0], stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(rest[1]), name.endswith("(java")
    for pid, (parent, is_java) in parents.items():
        while is_java and parent in parents and parent != above:
            parent = parents[parent][0]
        if is_java and parent == above:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def _as_sent(line: bytes) -> dict[str, Any]:
    record = msgspec.json.decode(line, type=_Record)
    key, value = (None if bytes(raw) == b"null" else bytes(raw) for raw in (record.key, record.value))
    headers = [(h["key"], h["value"] if h["value"] is None else _spell(h["value"])) for h in record.headers]
    return {"key": key, "value": value, "headers": headers}


def _spell(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _describe(expected: tuple[Counter[str], Counter[str]], got: tuple[Counter[str], Counter[str]]) -> str:
    rows = f"{(expected[0] - got[0]).total()} rows are missing, {(got[0] - expected[0]).total()} too many"
    first = next(iter((expected[0] - got[0]) + (got[0] - expected[0])), "")
    return f"{rows}; counts {dict(expected[1])} became {dict(got[1])}; {first[:300]}"


def main(seeds: Sequence[str]) -> int:
    unequal = 0
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "broker").mkdir()
        broker = KafkaBroker(Path(scratch) / "broker")
        try:
            for number, seed in enumerate(map(Path, seeds)):
                began = time.monotonic()
                replay = Replay(broker, seed.resolve(), Path(scratch) / str(number), number)
                why = replay.play()
                records, kills = sum(map(len, replay.lines.values())), dict(replay.kills)
                of_set = ", a set" if replay.transactions else ""
                said = f"{records:,} records of {len(replay.lines)} topics{of_set}, {replay.form}; killed: {kills}"
                took = f"{time.monotonic() - began:.0f} s"
                print(f"{seed.name}: {'UNEQUAL' if why else 'equal'}: {said}; {took}\n{why}".rstrip(), flush=True)
                unequal += bool(why)
        finally:
            broker.kill()
    print(f"{len(seeds)} seeds, {unequal} unequal")
    return int(unequal > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
