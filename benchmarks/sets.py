"""What a set costs: four logs of a bank as a set against the same four logs alone.

`make bench-sets` prints a Markdown table and writes it to sets.md. The records have the form of a real
capture (tests/data/bank_transactions), with as many transactions as TRANSACTIONS says.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.bank_sets import BANK, ENDS, KEYS, LOGS, TOPICS, config, make_bank, run
from support.counted import counting
from tables import HEAD, Row, folder, machine, ratios, seconds, write_page
from tidefold.operations.ground.pipeline import Pipeline

TRANSACTIONS = int(os.environ.get("TRANSACTIONS", "20000"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PARTS = ("first run, half of the records", "second run, the other half", "run without news")
_CALLS = ("get", "range", "put", "list", "link", "delete", "files opened")
_FIRST_LSN = 10_000_000


@dataclass
class MadeBank:
    """Lines of all topics. half: how many lines of each one land first."""

    lines: dict[str, list[bytes]] = field(default_factory=lambda: {name: [] for name in TOPICS})
    half: dict[str, int] = field(default_factory=dict)

    @property
    def changes(self) -> int:
        return sum(len(self.lines[log]) for log in LOGS)


def make_records(transactions: int) -> MadeBank:
    """Returns a bank in which each transaction changes one row of each table."""
    rnd, bank = random.Random(24), MadeBank()
    forms = {log: _find_form(log) for log in LOGS}
    for i in range(transactions):
        if i == transactions // 2:
            bank.half = {name: len(lines) for name, lines in bank.lines.items()}
        commit = _FIRST_LSN + 1_000 * (i + 1)
        account, teller = rnd.randrange(100_000), rnd.randrange(1_000)
        rows = {
            "accounts": {"aid": account, "bid": account % 100, "abalance": i},
            "branches": {"bid": teller % 100, "bbalance": i},
            "tellers": {"tid": teller, "bid": teller % 100, "tbalance": i},
            "history": {"hid": i, "tid": teller, "aid": account, "delta": 1},
        }
        for number, log in enumerate(LOGS, 1):
            value, lsn = forms[log], commit - 900 + 10 * number
            value["after"], value["op"] = rows[log], "c" if log == "history" else "u"
            value["source"] |= {"sequence": f'["{commit - 1_000}","{lsn}"]', "lsn": lsn, "txId": i}
            value["transaction"] = {"id": f"{i}:{lsn}", "total_order": number, "data_collection_order": 1}
            _add(bank, log, {KEYS[log]: rows[log][KEYS[log]]}, value)
        counts = [{"data_collection": f"public.{log}", "event_count": 1} for log in LOGS]
        for status in ("BEGIN", "END"):
            marker = {"status": status, "id": f"{i}:{commit}", "event_count": 4, "data_collections": counts}
            _add(bank, ENDS, {"id": marker["id"]}, marker)
    return bank


def _find_form(log: str) -> dict[str, Any]:
    """Returns a streamed change of the capture."""
    values = (json.loads(line)["value"] for line in BANK.list_lines(log))
    return deepcopy(next(value for value in values if value and value["transaction"]))


def _add(bank: MadeBank, name: str, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    lines = bank.lines[name]
    record = {"topic": TOPICS[name], "partition": 0, "offset": len(lines), "key": key, "value": value}
    lines.append(json.dumps(record).encode() + b"\n")


def _land(root: Path, bank: MadeBank, begin: Mapping[str, int], end: Mapping[str, int]) -> None:
    for name, lines in bank.lines.items():
        first = begin.get(name, 0)
        path = root / "landing" / TOPICS[name] / f"{TOPICS[name]}+0+{first:010d}.jsonl"
        path.write_bytes(b"".join(lines[first : end[name]]))


def measure(bank: MadeBank, text: str) -> list[tuple[float, int]]:
    """Returns seconds and store calls of the three runs."""
    ends = {name: len(lines) for name, lines in bank.lines.items()}
    steps: list[Callable[[Path], None]] = [
        lambda root: _land(root, bank, {}, bank.half),
        lambda root: _land(root, bank, bank.half, ends),
        lambda root: None,
    ]
    found = []
    with folder() as root, counting() as counts:
        pipeline = make_bank(root, text)
        for number, land in enumerate(steps):
            land(root)
            before = sum(counts[call] for call in _CALLS)
            took = seconds(lambda: run(pipeline, f"r{number}"))  # noqa: B023 - it runs at once.
            found.append((took, sum(counts[call] for call in _CALLS) - before))
        if "sets:" in text:
            _require_end(pipeline, len(bank.lines[ENDS]) // 2)
    return found


def _require_end(pipeline: Pipeline, transactions: int) -> None:
    published = pipeline.set_ledger("bank").read().published
    assert published is not None
    assert published.position == _FIRST_LSN + 1_000 * transactions


def main() -> None:
    bank = make_records(TRANSACTIONS)
    text = config().replace("    equal_sums: [[branches.bbalance, tellers.tbalance]]\n", "")
    text = text.replace("may_be_empty: [history]", f"may_be_empty: [{', '.join(LOGS)}]")
    ways = {"alone": text.partition("sets:")[0], "set": text}
    found: dict[str, list[list[tuple[float, int]]]] = {way: [] for way in ways}
    for warming in ways.values():
        measure(make_records(10), warming)
    for number in range(ROUNDS):
        for way in sorted(ways, reverse=bool(number % 2)):
            found[way].append(measure(bank, ways[way]))
    rows = []
    for at, part in enumerate(PARTS):
        alone, of_set = ([one[at] for one in found[way]] for way in ("alone", "set"))
        rows += [
            Row(f"{part}: four logs alone", [took for took, _ in alone], "s"),
            Row("... as a set", [took for took, _ in of_set], "s"),
            Row("... ratio", ratios([took for took, _ in of_set], [took for took, _ in alone]), "x"),
            Row("... store calls alone", [calls for _, calls in alone], "calls"),
            Row("... store calls as a set", [calls for _, calls in of_set], "calls"),
        ]
    head = [
        "# What a set costs",
        "",
        "Written by `make bench-sets` (benchmarks/sets.py): four logs of a bank as a set, against the same logs alone.",
        f"{bank.changes:,} changes in {TRANSACTIONS:,} transactions. A local disk, no JVM, the order of both ways",
        f"rotates. {machine()}",
        "",
        "The set decodes new records once more to find its point, and reads the transaction topic. It reads and writes",
        "its own ledger. A run is ingest, fold, a verdict for each log, and confirm.",
        "",
        *HEAD,
    ]
    write_page("sets.md", [*head, *(row.text for row in rows)])


if __name__ == "__main__":
    main()
