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
    BANK,
    check_bank,
    config,
    count_records,
    count_violations,
    land,
    list_transactions,
    make_bank,
    replay,
)
from support.bank_sets import ENDS, KEYS, LOGS, read_alone, read_set, run
from tidefold.operations.ground.outcome import Status

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}
LAST = list_transactions()[-1]


def test_the_replay_gives_the_dump_of_the_server() -> None:
    """The naive replay is right: after the last transaction it has the rows that the server had."""
    for log in LOGS:
        with gzip.open(BANK.data / "truth" / "phase4" / f"{log}.csv.gz", "rt") as stream:
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


@pytest.mark.rotates(3)
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


def _count_wrong_runs(tmp_path: Path, log: str, seed: str) -> int:
    """Lands the files of one log in random order, with a run after each, and counts the runs that show no one point."""
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    contents = [(file, file.read_bytes()) for file in sorted((tmp_path / "landing" / f"bank.bank.{log}").iterdir())]
    for file, _ in contents:
        file.unlink()
    wrong = 0
    for number, (file, content) in enumerate(random.Random(seed).sample(contents, len(contents))):
        file.write_bytes(content)
        run(pipeline, f"r{number}")
        version = pipeline.set_ledger("bank").read().published
        wrong += version is not None and read_set(pipeline) != replay()[version.transaction]
    return wrong


@pytest.mark.rotates(3)
@pytest.mark.parametrize(("log", "seed"), [*((log, log) for log in LOGS), ("tellers", "tellers2")])
def test_files_of_one_log_land_late_in_any_order(tmp_path: Path, log: str, seed: str) -> None:
    assert _count_wrong_runs(tmp_path, log, seed) == 0
    assert check_bank(make_bank(tmp_path)) == LAST


def test_counts_alone_would_publish_a_part_of_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the END of the long transaction counts only what came after the kills."""
    monkeypatch.setattr("tidefold.domain.sets.point._find_proofs", lambda ends, logs: {})
    assert _count_wrong_runs(tmp_path, "tellers", "tellers2") > 0


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
    waits = pipeline.set_ledger("bank").read().waits or {}
    assert list(waits) == ["branches"]
    assert "records of transaction 0-7-" in waits["branches"]
