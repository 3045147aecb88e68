"""The captured bank of a real MariaDB: lands parts of it, and compares a set with a naive replay of the binlog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from support import bank_sets
from support.bank_sets import ENDS, KEYS, LOGS, read_set
from support.captured_bank import CapturedBank
from tidefold.operations.ground.pipeline import Pipeline

TOPICS = {**{log: f"bank.bank.{log}" for log in LOGS}, ENDS: "bank.transaction"}
BANK = CapturedBank(Path(__file__).parents[1] / "data" / "bank_mariadb", TOPICS)
land, count_records = BANK.land, BANK.count_records
ACCOUNTS, BALANCE = 300, 1_000
Rows = Mapping[str, Mapping[int, Mapping[str, Any]]]


def config(sets: str = bank_sets.SET, kind: str = "full") -> str:
    text = bank_sets.config(sets, kind)
    return text.replace("postgresql", "mariadb").replace("bank.public", "bank.bank")


def make_bank(folder: Path, text: str | None = None) -> Pipeline:
    return BANK.make(folder, config() if text is None else text)


def list_transactions() -> list[str]:
    """Returns the ids of all transactions, in the order in which their ENDs came first."""
    markers = (json.loads(line)["value"] for line in BANK.list_lines(ENDS))
    return list(dict.fromkeys(one["id"] for one in markers if one["status"] == "END"))


@cache
def replay() -> dict[str, dict[str, dict[int, dict[str, Any]]]]:
    """Returns the rows of all tables after each transaction; after the initial snapshot under an empty id."""
    tables: dict[str, dict[int, dict[str, Any]]] = {log: {} for log in LOGS}
    changes: dict[str, dict[tuple[Any, ...], tuple[str, Any]]] = {}
    for log in LOGS:
        for value in (json.loads(line)["value"] for line in BANK.list_lines(log)):
            if value and value["transaction"]:
                source = value["source"]
                place = (source["file"], source["pos"], source["row"], value["op"])
                changes.setdefault(value["transaction"]["id"], {})[place] = (log, value)
            elif value and value["source"]["snapshot"] != "incremental":
                tables[log][value["after"][KEYS[log]]] = value["after"]
    found = {"": {log: dict(rows) for log, rows in tables.items()}}
    for transaction in list_transactions():
        for _, (log, value) in sorted(changes.get(transaction, {}).items()):
            if value["op"] == "d":
                tables[log].pop(value["before"][KEYS[log]], None)
            else:
                tables[log][value["after"][KEYS[log]]] = value["after"]
        found[transaction] = {log: dict(rows) for log, rows in tables.items()}
    return found


def count_violations(rows: Rows) -> int:
    """Returns how many facts about the bank do not hold: its total, the sum of each branch, and each reference."""
    total = sum(account["abalance"] for account in rows["accounts"].values())
    wrong = int(total != ACCOUNTS * BALANCE) if rows["accounts"] else 0
    wrong += bank_sets.count_violations(rows)
    for entry in rows["history"].values():
        wrong += (entry["aid"] not in rows["accounts"]) + (entry["tid"] not in rows["tellers"])
    return wrong


def check_bank(pipeline: Pipeline) -> str | None:
    """Requires that readers of the set see one point, exactly; returns its transaction, None: nothing is published."""
    version = pipeline.set_ledger("bank").read().published
    if version is None:
        return None
    rows = read_set(pipeline)
    assert count_violations(rows) == 0
    assert rows == replay()[version.transaction]
    return version.transaction
