"""A set on captured records of a real PostgreSQL: each run publishes one point of its log for all tables, or none.

Promise I34.
"""

from __future__ import annotations

import csv
import gzip
import random
from pathlib import Path

import pytest

from support.bank_sets import (
    ALL,
    BANK,
    KEYS,
    LAST,
    LOGS,
    WHOLE,
    check_bank,
    config,
    count_violations,
    land,
    make_bank,
    read_alone,
    replay,
    run,
)
from tidefold.operations.ground.outcome import Status
from tidefold.operations.ingest.stages import plan_log
from tidefold.operations.retention.clean import drop


def test_everything_at_once_is_the_last_transaction(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, WHOLE)
    outcomes = run(pipeline, "r1")
    assert [o.status for o in outcomes] == [Status.PUBLISHED] * 4, outcomes
    assert check_bank(pipeline) == max(replay().rows)
    assert [o.status for o in run(pipeline, "r2")] == [Status.ALREADY] * 4


@pytest.mark.rotates(4)
@pytest.mark.parametrize("seed", range(3))
def test_any_landed_parts_give_one_point(tmp_path: Path, seed: int) -> None:
    """Topics land in any state, also in the middle of a transaction; the last part of each comes at the end."""
    rnd, upto = random.Random(seed), dict.fromkeys(ALL, 0)
    pipeline, last = make_bank(tmp_path, config(kind=rnd.choice(["full", "incremental"]))), -1
    for number in range(5):
        grown = {name: rnd.randint(upto[name], min(ALL[name], upto[name] + 300)) for name in ALL}
        upto = {name: upto[name] if rnd.random() < 0.2 else grown[name] for name in ALL}
        land(tmp_path, upto)
        run(pipeline, f"r{number}")
        position = check_bank(pipeline)
        assert position is None or position >= last
        last = position if position is not None else last
    land(tmp_path, ALL)
    run(pipeline, "last")
    assert check_bank(pipeline) == LAST


def test_a_slow_log_holds_the_set_and_is_named(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {**ALL, "tellers": 300})
    run(pipeline, "r1")
    first = check_bank(pipeline)
    assert first is not None
    waits = pipeline.set_ledger("bank").read().waits
    assert waits is not None
    assert list(waits) == ["tellers"]
    land(tmp_path, ALL)
    run(pipeline, "r2")
    assert check_bank(pipeline) == LAST


def test_a_late_file_in_the_middle_holds_the_set(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    folder = tmp_path / "landing" / "bank.public.history"
    late = sorted(folder.iterdir())[1]
    content = late.read_bytes()
    late.unlink()
    run(pipeline, "r1")
    before = check_bank(pipeline)
    assert before is not None
    assert before < LAST
    late.write_bytes(content)
    run(pipeline, "r2")
    assert check_bank(pipeline) == LAST


def test_a_failed_gate_publishes_no_table_of_the_set(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {name: count // 2 for name, count in ALL.items()})
    run(pipeline, "r1")
    before = check_bank(pipeline)
    shown = read_alone(pipeline)
    land(tmp_path, ALL)
    outcomes = run(pipeline, "r2", failing="branches")
    assert {o.error_code for o in outcomes} == {"SET_HELD"}
    assert "branches" in outcomes[0].message
    assert check_bank(pipeline) == before
    assert read_alone(pipeline) == shown
    run(pipeline, "r3")
    assert check_bank(pipeline) == LAST


def test_logs_that_went_on_without_the_set_join_it_again(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {name: count // 4 for name, count in ALL.items()})
    run(pipeline, "r1")
    before = check_bank(pipeline)
    land(tmp_path, {name: count // 2 for name, count in ALL.items()})
    run(make_bank(tmp_path, config("")), "alone")
    pipeline = make_bank(tmp_path)
    run(pipeline, "r2")
    assert check_bank(pipeline) == before
    land(tmp_path, ALL)
    run(pipeline, "r3")
    assert check_bank(pipeline) == LAST


def test_the_replay_gives_the_dump_of_the_server() -> None:
    """The naive replay is right: after the last transaction it has the rows that the server had."""
    last = replay().rows[max(replay().rows)]
    for log in LOGS:
        with gzip.open(BANK.data / "truth" / "phase3" / f"{log}.csv.gz", "rt") as stream:
            truth = {int(row[KEYS[log]]): {name: int(v) for name, v in row.items()} for row in csv.DictReader(stream)}
        assert last[log] == truth


def test_unequal_sums_hold_the_set(tmp_path: Path) -> None:
    wrong = config().replace("[branches.bbalance, tellers.tbalance]", "[branches.bbalance, tellers.tid]")
    pipeline = make_bank(tmp_path, wrong)
    land(tmp_path, {name: count // 4 for name, count in ALL.items()})
    outcomes = run(pipeline, "r1")
    assert {o.error_code for o in outcomes} == {"SET_SUMS"}
    assert check_bank(pipeline) is None


def test_without_the_set_the_same_landings_break_the_sums(tmp_path: Path) -> None:
    """The control of these tests: what each table alone shows."""
    found = {}
    for name, text in (("alone", config("")), ("set", config())):
        rnd, upto = random.Random(7), dict.fromkeys(ALL, 0)
        folder = tmp_path / name
        pipeline, found[name] = make_bank(folder, text), 0
        for number in range(6):
            upto = {one: rnd.randint(upto[one], min(ALL[one], upto[one] + 240)) for one in ALL}
            land(folder, upto)
            run(pipeline, f"r{number}")
            found[name] += count_violations(read_alone(pipeline))
    assert found["alone"] > 0
    assert found["set"] == 0


def test_a_log_that_was_dropped_joins_the_set_anew(tmp_path: Path) -> None:
    """Its landed files must be complete: that it was cut at the point before proves nothing of what lands now."""
    pipeline = make_bank(tmp_path)
    land(tmp_path, {name: count // 2 for name, count in ALL.items()})
    run(pipeline, "r1")
    before = check_bank(pipeline)
    drop(make_bank(tmp_path, config("")), "tellers", plan=False)
    folder = tmp_path / "landing" / "bank.public.tellers"
    land(tmp_path, ALL)
    first = sorted(folder.iterdir())[0]
    content = first.read_bytes()
    first.unlink()
    pipeline = make_bank(tmp_path)
    run(pipeline, "r2")
    version = pipeline.set_ledger("bank").read().published
    assert version
    assert version.position == before
    first.write_bytes(content)
    run(pipeline, "r3")
    run(pipeline, "r4")
    assert check_bank(pipeline) == LAST


def test_files_that_were_ingested_to_their_end_are_not_read_again(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {**ALL, "tellers": 300})
    run(pipeline, "r1")
    land(tmp_path, ALL)
    run(pipeline, "r2")
    assert check_bank(pipeline) == LAST
    assert [plan_log(pipeline, log).plan.take for log in LOGS] == [()] * len(LOGS)
