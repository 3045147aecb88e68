"""Tail-only snapshots and the squash of the tail, against real segments and Delta tables, no Spark.

Requirements C10, C11, C12; promises I4, I5, I9, I10, I12, I18, I22. The oracle is a dict that takes every change.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.effort import list_moments
from support.faults import Fault, FaultyStore, attempt, on_copy, reopened
from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows
from support.savepoints import changed
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import SnapshotKind, State
from tidefold.domain.paths import INTENTS
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import ConflictError, RefusedError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.retention.references import hold, register, release, tag, untag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot import compact_log as compaction
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

Rows = dict[int, str | None]
KEEPING = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A log whose snapshot 1 has 40 rows."""
    made = make_pipeline(tmp_path, KEEPING)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(40)])
    cycle(made, "run-1")
    return made


def cycle(pipeline: Pipeline, run: str, restore: RestorePoint | None = None) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Restore(run, restore) if restore else Fold(run), in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run=run)).status == "published"
    return outcome


def tail(pipeline: Pipeline, run: str) -> int:
    outcome = take_tail(pipeline, "accounts", run)
    assert outcome.status == "completed"
    assert outcome.snapshot
    return outcome.snapshot


def rows_read(pipeline: Pipeline, wanted: ReadRequest) -> Rows:
    _, batches = read_rows(pipeline, "accounts", wanted)
    return {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()}


def many_tails(pipeline: Pipeline, count: int) -> dict[int, Rows]:
    """Tails of random changes on the newest materialization, with the rows that each must have."""
    chance, rows, found = random.Random(11), table_rows(pipeline), {}
    for number in range(count):
        keys = chance.sample(range(60), 5)
        rows = changed(pipeline, rows, {key: chance.choice([None, f"{number} {key}"]) for key in keys})
        found[tail(pipeline, f"tail-{number}")] = rows
    return found


def test_many_tails_share_one_materialization_and_each_is_the_fold_up_to_its_end(pipeline: Pipeline) -> None:
    published = table_rows(pipeline)
    found = many_tails(pipeline, 12)
    assert {i: rows_read(pipeline, ReadRequest(snapshot=i)) for i in found} == found
    state = pipeline.ledger("accounts").read()
    assert [(s.kind, s.base, s.state, s.table_version) for s in state.snapshots[1:]] == [
        (SnapshotKind.TAIL, 1, State.COMPLETED, None)
    ] * 12
    # Never published: readers of the table see what they saw.
    assert table_rows(pipeline) == published
    assert state.latest
    assert state.latest.id == 1


def test_a_tail_costs_one_small_write_whatever_the_log_and_the_table_hold(pipeline: Pipeline) -> None:
    """C10: O(1) writes."""
    counting = FaultyStore(Path(pipeline.store.uri("")))
    counted = replace(pipeline, store=counting)
    calls, written = [], []
    for number in range(60):
        put(pipeline, [{"id": number, "text": "b"}])
        calls_before, stored = counting.calls, {e.path for e in pipeline.store.list("")}
        tail(counted, f"tail-{number}")
        calls.append(counting.calls - calls_before)
        written.append([e for e in pipeline.store.list("") if e.path not in stored])
    assert [len(new) for new in written] == calls
    # One version of the ledger and its empty mark; now and then a page of its lists is full and put beside it.
    assert {calls.count(2), calls.count(3)} == {59, 1}
    assert {e.path.split("/")[2] for new in written for e in new} == {"ledger", "pages", "_delta_log"}
    assert not any(e.bytes for new in written for e in new if "/_tidefold/" in e.path)
    assert max(e.bytes for new in written for e in new) <= 64 << 10


def test_the_same_run_again_and_nothing_new_write_nothing(pipeline: Pipeline) -> None:
    """I4."""
    assert take_tail(pipeline, "accounts", "tail-0").status == "nothing"
    put(pipeline, [{"id": 1, "text": "b"}])
    first = tail(pipeline, "tail-1")
    before = pipeline.store.list("")
    again = take_tail(pipeline, "accounts", "tail-1")
    assert (again.status, again.snapshot) == ("already", first)
    assert take_tail(pipeline, "accounts", "tail-2").status == "nothing"
    assert confirm(pipeline, "accounts", Confirmation(snapshot=first)).status == "already"
    assert pipeline.store.list("") == before


def test_without_a_materialization_there_is_no_tail(pipeline: Pipeline) -> None:
    assert take_tail(pipeline, "tellers", "tail-1").status == "nothing"
    put(pipeline, [{"id": 1, "text": "a"}], log="tellers")
    with pytest.raises(RefusedError) as refused:
        take_tail(pipeline, "tellers", "tail-1")
    assert refused.value.code == "NOTHING_MATERIALIZED"


def test_a_tail_beside_an_open_attempt_is_built_on_what_is_complete(pipeline: Pipeline) -> None:
    rows = changed(pipeline, table_rows(pipeline), {1: "b"})
    materialize(pipeline, ["accounts"], Fold("run-2"), in_process)
    found = tail(pipeline, "tail-1")
    assert rows_read(pipeline, ReadRequest(snapshot=found)) == rows
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run="run-2")).status == "published"
    assert table_rows(pipeline) == rows
    assert rows_read(pipeline, ReadRequest(snapshot=found)) == rows


def test_tails_go_with_what_they_are_built_on_and_are_counted_apart(pipeline: Pipeline) -> None:
    """C11, I18."""
    found = many_tails(pipeline, 4)
    for number in (2, 3):
        put(pipeline, [{"id": number, "text": "c"}])
        cycle(pipeline, f"run-{number}")
    planned = subsume(pipeline, "accounts", plan=True)
    done = subsume(pipeline, "accounts")
    for outcome, verb in ((planned, "would retire"), (done, "retired")):
        assert outcome.message.startswith(f"{verb} snapshots 1 and 4 tails: ")
        assert (outcome.facts["tails"], outcome.facts["snapshots"]) == (4, [1, *found])
    states = {s.id: s.state for s in pipeline.ledger("accounts").read().snapshots}
    assert {states[i] for i in (1, *found)} == {State.DELETED}
    cut = truncate(pipeline, "accounts")
    assert [b["name"] for b in cut.facts["bounds"]] == ["replay", "materialized"]
    assert len(pipeline.store.list("changelog")) == 1
    assert subsume(pipeline, "accounts").status == "nothing"


@pytest.mark.parametrize("keeper", ["tag", "hold"])
def test_a_tag_or_a_hold_keeps_a_tail_with_its_base_and_its_log(pipeline: Pipeline, keeper: str) -> None:
    """I9, I10, C11."""
    found = many_tails(pipeline, 4)
    kept = sorted(found)[1]
    if keeper == "tag":
        tag(pipeline, "accounts", "mine", kept)
    else:
        assert hold(pipeline, "accounts", "mine", kept, "audit").status == "held"
    for number in (2, 3, 4):
        put(pipeline, [{"id": number, "text": "c"}])
        cycle(pipeline, f"run-{number}")
    assert subsume(pipeline, "accounts").facts["tails"] == 3
    cut = truncate(pipeline, "accounts")
    # What the tail consists of begins right behind its base, snapshot 1, which folded change set 1.
    assert cut.facts["truncated_to"] == 1
    named = {b["name"]: b["sqn"] for b in cut.facts["bounds"]}
    assert (named["tail"], named.get("hold mine")) == (1, 1 if keeper == "hold" else None)
    assert rows_read(pipeline, ReadRequest(snapshot=kept)) == found[kept]
    after = table_rows(pipeline)
    staged = cycle(pipeline, "back", RestorePoint(kept, RestoreMode.REPLAY))
    assert table_rows(pipeline) == found[kept]
    assert staged.facts["restored"] == kept
    cycle(pipeline, "forth")
    assert table_rows(pipeline) == after
    (untag if keeper == "tag" else release)(pipeline, "accounts", "mine")
    assert subsume(pipeline, "accounts").facts["tails"] == 1
    assert truncate(pipeline, "accounts").facts["truncated_to"] > 1


def test_the_restore_of_a_tail_is_the_fold_up_to_its_end(pipeline: Pipeline) -> None:
    """I5, I10: of every tail, whatever was published since."""
    found = many_tails(pipeline, 3)
    rows = changed(pipeline, found[max(found)], {5: "late"})
    cycle(pipeline, "run-2")
    for number, snapshot in enumerate(found):
        tag(pipeline, "accounts", f"t{snapshot}", snapshot)
        cycle(pipeline, f"back-{number}", RestorePoint(snapshot, RestoreMode.REPLAY))
        assert table_rows(pipeline) == found[snapshot]
        cycle(pipeline, f"forth-{number}")
        assert table_rows(pipeline) == rows


def sets(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Of each change set the first and the last sqn that it stands for."""
    return [(c.begin, c.sqn) for c in pipeline.ledger("accounts").read().change_sets]


def test_a_squash_keeps_the_rows_of_every_tail_and_of_every_replay(pipeline: Pipeline) -> None:
    """C12, I5: deletes too, else a key would come back from the base."""
    rows = table_rows(pipeline)
    for number in range(6):
        rows = changed(pipeline, rows, {1: f"{number}", number + 2: None, 50 + number: f"new {number}"}, commits=True)
    middle, middle_rows = tail(pipeline, "tail-1"), rows
    for number in range(6):
        rows = changed(pipeline, rows, {1: f"then {number}", 50 + number: None, 2: "back"}, commits=True)
    last = tail(pipeline, "tail-2")
    before = sum(c.rows for c in pipeline.ledger("accounts").read().unfolded)
    planned = compact_log(pipeline, "accounts", plan=True)
    assert (planned.status, planned.facts) == ("planned", {"change_sets": 12, "changes": before, "into": 2})
    assert len(sets(pipeline)) == 13
    done = compact_log(pipeline, "accounts")
    # Of 18 changes each: key 1, six deletes, six new; then key 1, key 2, six deletes. Keys 1 and 2 also keep what they
    # were before the newest transaction.
    assert (done.status, done.facts["changes_kept"]) == ("compacted", 13 + 8 + 2)
    assert sets(pipeline) == [(1, 1), (2, 7), (8, 13)]
    assert compact_log(pipeline, "accounts").status == "nothing"
    assert rows_read(pipeline, ReadRequest(snapshot=middle)) == middle_rows
    assert rows_read(pipeline, ReadRequest(snapshot=last)) == rows
    assert rows_read(pipeline, ReadRequest(What.LIVE)) == rows
    assert truncate(pipeline, "accounts").facts["files"] == 13  # Also that of change set 1, which is folded.
    assert len(pipeline.store.list("changelog")) == 2
    assert pipeline.store.list(INTENTS) == []
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == rows
    cycle(pipeline, "run-3", RestorePoint(1, RestoreMode.REPLAY))
    cycle(pipeline, "run-4")
    assert table_rows(pipeline) == rows
    cycle(pipeline, "run-5", RestorePoint(middle, RestoreMode.REPLAY))
    assert table_rows(pipeline) == middle_rows


def test_change_sets_appended_later_are_squashed_with_an_earlier_squash(pipeline: Pipeline) -> None:
    rows = table_rows(pipeline)
    for round_ in range(3):
        for number in range(3):
            rows = changed(pipeline, rows, {1: f"{round_}.{number}", 7: None if number == 1 else f"{round_}"})
        compact_log(pipeline, "accounts")
        assert sets(pipeline) == [(1, 1), (2, 4 + 3 * round_)]
    assert rows_read(pipeline, ReadRequest(What.LIVE)) == rows
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == rows


def test_a_reader_is_a_boundary(pipeline: Pipeline) -> None:
    """C11: he goes on reading from where he stands."""
    rows = table_rows(pipeline)
    for number in range(6):
        rows = changed(pipeline, rows, {1: f"{number}"}, commits=True)
    register(pipeline, "accounts", "index", 4)
    compact_log(pipeline, "accounts")
    assert sets(pipeline) == [(1, 1), (2, 4), (5, 7)]
    _, batches = read_rows(pipeline, "accounts", ReadRequest(What.LOG, since=4))
    assert [(row["id"], row["text"]) for batch in batches for row in batch.to_pylist()] == [(1, "4"), (1, "5")]
    assert rows_read(pipeline, ReadRequest(What.LIVE)) == rows


def test_while_an_attempt_is_made_nothing_is_squashed(pipeline: Pipeline) -> None:
    """I6: it reads exactly what it planned."""
    for number in range(3):
        put(pipeline, [{"id": 1, "text": f"{number}"}])

    def at_work(work: Any, tasks: Any) -> Any:
        assert compact_log(pipeline, "accounts").status == "nothing"
        return in_process(work, tasks)

    [outcome] = materialize(pipeline, ["accounts"], Fold("run-2"), at_work)
    assert outcome.status == "staged"


def test_a_squash_that_comes_too_late_changes_nothing_and_leaves_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I20: somebody registers a reader in the middle of the run while it is written."""
    for number in range(4):
        put(pipeline, [{"id": 1, "text": f"{number}"}])
    real = compaction.compact_changes

    def disturbed(*given: Any, **how: Any) -> Any:
        register(pipeline, "accounts", "index", 3)
        return real(*given, **how)

    monkeypatch.setattr(compaction, "compact_changes", disturbed)
    stored = {e.path for e in pipeline.store.list("changelog")}
    with pytest.raises(ConflictError) as lost:
        compact_log(pipeline, "accounts")
    assert lost.value.code == "RUN_GONE"
    assert {e.path for e in pipeline.store.list("changelog")} == stored
    assert len(sets(pipeline)) == 5
    monkeypatch.undo()
    assert compact_log(pipeline, "accounts").facts["into"] == 2


def squashes(at_work: Pipeline, run: str) -> None:
    compact_log(at_work, "accounts")


def tails(at_work: Pipeline, run: str) -> None:
    take_tail(at_work, "accounts", run)


@pytest.mark.parametrize("act", [squashes, tails], ids=["squash", "tail"])
def test_after_any_fault_the_next_call_ends_as_if_nothing_had_happened(
    pipeline: Pipeline, tmp_path: Path, act: Callable[[Pipeline, str], None]
) -> None:
    """I19: every call that changes the store fails in turn."""
    rows = table_rows(pipeline)
    for number in range(4):
        rows = changed(pipeline, rows, {1: f"{number}", number: None if number % 2 else "b"})
    folder = tmp_path.with_name(f"{tmp_path.name}-copy")
    whole = on_copy(tmp_path, folder, config=KEEPING)
    act(whole, "run-2")
    expected, cases = sets(whole), 0
    assert isinstance(whole.store, FaultyStore)
    for fault in Fault:
        for at in list_moments(whole.store.calls, fault):
            attempt(on_copy(tmp_path, folder, config=KEEPING, at=at, fault=fault), act)
            assert rows_read(reopened(folder, config=KEEPING), ReadRequest(What.LIVE)) == rows
            recovered = reopened(folder, config=KEEPING)
            act(recovered, "run-2")
            assert sets(recovered) == expected
            assert sum(s.kind is SnapshotKind.TAIL for s in recovered.ledger("accounts").read().snapshots) == (
                act is tails
            )
            assert rows_read(recovered, ReadRequest(What.LIVE)) == rows
            # What every named segment holds can be read: nothing that is needed went with the cleaning up.
            for change_set in recovered.ledger("accounts").read().change_sets:
                read_change_set(recovered.store, change_set)
            cases += 1
    print(f"{cases} cases")
