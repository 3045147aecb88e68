"""A changed primary key keeps the large values that were not sent: ingest takes them from the old key's row (I31)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.landing import COUNTS, land, make_landing, record, state_of, take, tombstone
from support.older import older_program
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.inspect import count_refused
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

COLUMNS = "{id: long, n: int, text: string}"
GONE = "__debezium_unavailable_value"
PARTITIONED = "{topic}+{partition}+{start:010d}.jsonl"


def item(offset: int, key: int, n: int = 1, op: str = "c", order: int | None = None, **changes: Any) -> dict[str, Any]:
    """An older program refuses `n` above 99."""
    lsn = 1000 + offset if order is None else order
    after = {"id": key, "n": n, "text": changes.pop("text", f"t{lsn}")}
    if op == "d":
        changes |= {"before": {"id": key}, "after": None}
    return record(offset, key, op, lsn, **{"after": after, **changes})


def moved(offset: int, old: int, new: int, n: int = 1, headers: bool = True) -> list[dict[str, Any]]:
    """A change of the key, as Debezium sends it: three records with one order."""
    named = [{"key": "__debezium.oldkey", "value": {"id": old}}] if headers else []
    order = 1000 + offset
    create = item(offset + 2, new, n, order=order, text=GONE, headers=named)
    return [item(offset, old, op="d", order=order), tombstone(offset + 1, old), create]


def rows(pipeline: Pipeline, what: What = What.LIVE) -> dict[int, tuple[Any, ...]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(what))
    return {row.pop("id"): tuple(row.values()) for batch in batches for row in batch.to_pylist()}


def fold(pipeline: Pipeline, run: str) -> int:
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    assert not outcome.error_code, outcome
    judge_all(pipeline, "items")
    assert confirm(pipeline, "items", Confirmation(run=run)).status == "published"
    return int(outcome.facts["unresolved"])


def check_counts(pipeline: Pipeline) -> None:
    state = state_of(pipeline)
    for entry in state.landed:
        assert entry.records == sum(getattr(entry, name) for name in COUNTS), entry
    assert sum(e.key_changes for e in state.landed) <= sum(e.quarantined for e in state.landed)


@pytest.fixture
def made(tmp_path: Path) -> Pipeline:
    return make_landing(tmp_path, COLUMNS)


@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("folded", [False, True])
def test_a_changed_key_keeps_the_values_that_were_not_sent(
    made: Pipeline, tmp_path: Path, folded: bool, headers: bool
) -> None:
    land(tmp_path, 0, [item(0, 1, text="large"), item(1, 7)])
    if folded:
        take(made)
        fold(made, "run-1")
    later = item(5, 2, 3, "u", text=GONE)
    land(tmp_path, 2, [*moved(2, 1, 2, 2, headers), later])
    outcome = take(made)
    assert (outcome.facts["key_changes"], outcome.facts["refused"]) == (1, {})
    assert rows(made) == {2: (3, "large"), 7: (1, "t1001")}
    assert fold(made, "run-2") == 0
    assert rows(made, What.TABLE) == {2: (3, "large"), 7: (1, "t1001")}
    assert count_refused(made, "items") == []
    check_counts(made)


def test_chains_swaps_and_there_and_back(made: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [item(0, 1, text="one"), item(1, 2, text="two"), item(2, 3, text="three")])
    take(made)
    fold(made, "run-1")
    chain = [*moved(10, 1, 11), *moved(13, 11, 12), *moved(16, 12, 13)]
    swap = [*moved(20, 2, 99), *moved(23, 3, 2), *moved(26, 99, 3)]
    back = [*moved(30, 13, 14), *moved(33, 14, 13)]
    for start, records in ((10, chain), (20, swap), (30, back)):
        land(tmp_path, start, records)
    assert take(made).facts["key_changes"] == 8
    expected = {13: (1, "one"), 2: (1, "three"), 3: (1, "two")}
    assert rows(made) == expected
    fold(made, "run-2")
    assert rows(made, What.TABLE) == expected


def test_the_delete_was_folded_before_the_insert_landed(made: Pipeline, tmp_path: Path) -> None:
    """The row under the old key is gone from the newest snapshot; the one before has it."""
    first, second, third = moved(2, 1, 2)
    land(tmp_path, 0, [item(0, 1, text="large"), item(1, 7)])
    take(made)
    fold(made, "run-1")
    land(tmp_path, 2, [first, second])
    take(made)
    fold(made, "run-2")
    land(tmp_path, 4, [third, item(5, 2, 3, "u", text=GONE)])
    assert take(made).facts["key_changes"] == 1
    assert rows(made)[2] == (3, "large")


@pytest.mark.rotates(6)
@pytest.mark.parametrize("cut", range(1, 9))
def test_a_chain_may_be_cut_between_any_two_records(made: Pipeline, tmp_path: Path, cut: int) -> None:
    """A row that only lived in the chain is deleted by what landed, and needed by what lands next."""
    land(tmp_path, 0, [item(0, 1, text="large"), item(1, 7)])
    take(made)
    fold(made, "run-1")
    chain = [*moved(2, 1, 2), *moved(5, 2, 3), *moved(8, 3, 4)]
    land(tmp_path, 2, chain[:cut])
    take(made)
    fold(made, "run-2")
    land(tmp_path, 2 + cut, chain[cut:])
    take(made)
    assert rows(made) == {4: (1, "large"), 7: (1, "t1001")}
    assert count_refused(made, "items") == []
    fold(made, "run-3")
    assert rows(made, What.TABLE) == {4: (1, "large"), 7: (1, "t1001")}
    check_counts(made)


def test_a_key_change_that_was_sent_again_before_a_truncate_waits_for_nothing(made: Pipeline, tmp_path: Path) -> None:
    """Found by the torture rig: the row that the last create needs only lived in the chain, and the truncate removed
    both. A newer change supersedes a record whose values are not known, as any other.
    """
    land(tmp_path, 0, [item(0, 8, text="large"), item(1, 7)])
    take(made)
    fold(made, "run-1")
    there = [*moved(2, 8, 12), *moved(5, 12, 8)]
    again = [{**one, "offset": one["offset"] + 6} for one in there]
    truncate = record(14, order=1014, op="t", key=None, before=None, after=None)
    land(tmp_path, 2, there)
    land(tmp_path, 8, [*again, truncate, item(15, 9)])
    assert take(made).facts["refused"] == {}
    assert count_refused(made, "items") == []
    assert rows(made) == {9: (1, "t1015")}
    fold(made, "run-2")
    assert rows(made, What.TABLE) == {9: (1, "t1015")}
    check_counts(made)


@pytest.mark.parametrize("later", ["u", "d"])
def test_a_newer_change_settles_a_key_change_whose_values_are_unknown(
    made: Pipeline, tmp_path: Path, later: str
) -> None:
    land(tmp_path, 0, [item(0, 7), *moved(1, 1, 2)])
    assert take(made).facts["refused"] == {"UNAVAILABLE_AFTER_KEY_CHANGE": 1}
    land(tmp_path, 4, [item(4, 2, 5, later, text="whole"), item(5, 7, 6)])
    assert take(made).facts["key_changes"] == 1
    assert count_refused(made, "items") == []
    assert rows(made) == {7: (6, "t1005")} | ({2: (5, "whole")} if later == "u" else {})
    check_counts(made)


@pytest.mark.parametrize("headers", [True, False])
def test_newer_changes_settle_a_swap_of_keys_whose_values_are_unknown(
    made: Pipeline, tmp_path: Path, headers: bool
) -> None:
    """Torture, seed 10: each key of the swap was the old key of another change, so that none was settled for ever."""
    land(tmp_path, 0, [*moved(0, 1, 9, 1, headers), *moved(3, 2, 1, 1, headers), *moved(6, 9, 2, 1, headers)])
    assert take(made).facts["refused"] == {"UNAVAILABLE_AFTER_KEY_CHANGE": 3}
    land(tmp_path, 9, [item(9, 1, text="one"), item(10, 2, text="two")])
    take(made)
    retry(made, "items")
    assert count_refused(made, "items") == []
    assert rows(made) == {1: (1, "one"), 2: (1, "two")}
    check_counts(made)


@pytest.mark.parametrize("folds", [False, True])
def test_a_process_that_dies_before_the_second_commit_loses_no_row(
    made: Pipeline, tmp_path: Path, folds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 0037: the row waits in quarantine until the next ingest, also if the delete was folded meanwhile."""
    from tidefold.operations.ingest import ingest

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    land(tmp_path, 0, [item(0, 1, text="large"), item(1, 7)])
    take(made)
    fold(made, "run-1")
    land(tmp_path, 2, moved(2, 1, 2))
    with monkeypatch.context() as killed:
        killed.setattr(ingest, "retry", die)
        with pytest.raises(KeyboardInterrupt):
            take(made)
    assert [one.reason for one in count_refused(made, "items")] == ["UNAVAILABLE_AFTER_KEY_CHANGE"]
    if folds:
        fold(made, "run-2")
        assert rows(made, What.TABLE) == {7: (1, "t1001")}
    land(tmp_path, 5, [item(5, 2, 3, "u", text=GONE)])
    assert take(made).facts["key_changes"] == 1
    assert rows(made) == {2: (3, "large"), 7: (1, "t1001")}
    fold(made, "run-3")
    assert rows(made, What.TABLE) == {2: (3, "large"), 7: (1, "t1001")}
    check_counts(made)


def test_a_value_that_cannot_be_known_stops_no_other_key(made: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [*moved(0, 1, 2), item(5, 2, 3, "u", text=GONE), item(6, 7)])
    outcome = take(made)
    assert outcome.facts["refused"] == {"UNAVAILABLE_AFTER_KEY_CHANGE": 1}
    assert fold(made, "run-1") == 1
    assert rows(made, What.TABLE) == {7: (1, "t1006")}
    latest = state_of(made).latest
    assert latest
    assert [json.loads(one) for one in latest.unresolved_keys] == [{"columns": ["text"], "key": {"id": 2}}]
    # An incremental snapshot sends the row whole.
    land(tmp_path, 10, [item(10, 2, 3, "r", text="large", snapshot="incremental")])
    take(made)
    assert fold(made, "run-2") == 0
    assert rows(made, What.TABLE) == {2: (3, "large"), 7: (1, "t1006")}


def test_a_change_of_a_key_waits_for_the_partition_of_the_old_one(made: Pipeline, tmp_path: Path) -> None:
    def land_in(partition: int, start: int, records: list[dict[str, Any]]) -> None:
        lines = [{**one, "partition": partition} for one in records]
        land(tmp_path, start, lines, name=PARTITIONED.replace("{partition}", str(partition)))

    first, second, third = moved(2, 1, 2)
    land_in(0, 0, [item(0, 1, text="large")])
    land_in(1, 0, [item(0, 7, order=1001)])
    take(made)
    land_in(1, 1, [{**third, "offset": 1}, item(2, 2, 3, "u", order=1004, text=GONE), item(3, 8, order=1005)])
    assert take(made).facts["refused"] == {"UNAVAILABLE_AFTER_KEY_CHANGE": 1}
    assert fold(made, "run-1") == 1
    assert rows(made, What.TABLE) == {1: (1, "large"), 7: (1, "t1001"), 8: (1, "t1005")}
    land_in(0, 2, [first, second])
    assert take(made).facts["key_changes"] == 1
    assert fold(made, "run-2") == 0
    assert rows(made, What.TABLE) == {2: (3, "large"), 7: (1, "t1001"), 8: (1, "t1005")}


def test_after_many_files_a_waiting_change_of_a_key_is_left_to_a_retry(
    made: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit: what may never come is not looked up with every ingest for ever."""
    from tidefold.operations.ingest import ingest

    monkeypatch.setattr(ingest, "_LOOKS", 2)
    land(tmp_path, 0, [item(0, 7), *moved(1, 1, 2)])
    take(made)
    looks: list[str] = []
    monkeypatch.setattr(ingest, "retry", lambda pipeline, log, *reasons: looks.append(log) or retry(pipeline, log))
    for offset in range(10, 15):
        land(tmp_path, offset, [item(offset, 7)])
        assert take(made).error_code is None
    assert looks == ["items"] * 2
    assert retry(made, "items").facts["staying"] == 1


def test_a_refused_record_of_the_old_key_is_waited_for(
    made: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I32: it may hold the value; the row must not get an older one."""
    land(tmp_path, 0, [item(0, 1, text="old"), item(1, 1, 100, "u", text="new"), *moved(2, 1, 2)])
    with older_program(monkeypatch):
        assert take(made).facts["refused"] == {"VALUE_INVALID": 1, "UNAVAILABLE_AFTER_KEY_CHANGE": 1}
        fold(made, "run-1")
    outcome = retry(made, "items")
    assert outcome.facts["staying"] == 0
    assert rows(made) == {2: (1, "new")}
    fold(made, "run-2")
    assert rows(made, What.TABLE) == {2: (1, "new")}
    check_counts(made)


def test_an_ingest_without_a_change_of_a_key_looks_nothing_up(
    made: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidefold.operations.ingest import ingest

    monkeypatch.setattr(ingest, "retry", lambda *given: pytest.fail("nothing is to be looked up"))
    land(tmp_path, 0, [item(0, 1), item(1, 1, op="u", text=GONE), item(2, 2, op="x")])
    assert take(made).facts["refused"] == {"OP_UNKNOWN": 1}


def signalled(offset: int, position: int, seen_at: int, table: dict[int, tuple[int, str]]) -> list[dict[str, Any]]:
    """A blocking snapshot by signal: the rows of another moment, under the position of the stream."""
    marks = ["first", *["true"] * (len(table) - 2), "last"]
    at_place = {"order": position, "sequence": f'["{position}","{position}"]', "ts_us": seen_at * 1000}
    return [
        item(offset + at, key, n, "r", text=text, snapshot=mark, **at_place)
        for at, ((key, (n, text)), mark) in enumerate(zip(sorted(table.items()), marks, strict=True))
    ]


def lagging_source(rnd: random.Random) -> tuple[list[dict[str, Any]], dict[int, tuple[int, str]]]:
    """Records of a stream with two snapshots by signal while the connector lags, and the rows at the end."""
    table = {key: (1, f"row {key}") for key in (1, 2, 3, 4)}
    records = [item(at, key, text=f"row {key}") for at, key in enumerate(table)]
    changes: list[list[dict[str, Any]]] = []
    states = [dict(table)]
    for number in range(16):
        key, n, order = rnd.choice(sorted(table)), 10 + number, 2000 + 10 * number
        _, text = table[key]
        deed = rnd.choice(("move", "move", "move", "set", "write", "again"))
        if deed == "move":
            to = rnd.choice([one for one in range(1, 8) if one not in table])
            named = [{"key": "__debezium.oldkey", "value": {"id": key}}]
            changes.append([item(0, key, op="d", order=order), item(0, to, n, order=order, text=GONE, headers=named)])
            del table[key]
            table[to] = (n, text)
        elif deed == "again":
            changes.append([item(0, key, op="d", order=order), item(0, key, n, order=order + 1, text=f"new {number}")])
            table[key] = (n, f"new {number}")
        else:
            text, sent = (text, GONE) if deed == "set" else (f"large {number}",) * 2
            changes.append([item(0, key, n, "u", order=order, text=sent)])
            table[key] = (n, text)
        states.append(dict(table))
    begins = dict(zip(sorted(rnd.sample(range(1, 9), 2)), sorted(rnd.choices(range(9, 17), k=2)), strict=True))
    for at, change in enumerate(changes):
        if at in begins:
            seen = begins[at]
            records += signalled(0, 1994 + 10 * at, 1994 + 10 * seen, states[seen])
        records += change
    return [{**one, "offset": at} for at, one in enumerate(records)], table


@pytest.mark.rotates(8)
@pytest.mark.parametrize("seed", range(12))
def test_a_changed_key_sees_no_snapshot_that_was_read_after_it(made: Pipeline, tmp_path: Path, seed: int) -> None:
    """Found by the torture rig: a blocking snapshot by signal shows rows as they are when it runs, under the position
    of the stream. Older changes of keys follow it, and took the values of the row that has their old key later.
    """
    rnd = random.Random(seed)
    records, expected = lagging_source(rnd)
    begin = 0
    while begin < len(records):
        end = min(len(records), begin + rnd.choice((3, 8, 20)))
        land(tmp_path, begin, records[begin:end])
        take(made)
        if rnd.random() < 0.5 or end == len(records):
            fold(made, f"run-{begin}")
        begin = end
    assert count_refused(made, "items") == []
    assert rows(made) == expected
    assert rows(made, What.TABLE) == expected
    check_counts(made)


@pytest.mark.parametrize(("committed", "is_complete"), [(2050, False), (2150, True)])
def test_without_rows_from_before_a_snapshot_by_signal_only_later_changes_are_completed(
    tmp_path: Path, committed: int, is_complete: bool
) -> None:
    """The rows from before it are no longer in the store. The times in the records show what it does not show."""
    from tidefold.operations.retention.subsume import subsume
    from tidefold.operations.retention.truncate import truncate

    path = make_landing(tmp_path, COLUMNS).config.path
    path.write_text(path.read_text() + "retention: {snapshots: 1}\n")
    made = open_pipeline(path)
    land(tmp_path, 0, [item(0, 1, text="row 1"), item(1, 2, text="row 2")])
    take(made)
    fold(made, "before")
    # Row 2 has the key 1 when the snapshot runs.
    land(tmp_path, 2, signalled(2, 2000, 2100, {1: (1, "row 2"), 3: (1, "row 1")}))
    for number in range(4):
        land(tmp_path, 4 + number, [item(4 + number, 9, number, order=2001 + number)])
        take(made)
        fold(made, f"after-{number}")
    subsume(made, "items")
    truncate(made, "items")
    headers = [{"key": "__debezium.oldkey", "value": {"id": 1}}]
    move = item(9, 5, order=2010, text=GONE, headers=headers, ts_us=committed * 1000)
    land(tmp_path, 8, [item(8, 1, op="d", order=2010, ts_us=committed * 1000), move])
    assert take(made).facts["refused"] == ({} if is_complete else {"UNAVAILABLE_AFTER_KEY_CHANGE": 1})
    assert rows(made).get(5) == ((1, "row 2") if is_complete else None)


@pytest.mark.parametrize("keys", [(1, 3), (1, 2)])
def test_a_change_of_a_key_that_nothing_completes_is_old_after_a_snapshot_by_signal(
    made: Pipeline, tmp_path: Path, keys: tuple[int, ...]
) -> None:
    """Fault: it stayed in quarantine, although the snapshot had its row, or showed that there is none."""
    land(tmp_path, 0, [item(0, 1), *moved(1, 7, 3)])
    assert take(made).facts["refused"] == {"UNAVAILABLE_AFTER_KEY_CHANGE": 1}
    land(tmp_path, 4, signalled(4, 2000, 2100, dict.fromkeys(keys, (1, "large"))))
    take(made)
    retry(made, "items")
    assert count_refused(made, "items")
    # The stream reaches the moment that the snapshot shows.
    land(tmp_path, 6, [item(6, 9, order=2200)])
    take(made)
    retry(made, "items")
    assert not count_refused(made, "items")
    assert set(rows(made)) == {*keys, 9}


def test_a_change_of_a_key_is_refused_if_snapshot_and_stream_disagree(made: Pipeline, tmp_path: Path) -> None:
    """The stream has not brought what the snapshot shows, and the change was committed later."""
    land(tmp_path, 0, [item(0, 1, text="old"), item(1, 2)])
    land(
        tmp_path,
        2,
        [*signalled(2, 2000, 2100, {1: (1, "new"), 2: (1, "t1001")}), *moved(1200, 1, 3), *moved(1203, 2, 4)],
    )
    assert take(made).facts["refused"] == {"UNAVAILABLE_AFTER_KEY_CHANGE": 1}
    assert rows(made) == {4: (1, "t1001")}


def test_a_compaction_keeps_the_values_that_a_waiting_change_of_a_key_needs(
    made: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process died before the second commit; another row has the old key since."""
    from tidefold.operations.ingest import ingest
    from tidefold.operations.snapshot.compact_log import compact_log

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    land(tmp_path, 0, [item(0, 1, text="old"), item(1, 7)])
    take(made)
    fold(made, "run-1")
    land(tmp_path, 2, [item(2, 1, 2, "u", text="new")])
    take(made)
    land(tmp_path, 3, [*moved(3, 1, 2), item(6, 1, text="another")])
    with monkeypatch.context() as killed:
        killed.setattr(ingest, "retry", die)
        with pytest.raises(KeyboardInterrupt):
            take(made)
    compact_log(made, "items")
    land(tmp_path, 7, [item(7, 8)])
    take(made)
    assert rows(made) == {1: (1, "another"), 2: (1, "new"), 7: (1, "t1001"), 8: (1, "t1007")}


def test_a_compaction_keeps_the_values_that_a_snapshot_by_signal_hides(made: Pipeline, tmp_path: Path) -> None:
    from tidefold.operations.snapshot.compact_log import compact_log

    land(tmp_path, 0, [item(0, 1, text="old"), item(1, 7)])
    take(made)
    fold(made, "run-1")
    land(tmp_path, 2, [item(2, 1, 2, "u", text="new")])
    take(made)
    land(tmp_path, 3, signalled(3, 1500, 2500, {1: (1, "another"), 2: (1, "new")}))
    take(made)
    compact_log(made, "items")
    land(tmp_path, 5, [{**one, "offset": 5 + at} for at, one in enumerate(moved(1000, 1, 2))])
    take(made)
    assert rows(made) == {2: (1, "new")}


@pytest.mark.parametrize("lands_last", [True, False])
def test_a_compaction_between_the_halves_of_a_change_of_a_key_keeps_its_values(
    made: Pipeline, tmp_path: Path, lands_last: bool
) -> None:
    """A file ends between the delete of the old key and the insert of the new one."""
    from tidefold.operations.snapshot.compact_log import compact_log

    deleted, gone, created = moved(3, 1, 2)
    land(tmp_path, 0, [item(0, 1, text="old"), item(1, 7)])
    take(made)
    fold(made, "run-1")
    land(tmp_path, 2, [item(2, 1, 2, "u", text="new")])
    take(made)
    land(tmp_path, 3, [deleted, gone] if lands_last else [deleted])
    take(made)
    compact_log(made, "items")
    land(tmp_path, 5 if lands_last else 4, [created] if lands_last else [gone, created])
    take(made)
    assert rows(made) == {2: (1, "new"), 7: (1, "t1001")}


def _stream(draw: random.Random, count: int, headers: bool) -> list[dict[str, Any]]:
    """Inserts, updates and changes of keys whose large values were not sent."""
    records, live, free = [], [], list(range(1, 40))
    while len(records) < count:
        at = len(records)
        kind = draw.choice("iumm") if live else "i"
        if kind == "i":
            live.append(free.pop(0))
            records.append(item(at, live[-1]))
        elif kind == "u":
            records.append(item(at, draw.choice(live), draw.randrange(90), "u", text=draw.choice([GONE, f"u{at}"])))
        else:
            old, new = live.pop(draw.randrange(len(live))), free.pop(0)
            live.append(new)
            free.append(old)
            records += moved(at, old, new, headers=headers)
    return records


@pytest.mark.parametrize("begin", [2, 3, 4])
def test_the_delete_came_with_an_earlier_file_that_overlaps(made: Pipeline, tmp_path: Path, begin: int) -> None:
    """Without the header of the old key: the record was refused for good, and no retry completed it."""
    records = [item(0, 1, text="large"), item(1, 7), *moved(2, 1, 2, 2, headers=False), item(5, 2, 3, "u", text=GONE)]
    land(tmp_path, 0, records[:4])
    take(made)
    fold(made, "run-1")
    land(tmp_path, begin, records[begin:])
    assert take(made).facts["key_changes"] == 1
    assert rows(made) == {2: (3, "large"), 7: (1, "t1001")}
    assert count_refused(made, "items") == []
    check_counts(made)


@pytest.mark.rotates(12)
@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_files_that_overlap_and_grow_change_nothing(made: Pipeline, tmp_path: Path, seed: int, headers: bool) -> None:
    """A file that was taken grows, and another one begins within it, in one run: no record may be refused for it."""
    draw = random.Random(seed)
    records = _stream(draw, 40, headers)
    truth = make_landing(tmp_path / "truth", COLUMNS)
    land(tmp_path / "truth", 0, records)
    take(truth)
    start, end, run = 0, 0, 0
    while end < len(records):
        end = min(end + draw.randrange(1, 9), len(records))
        land(tmp_path, start, records[start:end])
        if draw.random() < 0.6 and end < len(records):
            start = draw.randrange(max(0, end - 6), end + 1)
            end = min(end + draw.randrange(1, 9), len(records))
            land(tmp_path, start, records[start:end])
        outcome = take(made)
        assert not outcome.facts["refused"], (outcome, records[start])
        if draw.random() < 0.5:
            fold(made, f"run-{run}")
        run += 1
    assert count_refused(made, "items") == []
    assert rows(made) == rows(truth)
    check_counts(made)


@pytest.mark.parametrize("gap", [0, 1, 5])
def test_values_alone_whose_key_changes_between_two_files(made: Pipeline, tmp_path: Path, gap: int) -> None:
    """The sink writes no tombstones, so the name of the second file may be further on than the offsets counted."""
    values = [item(0, 1, text="large"), item(1, 7), *moved(2, 1, 5, headers=False)]
    lines = [one["value"] for one in values if one["value"]]
    land(tmp_path, 0, lines[:3])
    land(tmp_path, 3 + gap, lines[3:])
    take(made)
    assert rows(made) == {5: (1, "large"), 7: (1, "t1001")}
    assert count_refused(made, "items") == []
