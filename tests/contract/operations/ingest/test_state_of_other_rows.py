"""Operations of states that depend on other rows: unnamed polls (REMOVE_FIRST_ELEMENT) and merged namespaces. S2-S5.

The oracle is the state itself; files, ingests and folds are cut anywhere.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.landing import changes_of, fold_waiting, land, state_of, take
from support.pipelines import judge_all
from support.state_logs import LIST, MAP, QUEUE, SETTINGS, SUMS, Operation, check, make, op, rows
from tidefold.changelog.schema import DELETE, UPSERT
from tidefold.compute.runners import in_process
from tidefold.config import ConfigError
from tidefold.domain.paths import INTENTS
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Restore
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

HEAD = (QUEUE[0] + ", head: [priority, id]", *QUEUE[1:])
SHARDS = (
    "kind: queue, state_key: [shard], head: [priority]", "[shard, id]", "{shard: int, id: int, priority: int}", "",
)  # fmt: skip
COUNTS = (
    "kind: reducing, state_key: [id]", "[id]", "{id: int, n: int, low: int, seen: string}",
    "merge: {engine: aggregate, aggregates: {n: count, low: min}}",
)  # fmt: skip
KEYS = st.integers(0, 3)


def merge(into: int, *sources: int) -> Operation:
    return {"op": "merge", "key": {"id": into}, "sources": [{"id": key} for key in sources]}


MERGES = st.builds(
    lambda into, sources: merge(into, *sources), KEYS, st.lists(KEYS, min_size=1, max_size=3, unique=True)
)


class TestQueue:
    _STEPS = st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 5), st.integers(0, 3)),
            st.tuples(st.just("poll"), st.just(0), st.just(0)),
            st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("clear"), st.just(0), st.just(0)),
        ),
        min_size=1,
        max_size=16,
    )

    @given(steps=_STEPS, data=st.data())
    @SETTINGS
    def test_unnamed_polls_remove_the_head(self, steps: list[tuple[str, int, int]], data: st.DataObject) -> None:
        """S5: Flink's REMOVE_FIRST_ELEMENT, for any number of elements with the same priority."""
        queue: dict[int, int] = {}
        log: list[Operation] = []
        for name, item, priority in steps:
            if name == "add":
                queue[item] = priority
                log.append(op("add", value={"id": item, "priority": priority}))
            elif name == "remove":
                queue.pop(item, None)
                log.append(op("remove", value={"id": item}))
            elif name == "clear":
                queue.clear()
                log.append(op("clear"))
            else:
                queue.pop(min(queue, key=lambda i: (queue[i], i)), None) if queue else None
                log.append(op("poll"))
        with tempfile.TemporaryDirectory() as root:
            found = check(HEAD, log, data, Path(root))
        assert {row["id"]: row["priority"] for row in found} == queue

    def test_polls_follow_the_order_of_the_queue(self, tmp_path: Path) -> None:
        """Over several ingests; an element that was added twice is polled once."""
        pipeline = make(tmp_path, HEAD)
        priorities = {1: 7, 2: 3, 3: 9, 4: 1, 5: 3, 6: 8}
        added = [op("add", value={"id": i, "priority": p}) for i, p in priorities.items()]
        land(tmp_path, 0, [*added[:4], added[3], op("poll"), op("poll")])
        take(pipeline)
        land(tmp_path, 7, [*added[4:], op("poll"), op("poll")])
        take(pipeline)
        assert [row["id"] for row in changes_of(pipeline) if row["_op"] == DELETE] == [4, 2, 5, 1]

    def test_each_key_has_a_queue_of_its_own(self, tmp_path: Path) -> None:
        pipeline = make(tmp_path, SHARDS)
        added = [
            {"op": "add", "key": {"shard": s}, "value": {"id": i, "priority": p}}
            for s, i, p in ((1, 1, 9), (1, 2, 3), (2, 3, 1), (2, 4, None))
        ]
        land(tmp_path, 0, added)
        take(pipeline)
        fold_waiting(pipeline, "run-1")
        land(tmp_path, 4, [{"op": "poll", "key": {"shard": 1}}, {"op": "poll", "key": {"shard": 3}}])
        land(tmp_path, 6, [{"op": "poll", "key": {"shard": 2}}])
        outcome = take(pipeline)
        assert (outcome.facts["changes"], outcome.facts["ignored"]) == (2, 1), "a poll of an empty queue"
        polled = [(row["_op"], row["shard"], row["id"]) for row in changes_of(pipeline)[4:]]
        assert polled == [(DELETE, 1, 2), (DELETE, 2, 4)], "null is the lowest"
        fold_waiting(pipeline, "run-2")
        assert sorted((row["shard"], row["id"]) for row in rows(pipeline)) == [(1, 1), (2, 3)]
        # The log names the element, so a restore and another fold give the same.
        materialize(pipeline, ["items"], Restore("back", RestorePoint(1, RestoreMode.REPLAY)), in_process)
        judge_all(pipeline, "items")
        confirm(pipeline, "items", Confirmation(run="back"))
        fold_waiting(pipeline, "run-3")
        assert sorted((row["shard"], row["id"]) for row in rows(pipeline)) == [(1, 1), (2, 3)]

    def test_a_read_shows_first_what_a_poll_removes(self, tmp_path: Path) -> None:
        """S5: the order of Flink's queue after a restore: live, published and after each poll; null comes first."""
        pipeline = make(tmp_path, SHARDS)
        places = [(s, i, p) for s in (2, 1) for i, p in ((7, 3), (3, None), (5, 3), (9, 0), (1, 8), (4, -2))]
        for number, (shard, item, priority) in enumerate(places):
            value = {"id": item, "priority": priority}
            land(tmp_path, number, [{"op": "add", "key": {"shard": shard}, "value": value}])
        take(pipeline)
        fold_waiting(pipeline, "run-1")
        queue = [3, 4, 9, 5, 7, 1]
        for number in range(3):
            for what in (What.LIVE, What.TABLE) if number == 0 else (What.LIVE,):
                shown = [r for b in read_rows(pipeline, "items", ReadRequest(what))[1] for r in b.to_pylist()]
                assert [(r["shard"], r["id"]) for r in shown] == [(s, i) for s in (1, 2) for i in queue[number:]]
            land(tmp_path, 20 + 2 * number, [{"op": "poll", "key": {"shard": s}} for s in (1, 2)])
            take(pipeline)

    def test_the_parsed_segment_is_deleted(self, tmp_path: Path) -> None:
        """I22: it has operations that no fold knows."""
        pipeline = make(tmp_path, HEAD)
        land(tmp_path, 0, [op("add", value={"id": 1, "priority": 1}), op("poll"), op("poll")])
        take(pipeline)
        [only] = pipeline.store.list("changelog")
        assert {c.location.segment for c in state_of(pipeline).change_sets} == {only.path}
        assert {row["_op"] for row in changes_of(pipeline)} == {UPSERT, DELETE}
        assert pipeline.store.list(INTENTS) == []

    def test_polls_alone_of_an_empty_queue_make_no_change_set(self, tmp_path: Path) -> None:
        pipeline = make(tmp_path, HEAD)
        land(tmp_path, 0, [op("poll")])
        assert take(pipeline).facts["ignored"] == 1
        assert state_of(pipeline).change_sets == ()
        assert pipeline.store.list("changelog") == []


class TestMergedNamespaces:
    @given(
        steps=st.lists(
            st.one_of(
                st.builds(lambda k, v: op("add_all", k, values=v), KEYS, st.lists(st.integers(0, 9), max_size=3)),
                st.builds(lambda k: op("clear", k), KEYS),
                MERGES,
            ),
            min_size=1,
            max_size=12,
        ),
        data=st.data(),
    )
    @SETTINGS
    def test_lists_are_joined_in_order(self, steps: list[Operation], data: st.DataObject) -> None:
        """S2: Flink's MERGE_NS: the target's elements, then those of each source."""
        state: dict[int, list[int]] = {}
        for step in steps:
            key = step["key"]["id"]
            if step["op"] == "add_all":
                state[key] = state.get(key, []) + step["values"]
            elif step["op"] == "clear":
                state.pop(key, None)
            else:
                for source in (one["id"] for one in step["sources"] if one["id"] != key):
                    state[key] = state.get(key, []) + state.pop(source, [])
        with tempfile.TemporaryDirectory() as root:
            found = check(LIST, steps, data, Path(root))
        assert {row["id"]: row["items"] for row in found} == {key: items for key, items in state.items() if items}

    @given(
        steps=st.lists(
            st.one_of(
                st.builds(lambda k, v: op("add", k, {"total": v, "most": v}), KEYS, st.integers(-9, 9)),
                st.builds(lambda k: op("clear", k), KEYS),
                MERGES,
            ),
            min_size=1,
            max_size=12,
        ),
        data=st.data(),
    )
    @SETTINGS
    def test_values_are_merged(self, steps: list[Operation], data: st.DataObject) -> None:
        """S3."""
        state: dict[int, list[int]] = {}
        for step in steps:
            key = step["key"]["id"]
            if step["op"] == "add":
                state.setdefault(key, []).append(step["value"]["total"])
            elif step["op"] == "clear":
                state.pop(key, None)
            else:
                for source in (one["id"] for one in step["sources"] if one["id"] != key):
                    if source in state:
                        state[key] = state.get(key, []) + state.pop(source)
        with tempfile.TemporaryDirectory() as root:
            found = check(SUMS, steps, data, Path(root))
        assert {r["id"]: (r["total"], r["most"]) for r in found} == {k: (sum(v), max(v)) for k, v in state.items()}

    def test_counts_are_added_and_other_columns_have_the_last_value(self, tmp_path: Path) -> None:
        def add(key: int, low: int | None, seen: str) -> Operation:
            return op("add", key, {"n": 7, "low": low, "seen": seen})

        pipeline = make(tmp_path, COUNTS)
        land(tmp_path, 0, [add(1, 5, "a"), add(1, 3, "b"), add(2, None, "c")])
        take(pipeline)
        fold_waiting(pipeline, "run-1")
        land(tmp_path, 3, [add(2, 9, "d"), merge(1, 2, 3), add(1, 1, "e")])
        take(pipeline)
        fold_waiting(pipeline, "run-2")
        assert rows(pipeline) == [{"id": 1, "n": 5, "low": 1, "seen": "e"}]


@pytest.mark.parametrize(
    ("log", "operation"),
    [
        (LIST, {"op": "merge", "key": {"id": 1}}),
        (LIST, {"op": "merge", "key": {"id": 1}, "sources": [{"other": 1}]}),
        (MAP, merge(1, 2)),
    ],
)
def test_what_cannot_be_merged_is_refused(tmp_path: Path, log: tuple[str, str, str, str], operation: Any) -> None:
    pipeline = make(tmp_path, log, more="quality: {max_refused: 1}")
    land(tmp_path, 0, [operation])
    assert take(pipeline).facts["quarantined"] == 1


@pytest.mark.parametrize(("log", "head"), [(QUEUE, "nothing"), (MAP, "n")])
def test_a_head_is_for_queues_and_names_columns(tmp_path: Path, log: tuple[str, str, str, str], head: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(tmp_path, (f"{log[0]}, head: [{head}]", *log[1:]))
    assert [problem.code for problem in caught.value.problems] == ["STATE_HEAD"]
