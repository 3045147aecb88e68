"""The captured bank with transaction metadata: lands parts of it, runs a set, and compares with a naive replay."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from support.captured_bank import CapturedBank
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.operations.sets.read import find_tables
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

LOGS = ("accounts", "branches", "tellers", "history")
KEYS = {"accounts": "aid", "branches": "bid", "tellers": "tid", "history": "hid"}
ENDS = "transaction"
TOPICS = {**{log: f"bank.public.{log}" for log in LOGS}, ENDS: "bank.transaction"}
BANK = CapturedBank(Path(__file__).parents[1] / "data" / "bank_transactions", TOPICS)
land, count_records = BANK.land, BANK.count_records
_COLUMNS = {
    "accounts": "{aid: int, bid: int, abalance: long}",
    "branches": "{bid: int, bbalance: long}",
    "tellers": "{tid: int, bid: int, tbalance: long}",
    "history": "{hid: int, tid: int, aid: int, delta: long}",
}
SET = """
sets:
  bank:
    logs: [accounts, branches, tellers, history]
    transactions: landing/bank.transaction
    may_be_empty: [history]
    equal_sums: [[branches.bbalance, tellers.tbalance]]
"""


def config(sets: str = SET, kind: str = "full") -> str:
    logs = "".join(
        f"  {log}:\n    source: {{format: debezium-json, connector: postgresql, path: landing/{TOPICS[log]}}}\n"
        f"    key: [{KEYS[log]}]\n    columns: {_COLUMNS[log]}\n    key_groups: 8\n    buckets: 2\n"
        for log in LOGS
    )
    return f"version: 1\nstore: store\nsnapshots: {{kind: {kind}}}\nlogs:\n{logs}{sets}"


def make_bank(folder: Path, text: str | None = None) -> Pipeline:
    return BANK.make(folder, config() if text is None else text)


def run(pipeline: Pipeline, run_id: str, failing: str = "") -> list[Outcome]:
    """Runs all steps over all logs without a JVM. `failing`: the log that does not pass its gate."""
    ingest(pipeline, LOGS, in_process)
    materialize(pipeline, LOGS, Fold(run_id), in_process)
    judge_staged(pipeline, run_id, failing)
    outcomes = confirm_logs(pipeline, LOGS, run_id)
    for outcome in outcomes:
        if outcome.error:
            abort(pipeline, outcome.log, "not confirmed", run_id=run_id)
    return outcomes


def judge_staged(pipeline: Pipeline, run_id: str | None = None, failing: str = "") -> None:
    """Judges the staged snapshots, of one run or of any. All pass, except that of the log `failing`."""
    for log in LOGS:
        state = pipeline.ledger(log).find()
        attempt = state.find_open(run_id) if state else None
        if attempt and attempt.state is State.STAGED:
            judge_all(pipeline, log, passed=log != failing)


def copy_bank(template: Path, folder: Path) -> Pipeline:
    """Returns the pipeline of a copy, which replaces an earlier one."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    return open_pipeline(folder / "tidefold.yaml")


@dataclass
class Replay:
    """The rows of all tables after each transaction, by a dictionary and the order of the transaction topic."""

    rows: dict[int, dict[str, dict[int, dict[str, Any]]]] = field(default_factory=dict)


def _find_positions() -> dict[str, int]:
    """Returns the position of each transaction, by its number."""
    found: dict[str, int] = {}
    for record in map(json.loads, BANK.list_lines(ENDS)):
        if record["value"]["status"] == "END":
            number, position = record["value"]["id"].split(":")
            found.setdefault(number, int(position))
    return found


def count_until(position: int) -> dict[str, int]:
    """Returns how many first records of each topic belong to transactions up to a position."""
    ends, found = _find_positions(), {}
    for log in LOGS:
        values = [json.loads(line)["value"] for line in BANK.list_lines(log)]
        numbers = [v["transaction"]["id"].split(":")[0] if v and v["transaction"] else None for v in values]
        found[log] = next((i for i, n in enumerate(numbers) if n and ends[n] > position), len(values))
    values = [json.loads(line)["value"] for line in BANK.list_lines(ENDS)]
    last = [value["status"] == "END" and int(value["id"].split(":")[1]) == position for value in values]
    return found | {ENDS: last.index(True) + 1}


@cache
def replay() -> Replay:
    ends = _find_positions()
    tables: dict[str, dict[int, dict[str, Any]]] = {log: {} for log in LOGS}
    changes: dict[int, dict[str, dict[int, Any]]] = {position: {log: {} for log in LOGS} for position in ends.values()}
    snapshot = 0
    values = ((log, json.loads(line)["value"]) for log in LOGS for line in BANK.list_lines(log))
    for log, value in values:
        if value and value["transaction"]:
            number = value["transaction"]["id"].split(":")[0]
            changes[ends[number]][log][value["transaction"]["data_collection_order"]] = value
        elif value:
            snapshot = value["source"]["lsn"]
            tables[log][value["after"][KEYS[log]]] = value["after"]
    found = Replay()
    found.rows[snapshot] = {log: dict(rows) for log, rows in tables.items()}
    for position in sorted(changes):
        for log in LOGS:
            for _, value in sorted(changes[position][log].items()):
                _apply(tables[log], KEYS[log], value)
        found.rows[position] = {log: dict(rows) for log, rows in tables.items()}
    return found


def _apply(rows: dict[int, dict[str, Any]], key: str, value: dict[str, Any]) -> None:
    if value["op"] == "d":
        rows.pop(value["before"][key], None)
    else:
        rows[value["after"][key]] = value["after"]


def read_set(pipeline: Pipeline) -> dict[str, dict[int, dict[str, Any]]]:
    """Returns the rows of all tables through the pointer of the set."""
    found: dict[str, dict[int, dict[str, Any]]] = {log: {} for log in LOGS}
    for log, one in find_tables(pipeline, "bank").items():
        rows = DeltaTable(one.address, version=one.version).to_pyarrow_table().to_pylist()
        found[log] = {row[KEYS[log]]: row for row in rows}
    return found


def read_alone(pipeline: Pipeline) -> dict[str, dict[int, dict[str, Any]]]:
    """Returns the rows of all tables at their newest versions."""
    found: dict[str, dict[int, dict[str, Any]]] = {log: {} for log in LOGS}
    for log in LOGS:
        address = pipeline.store.uri(f"tables/{log}")
        if DeltaTable.is_deltatable(address):
            found[log] = {r[KEYS[log]]: r for r in DeltaTable(address).to_pyarrow_table().to_pylist()}
    return found


def count_violations(rows: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> int:
    """Returns how many branches do not have the sum of their tellers."""
    sums = dict.fromkeys(rows["branches"], 0)
    for teller in rows["tellers"].values():
        sums[teller["bid"]] = sums.get(teller["bid"], 0) + teller["tbalance"]
    return sum(rows["branches"].get(bid, {}).get("bbalance") != total for bid, total in sums.items())


def check_bank(pipeline: Pipeline) -> int | None:
    """Requires that readers of the set see one point, exactly; returns its position, None: nothing is published."""
    version = pipeline.set_ledger("bank").read().published
    if version is None:
        return None
    rows = read_set(pipeline)
    assert count_violations(rows) == 0
    assert rows == replay().rows[version.position]
    return version.position


# The whole bank, and what most tests land of it: its first transactions.
WHOLE = {name: count_records(name) for name in (*LOGS, ENDS)}
LAST = sorted(_find_positions().values())[60]
ALL = count_until(LAST)
