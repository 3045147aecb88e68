"""Cuts tests/data/bank from the full capture. Run by hand: python scripts/cut_sample.py SOURCE tests/data/bank

SOURCE has `topics/TOPIC/*.jsonl.gz`, `truth/phaseN/TABLE.csv.gz` and `phases.json`. Lines are kept or left out whole,
never edited; tests/data/bank/README.md says which. At the end a plain replay checks every phase against its truth.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PREFIX = "bank.public."
KEYS = {"pgbench_accounts": "aid", "pgbench_branches": "bid", "pgbench_tellers": "tid"}
# This one has no key; its rows are kept by their `aid`, which is the third column.
KEYLESS, AID = "pgbench_history", 2
ACCOUNTS, TELLERS = 5000, 5
Record = dict[str, Any]
Keep = Callable[[Record], bool]


def records_of(file: Path) -> Iterator[tuple[bytes, Record]]:
    with gzip.open(file) as lines:
        for line in lines:
            yield line, json.loads(line)


def find_changed_accounts(files: list[Path]) -> set[int]:
    """Returns every account whose key was changed, under all keys that it had."""
    keys: set[int] = set()
    for file in files:
        for _, record in records_of(file):
            others = [
                h["value"]["aid"] for h in record["headers"] if h["key"] in ("__debezium.newkey", "__debezium.oldkey")
            ]
            keys |= {record["key"]["aid"], *others} if others else set()
    return keys


def rule_for(table: str, files: list[Path], last: list[int]) -> tuple[Keep, Callable[[int], bool]]:
    """Which records to keep, and which rows of the truth."""
    if table == "pgbench_accounts":
        chosen = find_changed_accounts(files) | set(range(1, ACCOUNTS + 1))
        return lambda record: record["key"]["aid"] in chosen, lambda key: key in chosen
    if table == "pgbench_tellers":
        return lambda record: record["key"]["tid"] <= TELLERS, lambda key: key <= TELLERS
    if table == KEYLESS:
        return lambda record: record["value"]["after"]["aid"] % 10 == 0, lambda aid: aid % 10 == 0
    return (
        lambda record: record["value"]["source"]["txId"] % 10 == 0 or record["offset"] in (0, *last),
        lambda key: True,
    )


def compress(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)


def cut_file(file: Path, keep: Keep, last: list[int], out: Path) -> None:
    """Writes the kept lines under the name of the first one's offset, into the folder of their phase."""
    kept = [(line, record) for line, record in records_of(file) if keep(record)]
    if not kept:
        return
    offsets = [record["offset"] for _, record in kept]
    phase = 1 + sum(offsets[0] > end for end in last)
    assert phase == 1 + sum(offsets[-1] > end for end in last), "a file lies in one phase"
    topic = file.parent.name
    target = out / "landing" / f"phase{phase}" / topic / f"{topic}+0+{offsets[0]:010d}.jsonl.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(compress(b"".join(line for line, _ in kept)))


def cut_truth(source: Path, table: str, wanted: Callable[[int], bool], out: Path) -> None:
    for phase in (1, 2, 3):
        with gzip.open(source / "truth" / f"phase{phase}" / f"{table}.csv.gz", "rb") as lines:
            # No value before the key holds a comma and none a line end, so that lines can be kept as they are.
            head, *rows = lines.readlines()
        column = AID if table == KEYLESS else 0
        kept = [row for row in rows if wanted(int(row.split(b",")[column]))]
        target = out / "truth" / f"phase{phase}" / f"{table}.csv.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(compress(head + b"".join(kept)))


def check(out: Path, table: str) -> None:
    """Replays the sample into a dictionary, in offset order, and compares each phase with its truth."""
    rows: dict[int, dict[str, Any]] = {}
    for phase in (1, 2, 3):
        for file in sorted((out / "landing" / f"phase{phase}" / f"{PREFIX}{table}").glob("*.gz")):
            for _, record in records_of(file):
                key, value = record["key"][KEYS[table]], record["value"]
                if value and value["op"] != "d":
                    rows[key] = value["after"]
                else:
                    rows.pop(key, None)
        with gzip.open(out / "truth" / f"phase{phase}" / f"{table}.csv.gz") as raw:
            truth = {int(row[KEYS[table]]): row for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8"))}
        mine = {key: {n: "" if v is None else str(v) for n, v in row.items()} for key, row in rows.items()}
        assert mine == truth, f"{table} differs in phase {phase}"
        print(f"{table} phase {phase}: {len(truth)} rows, as in the truth")


def check_keyless(out: Path) -> None:
    """The same for the table without a key: here each row has a log position of its own, also when it came again."""
    rows: dict[int, dict[str, Any]] = {}
    for phase in (1, 2, 3):
        for file in sorted((out / "landing" / f"phase{phase}" / f"{PREFIX}{KEYLESS}").glob("*.gz")):
            rows |= {record["value"]["source"]["lsn"]: record["value"]["after"] for _, record in records_of(file)}
        with gzip.open(out / "truth" / f"phase{phase}" / f"{KEYLESS}.csv.gz") as raw:
            truth = Counter(
                (row["tid"], row["bid"], row["aid"], row["delta"])
                for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8"))
            )
        mine = Counter(tuple(str(row[n]) for n in ("tid", "bid", "aid", "delta")) for row in rows.values())
        assert mine == truth, f"{KEYLESS} differs in phase {phase}"
        print(f"{KEYLESS} phase {phase}: {truth.total()} rows, as in the truth")


def main(source: Path, out: Path) -> None:
    ends = json.loads((source / "phases.json").read_text())["phases"]
    for folder in ("landing", "truth"):
        shutil.rmtree(out / folder, ignore_errors=True)
    for table in (*KEYS, KEYLESS):
        topic = f"{PREFIX}{table}"
        last = [phase["last_offset"].get(topic, -1) for phase in ends]
        files = sorted((source / "topics" / topic).glob("*.jsonl.gz"))
        keep, wanted = rule_for(table, files, last)
        for file in files:
            cut_file(file, keep, last, out)
        cut_truth(source, table, wanted, out)
        if table in KEYS:
            check(out, table)
    check_keyless(out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
