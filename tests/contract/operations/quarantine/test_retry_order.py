"""A refused record keeps its place in the order (I32): a retry gives the rows of a log that had refused nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.instants import kept_as_of
from support.landing import COUNTS, TOPIC, land, make_landing, quarantined, record, state_of, take, tombstone
from support.older import older_program
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.inspect.diff import diff
from tidefold.operations.quarantine.inspect import count_refused, show_refused
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.sources.debezium import envelope
from tidefold.storage import open_store
from tidefold.wiring import open_pipeline

KEYLESS = f"""\
version: 1
store: store
logs:
  items:
    source: {{format: debezium-json, connector: postgresql, path: landing/{TOPIC}}}
    merge: append
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 4
"""
COLUMNS = "{id: long, n: int, text: string}"
GONE = "__debezium_unavailable_value"


@pytest.fixture(params=["today", "older"])
def begun(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """`older`: the ledger and the quarantine are those of a program in which refused records had no order."""
    if request.param == "older":
        monkeypatch.setattr(envelope, "is_sent_again", lambda log, at, line, refused: False)
    return make_landing(tmp_path, COLUMNS)


def item(offset: int, key: int, n: int = 1, op: str = "c", order: int | None = None, **changes: Any) -> dict[str, Any]:
    """An older program refuses `n` above 99; the key is always read."""
    after = {"id": key, "n": n, "text": f"t{1000 + offset if order is None else order}"}
    if op == "d":
        changes |= {"before": {"id": key}, "after": None}
    return record(offset, key, op, order, **{"after": after, **changes})


def rows(pipeline: Pipeline, what: What = What.LIVE) -> dict[int, str]:
    _, batches = read_rows(pipeline, "items", ReadRequest(what))
    return {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()}


def whole_rows(pipeline: Pipeline, what: What = What.LIVE) -> dict[int, tuple[Any, ...]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(what))
    return {row.pop("id"): tuple(row.values()) for batch in batches for row in batch.to_pylist()}


def counted_rows(pipeline: Pipeline) -> Counter[tuple[Any, ...]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return Counter((row["id"], row["text"]) for batch in batches for row in batch.to_pylist())


def fold(pipeline: Pipeline, run: str) -> None:
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    assert not outcome.error_code, outcome
    judge_all(pipeline, "items")
    assert confirm(pipeline, "items", Confirmation(run=run)).status == "published"


def check_counts(pipeline: Pipeline) -> None:
    for entry in state_of(pipeline).landed:
        assert entry.records == sum(getattr(entry, name) for name in COUNTS), entry


def begin_keyless(root: Path) -> Pipeline:
    (root / "tidefold.yaml").write_text(KEYLESS)
    (root / "landing" / TOPIC).mkdir(parents=True, exist_ok=True)
    return Pipeline(load_config(root / "tidefold.yaml"), open_store("store", root))


def test_a_retry_never_brings_back_the_dead(begun: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The insert was refused, the row was deleted, and the source sent both again after a kill."""
    land(tmp_path, 0, [item(0, 1), item(1, 5, 100), item(2, 5, op="d"), tombstone(3, 5), item(4, 2)])
    with older_program(monkeypatch):
        take(begun)
        fold(begun, "run-1")
        land(tmp_path, 5, [item(5, 5, 100, order=1001), item(6, 5, op="d", order=1002), item(7, 3)])
        take(begun)
    outcome = retry(begun, "items")
    assert outcome.facts["changes"] == 0
    assert rows(begun) == {1: "t1000", 2: "t1004", 3: "t1007"}
    fold(begun, "run-2")
    assert rows(begun, What.TABLE) == {1: "t1000", 2: "t1004", 3: "t1007"}
    check_counts(begun)
    assert not count_refused(begun, "items")


def test_what_is_sent_again_is_repeated_whether_it_can_be_read_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1), record(1, 100), record(2, 101), record(3, 2)])
    land(tmp_path, 4, [record(4, 100, order=1001), record(5, 101, order=1002), record(6, 2, order=1003)])
    with older_program(monkeypatch):
        outcome = take(made)
    assert (outcome.facts["quarantined"], outcome.facts["resent"]) == (2, 2)
    assert [one.offset for one in show_refused(made, "items", None, 9)[0]] == [1, 2]
    assert [entry["order"] for entry in quarantined(made)[:2]] == [[1001, 1001], [1002, 1002]]


def test_a_refused_record_advances_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1), record(1, 100)])
    with older_program(monkeypatch):
        take(made)
        assert state_of(made).positions[0].stream.max_order == (1001, 1001)
        land(tmp_path, 2, [record(2, 1, order=1000), record(3, 100, order=1001)])
        assert take(made).facts["resent"] == 1
    assert retry(made, "items").facts["staying"] == 0
    assert rows(made) == {1: "t1000", 100: "t1001"}


def test_a_new_snapshot_whose_first_row_is_refused_clears_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1), record(1, 2)])
    first = record(2, 100, op="r", order=2000, snapshot="first")
    land(tmp_path, 2, [first, record(3, 2, op="r", order=2000, snapshot="last")])
    with older_program(monkeypatch):
        take(made)
    assert rows(made) == {2: "t2000"}
    assert retry(made, "items").facts["changes"] == 1
    assert rows(made) == {2: "t2000", 100: "t2000"}
    check_counts(made)


def test_a_new_snapshot_of_which_all_is_refused_clears_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1), record(1, 2)])
    with older_program(monkeypatch):
        take(made)
        fold(made, "run-1")
        land(tmp_path, 2, [record(2, 100, op="r", order=2000, snapshot="first")])
        take(made)
    check_counts(made)
    fold(made, "run-2")
    assert rows(made, What.TABLE) == {}
    assert retry(made, "items").facts["changes"] == 1
    assert rows(made) == {100: "t2000"}
    check_counts(made)


@pytest.mark.parametrize("older", [False, True])
def test_a_retry_doubles_no_row_of_a_table_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    def row(offset: int, order: int, item: int) -> dict[str, Any]:
        return record(offset, item, order=order, key=None)

    if older:
        monkeypatch.setattr(envelope, "is_sent_again", lambda log, at, line, refused: False)
    made = begin_keyless(tmp_path)
    land(tmp_path, 0, [row(0, 10, 1), row(1, 20, 100), row(2, 30, 101), row(3, 40, 2)])
    with older_program(monkeypatch):
        take(made)
        fold(made, "run-1")
        land(tmp_path, 4, [row(4, 10, 1), row(5, 20, 100), row(6, 30, 101), row(7, 40, 2), row(8, 50, 102)])
        take(made)
    retry(made, "items")
    assert counted_rows(made) == Counter(
        {(1, "t10"): 1, (100, "t20"): 1, (101, "t30"): 1, (2, "t40"): 1, (102, "t50"): 1}
    )
    check_counts(made)


def test_rows_of_one_position_are_counted_whether_they_can_be_read_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(offset: int, order: int, item: int) -> dict[str, Any]:
        return record(offset, item, order=order, key=None)

    made = begin_keyless(tmp_path)
    land(tmp_path, 0, [row(0, 10, 1), row(1, 20, 2), row(2, 20, 100), row(3, 20, 100)])
    land(tmp_path, 4, [row(4, 10, 1), row(5, 20, 2), row(6, 20, 100), row(7, 20, 100), row(8, 20, 100), row(9, 20, 3)])
    with older_program(monkeypatch):
        outcome = take(made)
    assert (outcome.facts["quarantined"], outcome.facts["resent"]) == (3, 4)
    retry(made, "items")
    assert counted_rows(made) == Counter({(1, "t10"): 1, (2, "t20"): 1, (100, "t20"): 3, (3, "t20"): 1})


def test_an_older_ledger_that_cannot_tell_keeps_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without a key, at the highest position of a file before: sent again, or more of them? Nobody knows."""

    def row(offset: int, order: int, item: int) -> dict[str, Any]:
        return record(offset, item, order=order, key=None)

    made = begin_keyless(tmp_path)
    with monkeypatch.context() as older, older_program(monkeypatch):
        older.setattr(envelope, "is_sent_again", lambda log, at, line, refused: False)
        land(tmp_path, 0, [row(0, 10, 1), row(1, 20, 2), row(2, 20, 100)])
        take(made)
        land(tmp_path, 3, [row(3, 20, 100)])
        take(made)
    outcome = retry(made, "items")
    assert (outcome.facts["changes"], outcome.facts["why"]) == (1, {"unproved": 1})
    assert counted_rows(made) == Counter({(1, "t10"): 1, (2, "t20"): 1, (100, "t20"): 1})


@pytest.mark.parametrize("folds", [False, True])
def test_a_retry_never_keeps_an_old_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: bool) -> None:
    """A newer change that leaves the large value out does not supersede the one that gave it."""
    made = make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, [item(0, 1), item(1, 2), item(2, 3)])
    new = [item(3 + key, key + 1, 100, "u") for key in range(3)]
    later = {"id": 1, "n": 7, "text": GONE}
    newer = [item(6, 1, op="u", after=later), item(7, 2, 8, "u"), item(8, 3, op="d")]
    with older_program(monkeypatch):
        take(made)
        land(tmp_path, 3, [*new, *newer])
        take(made)
        if folds:
            fold(made, "run-1")
    outcome = retry(made, "items")
    # The update of row 3, which the delete ends, is kept as well: a change of its key may yet follow.
    assert (outcome.facts["changes"], outcome.facts["repeated"]) == (2, 1)
    expected = {1: (7, "t1003"), 2: (8, "t1007")}
    assert whole_rows(made) == expected
    fold(made, "run-2")
    assert whole_rows(made, What.TABLE) == expected
    assert retry(made, "items").status == "nothing"


def test_what_a_retry_brings_is_right_as_of_every_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, [item(0, 1), item(1, 1, 100, "u"), item(2, 1, op="u", after={"id": 1, "n": 7, "text": GONE})])
    with older_program(monkeypatch):
        take(made)
        fold(made, "run-1")
    retry(made, "items")
    for at, expected in ((1001, (1, "t1000")), (1002, (100, "t1001")), (1003, (7, "t1001"))):
        kept = kept_as_of(made, at * 1000, f"as-{at}", "items")
        _, batches = read_rows(made, "items", ReadRequest(snapshot=kept.snapshot))
        assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == [(1, *expected)], at


def test_a_partial_record_brings_what_it_alone_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refused updates, each without a value of the other: the later retry of the older one keeps both."""
    made = make_landing(tmp_path, "{id: long, n: int, text: string, more: string}")

    def change(offset: int, op: str, n: int, text: str, more: str) -> dict[str, Any]:
        return item(offset, 1, op=op, after={"id": 1, "n": n, "text": text, "more": more})

    land(tmp_path, 0, [change(0, "c", 1, "a", "b"), change(1, "u", 100, "c", GONE), change(2, "u", 200, GONE, "d")])
    land(tmp_path, 3, [change(3, "u", 3, GONE, GONE)])
    with older_program(monkeypatch):
        take(made)
        fold(made, "run-1")
    with older_program(monkeypatch, most=150):
        assert retry(made, "items").facts["changes"] == 1
    assert whole_rows(made) == {1: (3, "c", "b")}
    fold(made, "run-2")
    assert retry(made, "items").facts["changes"] == 1
    assert whole_rows(made) == {1: (3, "c", "d")}


def test_snapshots_of_a_table_without_a_key_are_compared_row_by_row(tmp_path: Path) -> None:
    def row(offset: int, item_: int) -> dict[str, Any]:
        return record(offset, item_, order=offset, key=None, after={"id": item_, "text": "a"})

    made = begin_keyless(tmp_path)
    land(tmp_path, 0, [row(0, 1), row(1, 1), row(2, 2)])
    take(made)
    fold(made, "run-1")
    land(tmp_path, 3, [row(3, 1), row(4, 3)])
    take(made)
    fold(made, "run-2")
    found = diff(made, "items", 1, 2)
    assert found.counts == {"added": 2, "changed": 0, "removed": 0}
    assert [one.after for one in found.rows] == [{"id": 1, "text": "a"}, {"id": 3, "text": "a"}]
    assert diff(made, "items", 2, 1).counts == {"added": 0, "changed": 0, "removed": 2}


def test_a_log_that_took_nothing_may_be_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_landing(tmp_path, COLUMNS)
    land(tmp_path, 0, [item(0, 1, 100)])
    with older_program(monkeypatch):
        take(made)
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("key: [id]", "key: [id, n]"))
    outcome = take(open_pipeline(path))
    assert outcome.error_code == "SHAPE_CHANGED"
    assert "tidefold retain drop items" in outcome.message
