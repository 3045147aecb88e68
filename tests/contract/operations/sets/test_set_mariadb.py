"""A set on captured records of a real MariaDB, whose connector was killed in the middle of transactions.

Promise I34, decision 0051.
"""

from __future__ import annotations

import csv
import gzip
import random
from pathlib import Path

import pytest

from support.bank_mariadb import (
    DATA,
    check_bank,
    config,
    count_records,
    count_violations,
    land,
    list_transactions,
    make_bank,
    replay,
)
from support.bank_sets import ENDS, KEYS, LOGS, read_alone, run
from tidefold.operations.outcome import Status
from tidefold.operations.sets.set_ledger import set_ledger

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}
LAST = list_transactions()[-1]


def test_the_replay_gives_the_dump_of_the_server() -> None:
    """The naive replay is right: after the last transaction it has the rows that the server had."""
    for log in LOGS:
        with gzip.open(DATA / "truth" / "phase4" / f"{log}.csv.gz", "rt") as stream:
            truth = {int(row[KEYS[log]]): {name: int(v) for name, v in row.items()} for row in csv.DictReader(stream)}
        assert replay()[LAST][log] == truth


def test_the_bank_is_right_after_every_transaction() -> None:
    assert [one for one, rows in replay().items() if count_violations(rows)] == []


def test_everything_at_once_is_the_last_transaction(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    outcomes = run(pipeline, "r1")
    assert [o.status for o in outcomes] == [Status.PUBLISHED] * 4, outcomes
    assert check_bank(pipeline) == LAST
    assert [o.status for o in run(pipeline, "r2")] == [Status.ALREADY] * 4


@pytest.mark.parametrize("seed", range(4))
def test_any_landed_parts_give_one_point(tmp_path: Path, seed: int) -> None:
    """Topics land in any state, also in the middle of a transaction and of what a killed connector sent again."""
    rnd, upto = random.Random(seed), dict.fromkeys(ALL, 0)
    order = ["", *list_transactions()]
    pipeline, last = make_bank(tmp_path, config(kind=rnd.choice(["full", "incremental"]))), -1
    for number in range(5):
        share = rnd.random() * 0.2
        grown = {name: min(ALL[name], upto[name] + rnd.randint(0, int(ALL[name] * share) + 1)) for name in ALL}
        upto = {name: upto[name] if rnd.random() < 0.2 else grown[name] for name in ALL}
        land(tmp_path, upto)
        run(pipeline, f"r{number}")
        found = check_bank(pipeline)
        assert found is None or order.index(found) >= last
        last = last if found is None else order.index(found)
    land(tmp_path, ALL)
    run(pipeline, "last")
    assert check_bank(pipeline) == LAST


@pytest.mark.parametrize("log", LOGS)
def test_late_files_of_one_log_hold_the_set(tmp_path: Path, log: str) -> None:
    """Each file of one log lands a run too late, and the others wait for it."""
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    folder = tmp_path / "landing" / f"bank.bank.{log}"
    files = sorted(folder.iterdir())
    contents = [(file, file.read_bytes()) for file in files]
    for file in files:
        file.unlink()
    rnd = random.Random(log)
    for number, (file, content) in enumerate(rnd.sample(contents, len(contents))):
        file.write_bytes(content)
        if number % 3 == 0:
            run(pipeline, f"r{number}")
            check_bank(pipeline)
    run(pipeline, "last")
    assert check_bank(pipeline) == LAST


def test_without_the_set_the_same_landings_break_the_bank(tmp_path: Path) -> None:
    """The control of these tests: what each table alone shows."""
    found = {}
    for name, text in (("alone", config("")), ("set", config())):
        rnd, upto = random.Random(7), dict.fromkeys(ALL, 0)
        pipeline, found[name] = make_bank(tmp_path / name, text), 0
        for number in range(6):
            upto = {one: rnd.randint(upto[one], min(ALL[one], upto[one] + ALL[one] // 5)) for one in ALL}
            land(tmp_path / name, upto)
            run(pipeline, f"r{number}")
            found[name] += count_violations(read_alone(pipeline))
    assert found["alone"] > 0
    assert found["set"] == 0


def test_the_table_of_a_slow_log_is_named(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {**ALL, "branches": ALL["branches"] // 2})
    run(pipeline, "r1")
    assert check_bank(pipeline) not in (None, LAST)
    waits = set_ledger(pipeline, "bank").read().waits or {}
    assert list(waits) == ["branches"]
    assert "records of transaction 0-7-" in waits["branches"]
