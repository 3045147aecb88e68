"""Snapshots by signal: a set never shows rows that are later than its point. On a capture of a connector that lagged.

The topics land in parts that end inside of snapshots, and a naive replay, which ignores these snapshots, knows the rows
at each point. Promise I34.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import shutil
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from deltalake import DeltaTable

from support.captured_bank import CapturedBank
from support.commands import call
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.sets.read import find_tables

LOGS = ("acc", "tills", "notes")
TOPICS = {**{log: f"snaps.public.{log}" for log in LOGS}, "transaction": "snaps.transaction"}
BANK = CapturedBank(Path(__file__).parents[3] / "data" / "bank_signals", TOPICS)
COLUMNS = {"acc": "{id: int, bal: long}", "tills": "{id: int, bal: long}", "notes": "{id: int, t: string}"}
CONFIG = "version: 1\nstore: store\nlogs:\n" + "".join(
    f"  {log}:\n    source: {{format: debezium-json, connector: postgresql, path: landing/{TOPICS[log]}}}\n"
    f"    key: [id]\n    columns: {COLUMNS[log]}\n    key_groups: 8\n    buckets: 1\n"
    "    quality: {max_row_drop: 1}\n"
    for log in LOGS
)
SETS = "sets:\n  bank:\n    logs: [acc, tills, notes]\n    transactions: landing/snaps.transaction\n"
# Offsets of the first rows of the blocking snapshots.
FIRST = 26410248  # The position of the initial snapshot.
LAGGED, BOTH = {"tills": 45}, {"acc": 188, "tills": 156}
WHOLE = {name: BANK.count_records(name) for name in TOPICS}
Rows = dict[str, dict[int, Any]]


@cache
def replay() -> dict[int, Rows]:
    """The rows of all tables after each transaction, without what snapshots by signal said."""
    values = {name: [json.loads(line)["value"] for line in BANK.list_lines(name)] for name in TOPICS}
    ends = dict(value["id"].split(":") for value in values["transaction"] if value["status"] == "END")
    changes: dict[tuple[int, str], dict[int, Any]] = defaultdict(dict)
    tables: Rows = {log: {} for log in LOGS}
    for log in LOGS:
        for value in filter(None, values[log]):
            if value["transaction"]:
                place = int(ends[value["transaction"]["id"].split(":")[0]]), log
                changes[place][value["transaction"]["data_collection_order"]] = value
            elif "[null" in value["source"]["sequence"]:
                tables[log][value["after"]["id"]] = value["after"]
    found = {FIRST: {log: dict(rows) for log, rows in tables.items()}}
    for position in sorted(map(int, ends.values())):
        for log in LOGS:
            for _, value in sorted(changes[position, log].items()):
                tables[log].pop((value["before"] or value["after"])["id"], None)
                tables[log] |= {value["after"]["id"]: value["after"]} if value["after"] else {}
        found[position] = {log: dict(rows) for log, rows in tables.items()}
    return found


POSITIONS = sorted(replay())


def check(pipeline: Pipeline) -> int:
    """Requires that readers of the set see one point exactly; returns its position, 0: nothing is published."""
    version = pipeline.set_ledger("bank").read().published
    if version is None:
        return 0
    tables = find_tables(pipeline, "bank")
    for log, one in tables.items():
        names = ["id", "t" if log == "notes" else "bal"]
        rows = DeltaTable(one.address, version=one.version).to_pyarrow_table(columns=names)
        assert {row["id"]: row for row in rows.to_pylist()} == replay()[version.position][log], (version.position, log)
    return version.position


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.chdir(tmp_path)
    return BANK.make(tmp_path, CONFIG + SETS)


def release(position: int) -> Result:
    return call(
        "set", "release", "bank", "--snapshot-ended", str(position), "--by", "ann", "--reason", "the log said so"
    )


def test_the_replay_is_what_the_server_had() -> None:
    for log in LOGS:
        with gzip.open(BANK.data / "truth" / f"{log}.csv.gz", "rt") as stream:
            rows = {int(row["id"]): row for row in csv.DictReader(stream)}
        last = replay()[POSITIONS[-1]][log]
        assert {key: {n: str(v) for n, v in row.items()} for key, row in last.items()} == rows


@pytest.mark.parametrize("seed", range(2))
def test_no_cut_inside_a_snapshot_shows_a_later_state(pipeline: Pipeline, tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    # Within the first blocking snapshot, after it, and within those of both tables.
    stops = [(10, {**LAGGED}), (30, {"tills": 52}), (45, {"tills": 62, "acc": 140}), (70, {"tills": 110}), (99, {})]
    upto, seen = dict.fromkeys(TOPICS, 0), [0]
    for percent, places in stops:
        for name in TOPICS:
            most = places.get(name, WHOLE[name] * percent // 100)
            upto[name] = max(upto[name], most - rnd.randint(0, 3))
        BANK.land(tmp_path, upto)
        call("run", code=None)
        seen.append(check(pipeline))
    assert seen == sorted(seen)
    # No record shows when the snapshot ended: it holds the set, by name, just before its rows.
    first = seen[-1]
    assert first == max(p for p in POSITIONS if p <= 26419168)
    said = call("set", "show", "bank").stdout
    assert "tills: a snapshot by signal begins at offset 45, and no record shows when it ended" in said
    # A position before the end of the snapshot would be wrong, and one before the point is refused.
    call("set", "release", "bank", "--snapshot-ended", "1", "--by", "ann", "--reason", "guess", code=3)
    call("set", "release", "bank", "--snapshot-ended", "26435696", "--by", "ann", "--reason", "", code=2)
    # The connector wrote a window of the incremental snapshot there, after the blocking one.
    assert "ann, the log said so" in release(26435696).stdout
    call("run", code=None)
    second = check(pipeline)
    assert first < 26435696 <= second == max(p for p in POSITIONS if p <= 26445344)
    BANK.land(tmp_path, WHOLE)
    call("run", code=None)
    assert check(pipeline) == second
    said = call("set", "show", "bank").stdout
    assert all(f"{log}: a snapshot by signal begins at offset {BOTH[log]}" in said for log in BOTH)
    release(POSITIONS[-1])
    call("run")
    assert check(pipeline) == POSITIONS[-1]
    said = call("set", "show", "bank").stdout
    assert "waits" not in said
    # The commits of the tables say who released it, and why; a release that no version followed is named.
    shutil.rmtree(tmp_path / "store/sets")
    lost = "releases of snapshots by signal that no version followed"
    assert lost in call("move", "rebuild", "--set", "bank", "--yes").stdout
    released = [line for line in said.splitlines() if "ann" in line]
    assert len(released) == 2
    assert [line for line in call("set", "show", "bank").stdout.splitlines() if "ann" in line] == released


def test_everything_lands_before_the_first_run(pipeline: Pipeline, tmp_path: Path) -> None:
    # Points in the middle of the incremental snapshots, too.
    ends = [i + 1 for i, line in enumerate(BANK.list_lines("transaction")) if b'"END"' in line]
    BANK.land(tmp_path, WHOLE | {"transaction": ends[-70]})
    call("run", code=None)
    assert check(pipeline) == max(p for p in POSITIONS if p <= 26419168)
    assert "if the snapshot of tills has ended" in call("set", "show", "bank").stdout
    release(26435696)
    for left in (66, 62, 1):
        BANK.land(tmp_path, {"transaction": ends[-left]})
        call("run", code=None)
        assert check(pipeline) == min(POSITIONS[-left], max(p for p in POSITIONS if p <= 26445344))
    assert "if the snapshot of acc, tills has ended" in call("set", "show", "bank").stdout
    release(POSITIONS[-1])
    call("run")
    assert check(pipeline) == POSITIONS[-1]
    call("set", "release", "bank", "--snapshot-ended", str(POSITIONS[-1]), "--by", "ann", "--reason", "again", code=3)


def test_a_snapshot_that_was_never_ended_holds_the_set_until_it_is_signalled_again(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """The connector was killed in it, so its last row has no mark. Without the next one, rows may be missing."""
    BANK.land(tmp_path, WHOLE)
    [file] = (tmp_path / "landing" / TOPICS["tills"]).iterdir()
    lines = file.read_text().splitlines(keepends=True)
    [end] = [at for at in range(LAGGED["tills"], BOTH["tills"]) if '"snapshot":"last' in lines[at]]
    lines[end] = lines[end].replace('"snapshot":"last', '"snapshot":"true","was":"last')
    # The next snapshot has not landed yet.
    file.write_text("".join(lines[: BOTH["tills"]]))
    call("run", code=None)
    held = check(pipeline)
    release(26435696)
    call("run", code=None)
    assert check(pipeline) == held
    said = call("set", "show", "bank").stdout
    assert f"the snapshot by signal from offset {LAGGED['tills']} on has not landed completely" in said
    assert "signal it again" in said
    file.write_text("".join(lines))
    call("run", code=None)
    release(POSITIONS[-1])
    call("run")
    assert check(pipeline) == POSITIONS[-1]
