"""Kills ingests of a topic, and its broker, at random: `python -m kafka SEEDS`. Rows and landed lines stay whole.

Needs the jars of `make kafka-jars`, and confluent-kafka.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from support.kafka_broker import KafkaBroker
from support.kafka_logs import TopicLog

_ROOT = Path(__file__).parents[2]
_RECORDS, _PARTITIONS, _MOST_KILLS = 20_000, 2, 6


def main(seeds: int) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "broker").mkdir()
        broker = KafkaBroker(Path(scratch) / "broker")
        try:
            for seed in range(seeds):
                folder = Path(scratch) / str(seed)
                folder.mkdir()
                why = _play(broker, folder, random.Random(seed))
                print(f"seed {seed}: {why or 'equal'}", flush=True)
                failed += bool(why) and "unequal" in why
        finally:
            broker.kill()
    return int(failed > 0)


def _play(broker: KafkaBroker, folder: Path, chance: random.Random) -> str:
    """Returns what was killed how often; with the word unequal if rows or landed lines are not those of the topic."""
    log = TopicLog(broker, folder)
    broker.create(log.topic, _PARTITIONS)
    log.configure(max_records=chance.choice([3_000, 10_000_000]))
    for partition in range(_PARTITIONS):
        log.send_transaction(range(50), commits=False)
        log.send(range(partition * _RECORDS, (partition + 1) * _RECORDS), partition=partition)
    kills = {"ingest": 0, "broker": 0}
    for _ in range(60):
        is_last = sum(kills.values()) >= _MOST_KILLS
        running = _start(folder, "step", "ingest")
        try:
            said, _ = running.communicate(timeout=None if is_last else chance.uniform(0.8, 4.0))
            if running.returncode == 0 and "nothing new" in said:
                break
        except subprocess.TimeoutExpired:
            what = chance.choice(["ingest", "ingest", "broker"])
            kills[what] += 1
            if what == "broker":
                broker.kill()
                running.communicate()
                broker.start()
            else:
                running.kill()
                running.communicate()
    published = _start(folder, "run")
    said, _ = published.communicate()
    places = [(line["partition"], line["offset"]) for line in map(json.loads, log.read_landed())]
    rows = log.read_rows() if published.returncode == 0 else {}
    is_equal = rows.keys() == set(range(_PARTITIONS * _RECORDS)) and len(places) == len(set(places)) == len(rows)
    return (
        f"{kills['ingest']} ingests and {kills['broker']} brokers killed: {'equal' if is_equal else f'unequal: {said}'}"
    )


def _start(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tidefold.cli", *words, "-c", str(folder / "tidefold.yaml")]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, text=True, stdout=pipe, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
