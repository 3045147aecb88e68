"""The log's tail is compacted by itself: by count and bytes, for every engine, never where backfills need it. C12.

The oracle is the same pipeline without compaction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.engine_cases import ANY, OWN, histories, named, shape_of
from support.folding import folded
from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows
from tidefold.changelog.schema import change_schema
from tidefold.compute.runners import in_process
from tidefold.domain.commit_times import CommitTimeRange
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet, ChangeSetLocation, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.retention.log_bounds import CompactionTrigger, LogRetention, compact, find_due_runs
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import ConflictError, CorruptError, StorageError
from tidefold.fold.merge.compaction import compact_changes
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot import compact_log as operation
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

LOG = "accounts"


def make(folder: Path, compaction: str = "{change_sets: 4}", merge: str = "last", extra: str = "") -> Pipeline:
    """A log whose snapshot 1 has key 0; merge: the engine."""
    head = f"store: store\ncompaction: {compaction}\n{extra}"
    text = CONFIG.replace("store: store\n", head).replace(
        "    buckets: 4\n", f"    buckets: 4\n    merge: {merge}\n", 1
    )
    if merge == "append":
        text = text.replace("    key: [id]\n", "", 1)
    pipeline = make_pipeline(folder, text)
    put(pipeline, [{"id": 0, "text": "a"}])
    cycle(pipeline, "run-1")
    return pipeline


def cycle(pipeline: Pipeline, run: str) -> None:
    [outcome] = materialize(pipeline, [LOG], Fold(run), in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline)
    assert confirm(pipeline, LOG, Confirmation(run=run)).status == "published"


def wait(pipeline: Pipeline, count: int, text: str = "b") -> None:
    for number in range(count):
        put(pipeline, [{"id": number % 2, "text": f"{text}{number}"}])


def sets(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Of each change set the first and the last sqn that it stands for."""
    return [(c.begin, c.sqn) for c in pipeline.ledger(LOG).read().change_sets]


def live(pipeline: Pipeline) -> dict[int, str]:
    _, batches = read_rows(pipeline, LOG, ReadRequest(What.LIVE))
    return {row["id"]: row["text"] for batch in batches for row in batch.to_pylist()}


def test_an_ingest_compacts_what_waits_since_earlier_runs(tmp_path: Path) -> None:
    """By count: below it nothing is read or written; what is compacted does not count again."""
    pipeline = make(tmp_path)
    wait(pipeline, 3)
    stored = pipeline.store.list("")
    ingest(pipeline, [LOG], in_process)
    assert pipeline.store.list("") == stored
    wait(pipeline, 1)
    ingest(pipeline, [LOG], in_process)
    assert sets(pipeline) == [(1, 1), (2, 5)]
    wait(pipeline, 3)
    ingest(pipeline, [LOG], in_process)
    assert len(sets(pipeline)) == 5
    wait(pipeline, 1, "c")
    ingest(pipeline, [LOG], in_process)
    assert sets(pipeline) == [(1, 1), (2, 9)]
    assert live(pipeline) == {0: "c0", 1: "b1"}
    cycle(pipeline, "run-2")
    assert table_rows(pipeline) == {0: "c0", 1: "b1"}


def test_a_tail_compacts_before_it_ends_a_run(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    wait(pipeline, 5)
    assert take_tail(pipeline, LOG, "tail-1").facts["change_sets"] == 1
    assert sets(pipeline) == [(1, 1), (2, 6)]
    wait(pipeline, 5)
    assert take_tail(pipeline, LOG, "tail-1").status == "already"
    assert len(sets(pipeline)) == 7, "a run that has its tail changes nothing"
    take_tail(pipeline, LOG, "tail-2")
    assert sets(pipeline) == [(1, 1), (2, 6), (7, 11)], "never across the end of a tail"


def test_by_bytes_only_where_changes_are_left_out(tmp_path: Path) -> None:
    for merge, expected in (("last", 2), ("first", 2), ("partial", 4)):
        pipeline = make(tmp_path / merge, "{change_sets: 0, bytes: 1kB}", merge)
        wait(pipeline, 3, "x" * 1000)
        ingest(pipeline, [LOG], in_process)
        assert len(sets(pipeline)) == expected, merge


@pytest.mark.parametrize("engine", [e for e in Engine if e is not Engine.AGGREGATE])
def test_every_engine_has_the_same_rows(tmp_path: Path, engine: Engine) -> None:
    """C12, I5: the outcome names the engines that need each change."""
    rows = {}
    for name, compaction in (("with", "{change_sets: 4}"), ("without", "{change_sets: 0}")):
        pipeline = make(tmp_path / name, compaction, engine)
        wait(pipeline, 6)
        assert (compact_log(pipeline, LOG, only_due=True).status == "compacted") is (name == "with")
        assert len(sets(pipeline)) == (2 if name == "with" else 7)
        cycle(pipeline, "run-2")
        _, batches = read_rows(pipeline, LOG, ReadRequest())
        rows[name] = sorted((row["id"], row["text"]) for batch in batches for row in batch.to_pylist())
    assert rows["with"] == rows["without"]


def test_the_outcome_names_an_engine_that_needs_each_change(tmp_path: Path) -> None:
    pipeline = make(tmp_path, merge="history")
    wait(pipeline, 6)
    message = compact_log(pipeline, LOG).message
    assert message == (
        "compacted 6 change sets into 1: 6 of 6 changes are left, because `merge: history` needs each of them"
    )


def test_before_the_first_snapshot_nothing_is_compacted_by_itself(tmp_path: Path) -> None:
    """It folds everything once: a compaction would read the whole initial load for nothing."""
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", "store: store\ncompaction: {change_sets: 2}\n"))
    wait(pipeline, 5)
    ingest(pipeline, [LOG], in_process)
    assert len(sets(pipeline)) == 5
    assert compact_log(pipeline, LOG, only_due=True).status == "nothing"
    assert compact_log(pipeline, LOG).status == "compacted"


def test_an_error_of_a_compaction_does_not_stop_the_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make(tmp_path)
    wait(pipeline, 5)

    def fail(*given: Any) -> Any:
        raise StorageError("STORE_UNREACHABLE", "The store does not respond.", hint="Try again.")

    monkeypatch.setattr(operation, "_compact_run", fail)
    [outcome] = ingest(pipeline, [LOG], in_process)
    assert (outcome.status, outcome.error) == ("nothing", None)
    assert len(sets(pipeline)) == 6


def state_with(days: list[int | None], engine: Engine = Engine.LAST) -> LogState:
    """A state with one snapshot and a change set for each day; None: without commit times."""
    made = [
        ChangeSet(
            sqn,
            ChangeSetLocation("s.seg", sqn, 0, 100, ""),
            1,
            KeyGroups(0, 3),
            (sqn,),
            times=None if day is None else CommitTimeRange(day, day),
        )
        for sqn, day in enumerate(days, 2)
    ]
    snapshot = Snapshot(1, 1, "run", "", SnapshotKind.FULL, State.COMPLETED, None, 0, 1, "2026-01-01T00:00:00+00:00")
    return LogState(LOG, shape_of(engine), change_sets=tuple(made), snapshots=(snapshot,), truncated_to=1)


@given(
    days=st.lists(st.none() | st.integers(0, 20), max_size=20),
    since=st.none() | st.integers(0, 20),
    trigger=st.builds(CompactionTrigger, st.integers(0, 6), st.sampled_from([0, 250, 1000])),
    engine=st.sampled_from(list(Engine)),
)
@settings(max_examples=choose(120, 300), deadline=None)
def test_what_backfills_may_need_is_never_compacted(
    days: list[int | None], since: int | None, trigger: CompactionTrigger, engine: Engine
) -> None:
    """C12: each found run may be compacted, and afterwards nothing is due."""
    state = state_with(days, engine)
    log = None if since is None else LogRetention(since, 5)
    runs = find_due_runs(state, trigger, log)
    for run in runs:
        assert len(run) > 1
        assert since is None or all(c.times and c.times.last is not None and c.times.last < since for c in run)
    for run in runs:
        location = ChangeSetLocation("new.seg", run[-1].sqn, 0, 90, "")
        times = CommitTimeRange(0, 0)
        one = ChangeSet(run[-1].sqn, location, 1, KeyGroups(0, 3), (1,), first=run[0].sqn, times=times)
        state = compact(state, one, log)
    assert find_due_runs(state, trigger, log) == ()
    total = sum(len(run) for run in runs)
    if runs:
        assert total >= trigger.change_sets > 0 or (total * 100 >= trigger.bytes > 0)


CASES = [case for case in (*OWN, *ANY) if case[0].merge.engine in (Engine.LAST, Engine.FIRST)]


@pytest.mark.rotates(6)
@pytest.mark.parametrize("case", CASES, ids=named)
@given(data=st.data())
@settings(max_examples=choose(16, 40), deadline=None)
def test_a_compaction_in_the_middle_of_the_log_changes_no_row(case: Any, data: st.DataObject) -> None:
    """I5: of a part of the log, with folds before and after it."""
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(changes))] * 2)))
    middle = compact_changes(pa.Table.from_pylist(changes[begin:end], schema=change_schema(shape)), shape).to_pylist()
    assert len(middle) <= end - begin
    assert folded(shape, [changes[:begin], middle, changes[end:]]) == folded(shape, [changes])


def test_changes_that_another_process_removed_while_they_were_read_are_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make(tmp_path, "{change_sets: 100}")
    wait(pipeline, 3)
    rest, read = [True], operation.read_change_set

    def overtaken(*args: Any, **named: Any) -> pa.Table:
        if rest:
            rest.clear()
            assert compact_log(pipeline, LOG).status == "compacted"
            truncate(pipeline, LOG)
        return read(*args, **named)

    monkeypatch.setattr(operation, "read_change_set", overtaken)
    with pytest.raises(ConflictError, match="LOG_OVERTAKEN"):
        compact_log(pipeline, LOG)
    wait(pipeline, 2, "c")
    for segment in (tmp_path / "store" / "changelog").rglob("*.seg"):
        segment.unlink()
    with pytest.raises(CorruptError, match="SEGMENT_CORRUPT"):
        compact_log(pipeline, LOG)
