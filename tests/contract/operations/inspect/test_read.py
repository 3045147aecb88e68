"""Reading without Spark: published, by snapshot, live, change sets. Requirement C10 (read), promises I5, I6."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from local_airflow.settings import PROJECT
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, publish, put
from tidefold.changelog.schema import DELETE
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import LogState, SnapshotKind
from tidefold.domain.snapshot import claim
from tidefold.errors import CorruptError, InvalidInputError, NotFoundError, RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, plan_read, read_rows
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.read.task import read_task


def listed(pipeline: Pipeline, **how: Any) -> list[dict[str, Any]]:
    schema, batches = read_rows(pipeline, "accounts", ReadRequest(**how))
    read = list(batches)
    assert all(batch.schema == schema for batch in read)
    return [row for batch in read for row in batch.to_pylist()]


def rows(pipeline: Pipeline, **how: Any) -> dict[int, str | None]:
    found = listed(pipeline, **how)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["text"] for row in found}


def test_live_equals_the_oracle_after_every_append_and_writes_nothing(tmp_path: Path) -> None:
    pipeline, chance, model = make_pipeline(tmp_path), random.Random(3), {}
    for number in range(12):
        changes = []
        for _ in range(chance.randrange(1, 15)):
            key = chance.randrange(30)
            if chance.random() < 0.3:
                changes.append({"id": key, "text": None, "_op": DELETE})
                model.pop(key, None)
            else:
                changes.append({"id": key, "text": f"{number}"})
                model[key] = f"{number}"
        put(pipeline, changes)
        before = contents(tmp_path / "store")
        assert rows(pipeline, what=What.LIVE) == model
        assert contents(tmp_path / "store") == before
        if number % 4 == 3:
            materialize(pipeline, ["accounts"], Fold(f"run-{number}"), in_process)
            assert rows(pipeline, what=What.LIVE) == model
            judge_all(pipeline)
            confirm(pipeline, "accounts")
            assert rows(pipeline) == rows(pipeline, what=What.LIVE) == model


def test_a_snapshot_and_the_table_are_read_as_they_are(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])
    with pytest.raises(NotFoundError) as nothing:
        rows(pipeline)
    assert nothing.value.code == "NOTHING_PUBLISHED"
    for run in ("one", "two"):
        put(pipeline, [{"id": 1, "text": run}])
        materialize(pipeline, ["accounts"], Fold(run), in_process)
        judge_all(pipeline)
        confirm(pipeline, "accounts")
    assert rows(pipeline) == rows(pipeline, snapshot=2) == {1: "two"}
    assert rows(pipeline, snapshot=1) == {1: "one"}
    with pytest.raises(NotFoundError):
        rows(pipeline, snapshot=9)


def test_a_look_at_the_first_rows_of_a_larger_table_ends(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": i, "text": "a"} for i in range(150_000)])
    materialize(pipeline, ["accounts"], Fold("run"), in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    for live in ([], ["--live"]):
        done = subprocess.run(
            [sys.executable, "-m", "tidefold.cli", "read", "accounts", "--limit", "2", "--format", "json", *live],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT / "include")},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert [len(json.loads(done.stdout)["rows"]), json.loads(done.stdout)["more"]] == [2, True]


def test_a_tail_only_snapshot_is_its_base_and_the_change_sets_up_to_its_end(tmp_path: Path) -> None:
    """C10: later change sets are not in it, and a later materialization changes nothing of it."""
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": i, "text": "base"} for i in range(20)])
    publish(pipeline, "run-1")
    put(pipeline, [{"id": 3, "text": "tail"}, {"id": 4, "text": None, "_op": DELETE}])
    asked = claim.Claim("tail-1", "request", SnapshotKind.TAIL, "2026-01-01T00:00:00+00:00")
    pipeline.ledger("accounts").commit(lambda state: claim.tail(state, asked))
    expected = {i: "tail" if i == 3 else "base" for i in range(20) if i != 4}
    put(pipeline, [{"id": 3, "text": "later"}])
    assert rows(pipeline, snapshot=2) == expected
    publish(pipeline, "run-3")
    assert rows(pipeline, snapshot=2) == expected
    assert rows(pipeline) == {**expected, 3: "later"}


def test_change_sets_come_in_order_with_their_sqn(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": i, "text": "a"} for i in range(9)])
    put(pipeline, [{"id": 8, "text": None, "_op": DELETE}])
    put(pipeline, [{"id": 1, "text": "c"}])
    found = listed(pipeline, what=What.LOG)
    system = ["_sqn", "_op", "_kg", "_o0", "_o1", "_partition", "_offset", "_ts", "_absent"]
    assert list(found[0]) == [*system, "id", "text"]
    assert [(row["_sqn"], row["_offset"], row["id"]) for row in found] == [
        *((1, i, i) for i in range(9)), (2, 9, 8), (3, 10, 1),
    ]  # fmt: skip
    assert [row["_op"] for row in found] == [0] * 9 + [DELETE, 0]
    assert [row["_sqn"] for row in listed(pipeline, what=What.LOG, since=1)] == [2, 3]
    assert listed(pipeline, what=What.LOG, since=3) == []
    with pytest.raises(RefusedError) as ahead:
        listed(pipeline, what=What.LOG, since=4)
    assert ahead.value.code == "SINCE_AHEAD"


def test_a_log_that_was_cut_says_from_where_it_can_be_read(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n"))
    for number in range(4):
        put(pipeline, [{"id": 1, "text": f"{number}"}])
        publish(pipeline, f"run-{number}")
    held, tail = (plan_read(pipeline, "accounts", w) for w in (ReadRequest(What.LOG), ReadRequest(What.LOG, since=3)))
    assert truncate(pipeline, "accounts").status == "truncated"
    state = pipeline.ledger("accounts").read()
    assert state.truncated_to == 3
    with pytest.raises(RefusedError) as cut:
        listed(pipeline, what=What.LOG, since=2)
    assert (cut.value.code, "begins at change set 4" in cut.value.message, "since 3" in cut.value.hint) == (
        "LOG_CUT",
        True,
        True,
    )
    assert [row["_sqn"] for row in listed(pipeline, what=What.LOG)] == [4]
    with pytest.raises(RefusedError) as outdated:
        list(read_task(pipeline.store, held, held.whole))
    assert outdated.value.code == "READ_OUTDATED"
    assert sum(len(batch) for batch in read_task(pipeline.store, tail, tail.whole)) == 1


def test_a_retired_snapshot_under_a_held_plan_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    """I23: what was removed on purpose says "read again", what is damaged stays CorruptError."""
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n"))
    for number in range(3):
        put(pipeline, [{"id": 1, "text": f"{number}"}])
        publish(pipeline, f"run-{number}")
    plans = [plan_read(pipeline, "accounts", ReadRequest(snapshot=number)) for number in (1, 3)]
    assert subsume(pipeline, "accounts").facts["snapshots"] == [1]
    with pytest.raises(RefusedError) as outdated:
        list(read_task(pipeline.store, plans[0], plans[0].whole))
    assert outdated.value.code == "READ_OUTDATED"
    [file] = (tmp_path / "store" / "snapshots" / "accounts" / "0000000003" / "_data").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptError) as damaged:
        list(read_task(pipeline.store, plans[1], plans[1].whole))
    assert damaged.value.code == "DATA_FILE_CORRUPT"


def test_one_key_is_read_from_its_bucket_alone(tmp_path: Path) -> None:
    """L8: files and change sets of other buckets are not opened, which is seen by their being gone."""
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": i, "text": "a"} for i in range(40)])
    publish(pipeline, "run-1")
    put(pipeline, [{"id": i, "text": "b"} for i in range(0, 40, 2)])
    wanted = {what: ReadRequest(what, key='{"id": 6}') for what in What}
    plans = {what: plan_read(pipeline, "accounts", one) for what, one in wanted.items()}
    assert {what: len(plan.tasks) for what, plan in plans.items()} == dict.fromkeys(What, 1)
    assert len(plan_read(pipeline, "accounts", ReadRequest()).tasks) == 4
    assert listed(pipeline, key='{"id": 4000}') == []
    [task] = plans[What.TABLE].tasks
    data = tmp_path / "store" / "snapshots" / "accounts" / "0000000001" / "_data"
    for file in data.iterdir():
        if file.name not in {f.name for f in task.files}:
            file.unlink()
    found = {what: listed(pipeline, what=what, key='{"id": 6}') for what in What}
    assert found[What.TABLE] == [{"id": 6, "text": "a"}]
    assert found[What.LIVE] == [{"id": 6, "text": "b"}]
    assert [(row["_sqn"], row["text"]) for row in found[What.LOG]] == [(1, "a"), (2, "b")]
    with pytest.raises(CorruptError) as missing:
        listed(pipeline)
    assert missing.value.code == "FILE_MISSING"


@pytest.mark.parametrize("key", ["6", '{"id": "six"}', "{}", '{"id": 6, "text": "a"}', '{"id": 1e40}', '{"id": null}'])
def test_a_wrong_key_is_refused_with_the_right_form(tmp_path: Path, key: str) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 6, "text": "a"}])
    with pytest.raises(InvalidInputError) as wrong:
        plan_read(pipeline, "accounts", ReadRequest(What.LIVE, key=key))
    of_type = "six" in key
    hint = "Give a value of that type." if of_type else 'Name every key column, as in {"id": ...}.'
    assert (wrong.value.code, wrong.value.hint) == ("READ_KEY", hint)


def test_keys_of_every_type_find_their_row(tmp_path: Path) -> None:
    columns = "{n: int, b: boolean, l: long, text: string, day: date, at: timestamp, v: double}"
    config = CONFIG.replace("key: [id]\n    columns: {id: int, text: string}", f"KEY\n    columns: {columns}", 1)
    pipeline = make_pipeline(tmp_path, config.replace("KEY", "key: [n, b, l, text, day, at]"))
    base = {"b": True, "l": 2**62, "text": "x", "day": 19_000, "at": 1_700_000_000_123_456, "v": 0.5}
    put(pipeline, [{"n": n, **base} for n in range(50)])
    asked = {**base, "n": 7, "day": "2022-01-08", "at": "2023-11-14T22:13:20.123456Z"}
    key = json.dumps({name: value for name, value in asked.items() if name != "v"})
    [row] = listed(pipeline, what=What.LIVE, key=key)
    assert (row["n"], row["v"]) == (7, 0.5)


def test_an_empty_log_and_one_never_begun_or_dropped(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    with pytest.raises(NotFoundError) as unknown:
        listed(pipeline, what=What.LIVE)
    assert unknown.value.code == "LOG_UNKNOWN"
    pipeline.ledger("accounts").begin(pipeline.log("accounts").shape)
    assert listed(pipeline, what=What.LIVE) == listed(pipeline, what=What.LOG) == []
    drop(pipeline, "accounts", plan=False)
    with pytest.raises(NotFoundError) as dropped:
        listed(pipeline, what=What.LIVE)
    assert dropped.value.code == "LOG_UNKNOWN"


@pytest.mark.parametrize("how", [{"what": What.LIVE, "snapshot": 1}, {"since": 1}, {"what": What.LIVE, "since": 1}])
def test_what_does_not_go_together_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        ReadRequest(**how)


def test_squashed_change_sets_are_read_as_the_one_they_are(tmp_path: Path) -> None:
    """C12: they count as the run that they stand for, and are not cut in two."""
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])
    put(pipeline, [{"id": 1, "text": "b"}])
    put(pipeline, [{"id": 2, "text": "c"}])

    def squash(state: LogState) -> LogState:
        return replace(state, change_sets=(replace(state.change_sets[1], first=1), state.change_sets[2]))

    pipeline.ledger("accounts").commit(squash)
    assert rows(pipeline, what=What.LIVE) == {1: "b", 2: "c"}
    assert [row["_sqn"] for row in listed(pipeline, what=What.LOG)] == [2, 3]
    assert [row["_sqn"] for row in listed(pipeline, what=What.LOG, since=2)] == [3]
    with pytest.raises(RefusedError) as inside:
        listed(pipeline, what=What.LOG, since=1)
    assert (inside.value.code, inside.value.hint) == ("LOG_COMPACTED", "Read the changes since 0, or since 2.")


def test_a_gap_in_the_log_is_never_written(tmp_path: Path) -> None:
    """I7: so no tail can lack a change set; ledger/test_bad_manifests.py has what is read all the same."""
    pipeline = make_pipeline(tmp_path)
    for number in range(3):
        put(pipeline, [{"id": number, "text": "a"}])

    def lose(state: LogState) -> LogState:
        return replace(state, change_sets=(state.change_sets[0], state.change_sets[2]))

    with pytest.raises(CorruptError) as gap:
        pipeline.ledger("accounts").commit(lose)
    assert gap.value.code == "SQN_GAP"
    assert len(listed(pipeline, what=What.LIVE)) == 3


def test_the_command_line_shows_change_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline(tmp_path)
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        put(pipeline, [{"id": number, "text": f"{number}"}])

    def said(*options: str) -> Result:
        return CliRunner().invoke(app, ["read", "accounts", *options])

    found = json.loads(said("--changes", "--since", "1", "--format", "json").stdout)
    assert found["rows"] == listed(pipeline, what=What.LOG, since=1)
    assert [row["_sqn"] for row in found["rows"]] == [2, 3]
    assert found["columns"]["_sqn"] == "int64"
    head, *lines = said("--changes").stdout.splitlines()
    assert head.split()[:2] == ["_sqn", "_op"]
    assert [line.split()[-1] for line in lines if line.split()[0] in "123"] == ["0", "1", "2"]
    wrong = (("--changes", "--live"), ("--changes", "--snapshot", "1"), ("--since", "1"), ("--since", "1", "--live"))
    assert [said(*options).exit_code for options in wrong] == [2] * 4
