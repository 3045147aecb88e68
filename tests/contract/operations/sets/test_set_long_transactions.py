"""A transaction of 10,000 rows that lands over several files and runs: all of it is published, or nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.bank_sets import ENDS, KEYS, LOGS, TOPICS, config, make_bank, read_set, run

ROWS = 2_500  # of each table in the long transaction
SHORT = 3  # transactions of one row of each table before it, and after it


def _make_topics() -> tuple[dict[str, list[bytes]], dict[int, int]]:
    """Returns the records of all topics, and for each position how many rows each table has there."""
    topics: dict[str, list[bytes]] = {name: [] for name in TOPICS}
    sizes, rows, before = {}, 0, 1_000

    def send(name: str, value: dict[str, Any]) -> None:
        record = {"topic": TOPICS[name], "partition": 0, "offset": len(topics[name]), "value": value}
        topics[name].append(json.dumps(record).encode())

    for number, count in enumerate([1] * SHORT + [ROWS] + [1] * SHORT, 1):
        commit = before + 10 * count + 10
        send(ENDS, {"status": "BEGIN", "id": f"{number}:{before + 1}"})
        for order in range(1, count + 1):
            rows += 1
            for log in LOGS:
                names = {"accounts": ("bid", "abalance"), "branches": ("bbalance",), "tellers": ("bid", "tbalance")}
                row = {KEYS[log]: rows, **dict.fromkeys(names.get(log, ("tid", "aid", "delta")), 0)}
                lsn = before + 10 * order
                source = {"version": "3.6.1.Final", "sequence": f'["{before}","{lsn}"]', "snapshot": "false"}
                block = {"id": f"{number}:{lsn}", "total_order": order, "data_collection_order": order}
                send(log, {"before": None, "after": row, "source": source, "op": "c", "transaction": block})
        counts = [{"data_collection": TOPICS[log].removeprefix("bank."), "event_count": count} for log in LOGS]
        send(ENDS, {"status": "END", "id": f"{number}:{commit}", "data_collections": counts})
        sizes[commit] = rows
        before = commit
    return topics, sizes


@pytest.mark.rotates(2)
@pytest.mark.parametrize("seed", range(2))
def test_a_long_transaction_is_published_whole_or_not_at_all(tmp_path: Path, seed: int) -> None:
    topics, sizes = _make_topics()
    rnd, landed = random.Random(seed), dict.fromkeys(TOPICS, 0)
    pipeline = make_bank(tmp_path, config().replace("[history]", f"[{', '.join(LOGS)}]"))
    shown = []
    for number in range(7):
        for name, lines in topics.items():
            first, last = landed[name], len(lines)
            end = last if number == 6 else rnd.randint(first, min(last, first + ROWS // 3))
            if end > first:
                file = tmp_path / "landing" / TOPICS[name] / f"{TOPICS[name]}+0+{first:010d}.jsonl"
                file.write_bytes(b"\n".join(lines[first:end]) + b"\n")
            landed[name] = end
        run(pipeline, f"r{number}")
        version = pipeline.set_ledger("bank").read().published
        if version:
            shown.append(sizes[version.position])
            assert {log: len(rows) for log, rows in read_set(pipeline).items()} == dict.fromkeys(LOGS, shown[-1])
    assert shown[0] <= SHORT
    assert shown[-1] == ROWS + 2 * SHORT
