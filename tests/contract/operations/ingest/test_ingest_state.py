"""State-change logs: any sequence of operations, cut into any files and folds, gives what the state itself holds.

Requirements S1 to S5; promises I5, I25.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.landing import changes_of, fold_waiting, land, quarantined, state_of, take
from support.pipelines import judge_all
from support.state_logs import LIST, MAP, QUEUE, SETTINGS, SUMS, VALUE, Operation, check, make, op, rows
from tidefold.compute.runners import in_process
from tidefold.config import ConfigError
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.operations.ground.originals import open_address
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold, Import, Restore
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

METADATA = {"op": "metadata", "name": "carts", "kind": "value", "schema": {"id": "int", "text": "string"}}
KEYS = st.integers(0, 2)


class TestS1Value:
    """S1: value: upsert, delete; clear of the whole log."""

    _STEPS = st.one_of(
        st.builds(lambda k, v: op("set", k, {"text": v}), KEYS, st.sampled_from(["a", "b", None])),
        st.builds(lambda k: op("clear", k), KEYS),
        st.just(op("clear")),
    )

    @given(steps=st.lists(_STEPS, min_size=1, max_size=12), data=st.data())
    @SETTINGS
    def test_as_the_state(
        self, steps: list[Operation], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        state: dict[int, Any] = {}
        for step in steps:
            if step["op"] == "set":
                state[step["key"]["id"]] = step["value"]["text"]
            elif "key" in step:
                state.pop(step["key"]["id"], None)
            else:
                state.clear()
        found = check(VALUE, steps, data, tmp_path_factory.mktemp("s1"))
        assert {row["id"]: row["text"] for row in found} == state


class TestS2List:
    """S2: list: add, add all, update, clear."""

    _VALUES = st.lists(st.integers(0, 9), max_size=3)
    _STEPS = st.one_of(
        st.builds(lambda k, v: op("add", k, v), KEYS, st.integers(0, 9)),
        st.builds(lambda k, v: op("add_all", k, values=v), KEYS, _VALUES),
        st.builds(lambda k, v: op("update", k, values=v), KEYS, _VALUES),
        st.builds(lambda k: op("clear", k), KEYS),
        st.just(op("clear")),
    )

    @given(steps=st.lists(_STEPS, min_size=1, max_size=12), data=st.data())
    @SETTINGS
    def test_as_the_state(
        self, steps: list[Operation], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        state: dict[int, list[int]] = {}
        for step in steps:
            key = step["key"]["id"] if "key" in step else None
            if step["op"] in ("add", "add_all"):
                state[key] = state.get(key, []) + step.get("values", [step.get("value")])
            elif step["op"] == "update":
                state[key] = step["values"]
            elif key is not None:
                state.pop(key, None)
            else:
                state.clear()
        found = check(LIST, steps, data, tmp_path_factory.mktemp("s2"))
        assert {row["id"]: row["items"] for row in found} == {k: v for k, v in state.items() if v}


class TestS2Map:
    """S2: map: put, put all, remove, clear of one key and of everything."""

    _ENTRIES = st.builds(lambda name, n: {"name": name, "n": n}, st.sampled_from("xyz"), st.integers(0, 9))
    _STEPS = st.one_of(
        st.builds(lambda k, e: op("put", k, e), KEYS, _ENTRIES),
        st.builds(lambda k, e: op("put_all", k, values=e), KEYS, st.lists(_ENTRIES, max_size=4)),
        st.builds(lambda k, n: op("remove", k, {"name": n}), KEYS, st.sampled_from("xyz")),
        st.builds(lambda k: op("clear", k), KEYS),
        st.just(op("clear")),
    )

    @given(steps=st.lists(_STEPS, min_size=1, max_size=12), data=st.data())
    @SETTINGS
    def test_as_the_state(
        self, steps: list[Operation], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        state: dict[tuple[int, str], int] = {}
        for step in steps:
            key = step["key"]["id"] if "key" in step else None
            for entry in step.get("values", [step["value"]] if "value" in step else []):
                state.pop((key, entry["name"]), None)
                if step["op"] != "remove":
                    state[key, entry["name"]] = entry["n"]
            if step["op"] == "clear":
                state = {place: n for place, n in state.items() if key is not None and place[0] != key}
        found = check(MAP, steps, data, tmp_path_factory.mktemp("s2"))
        assert {(row["id"], row["name"]): row["n"] for row in found} == state


def test_each_entry_of_a_map_has_an_age_of_its_own(tmp_path: Path) -> None:
    """N10, S2: the entries are rows; the other entries of the same key stay."""
    log = (MAP[0], MAP[1], "{id: int, name: string, n: long, at: date}", "ttl: {column: at, days: 3}")
    pipeline = make(tmp_path, log)
    entries = [{"name": name, "n": 1, "at": at} for name, at in (("x", 18_262), ("y", None), ("z", 90_000))]
    land(tmp_path, 0, [op("put_all", 1, values=entries)])
    outcome = take(pipeline)
    assert outcome.facts["refused"] == {}, quarantined(pipeline)
    fold_waiting(pipeline, "run")
    assert sorted(row["name"] for row in rows(pipeline)) == ["y", "z"]


class TestS3Reducing:
    """S3: reducing and aggregating: values are merged by named aggregates."""

    _STEPS = st.one_of(
        st.builds(lambda k, n: op("add", k, {"total": n, "most": n}), KEYS, st.integers(-5, 5)),
        st.builds(lambda k, n: op("set", k, {"total": n, "most": n}), KEYS, st.integers(-5, 5)),
        st.builds(lambda k: op("clear", k), KEYS),
        st.just(op("clear")),
    )

    @given(steps=st.lists(_STEPS, min_size=1, max_size=12), data=st.data())
    @SETTINGS
    def test_as_the_state(
        self, steps: list[Operation], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        state: dict[int, tuple[int, int]] = {}
        for step in steps:
            key = step["key"]["id"] if "key" in step else None
            if step["op"] == "clear":
                state = {k: v for k, v in state.items() if key is not None and k != key}
                continue
            number = step["value"]["total"]
            total, most = state.get(key, (0, number)) if step["op"] == "add" else (0, number)
            state[key] = (total + number, max(most, number))
        found = check(SUMS, steps, data, tmp_path_factory.mktemp("s3"))
        assert {row["id"]: (row["total"], row["most"]) for row in found} == state


class TestS4Metadata:
    """S4: metadata travels in the log before data that uses it, and takes effect in the order of the log."""

    def test_the_same_metadata_is_counted_and_no_change(self, tmp_path: Path) -> None:
        pipeline = make(tmp_path, VALUE, ", state: carts")
        land(tmp_path, 0, [METADATA, op("set", 1, {"text": "a"}), METADATA])
        outcome = take(pipeline)
        assert (outcome.facts["changes"], outcome.facts["ignored"]) == (1, 2)

    @pytest.mark.parametrize(
        "changed",
        [
            {"name": "orders"},
            {"kind": "map"},
            {"schema": {"id": "int", "text": "int"}},
            {"schema": {"id": "int"}},
            {"schema": {"id": "int", "text": "string", "more": "int"}},
            {"ttl_days": 3},
        ],
    )
    def test_another_name_kind_schema_or_ttl_ends_the_partition_there(
        self, changed: dict[str, Any], tmp_path: Path
    ) -> None:
        pipeline = make(tmp_path, VALUE, ", state: carts")
        land(tmp_path, 0, [op("set", 1, {"text": "a"}), {**METADATA, **changed}, op("set", 2, {"text": "a"})])
        outcome = take(pipeline)
        assert (outcome.status, outcome.error_code) == ("stopped", "STATE_CHANGED")
        assert [row["id"] for row in changes_of(pipeline)] == [1]
        assert next(iter(changed)) in outcome.message
        assert take(pipeline).error_code == "STATE_CHANGED"

    def test_a_ttl_that_appears_in_trusted_metadata_stops_the_log(self, tmp_path: Path) -> None:
        """No row would expire otherwise, and nobody would know."""
        columns = "{id: int, text: string, at: {type: date, default: null}}"
        pipeline = make(tmp_path, (VALUE[0], VALUE[1], columns, ""), ", state: carts, metadata: follow")
        shape = {**METADATA, "schema": {"id": "int", "text": "string", "at": "date"}}
        land(tmp_path, 0, [shape, op("set", 1, {"text": "a", "at": None}), {**shape, "ttl_days": 4}])
        outcome = take(pipeline)
        assert (outcome.status, outcome.error_code) == ("stopped", "STATE_CHANGED")
        assert "ttl_days" in outcome.message
        assert days_of(pipeline) is None

    def test_what_the_metadata_leaves_out_is_not_compared(self, tmp_path: Path) -> None:
        log = (VALUE[0], VALUE[1], "{id: int, text: string, at: date}", "")
        pipeline = make(tmp_path, log, more="ttl: {column: at, days: 3}")
        land(tmp_path, 0, [{"op": "metadata"}, {"op": "metadata", "name": "x", "kind": "value"}])
        assert take(pipeline).facts["ignored"] == 2

    _OLD = ({"op": "metadata", "name": "carts", "schema": {"id": "int", "text": "string"}}, {"text": "a"})
    _NEW = (
        {"op": "metadata", "name": "carts", "schema": {"id": "long", "text": "string", "n": "int"}},
        {"text": "b", "n": 5},
    )

    def _land_both(self, root: Path) -> None:
        """Old metadata, its data, new metadata and its data wait together."""
        (old, old_value), (new, new_value) = self._OLD, self._NEW
        land(root, 0, [old, op("set", 1, old_value), new, op("set", 2, new_value)])

    def test_old_and_new_metadata_that_wait_together_fit_the_new_configuration(self, tmp_path: Path) -> None:
        log = (VALUE[0], VALUE[1], "{id: long, text: string, n: {type: int, default: null}}", "")
        pipeline = make(tmp_path, log, ", state: carts")
        self._land_both(tmp_path)
        assert take(pipeline).error_code is None
        assert [(r["id"], r["text"], r["n"]) for r in changes_of(pipeline)] == [(1, "a", None), (2, "b", 5)]

    def test_old_and_new_metadata_that_wait_together_are_taken_in_order(self, tmp_path: Path) -> None:
        """With the old configuration up to the change; with the new one from there on."""
        pipeline = make(tmp_path, VALUE, ", state: carts")
        self._land_both(tmp_path)
        assert (take(pipeline).error_code, len(changes_of(pipeline))) == ("STATE_CHANGED", 1)
        log = (VALUE[0], VALUE[1], "{id: int, text: string, n: {type: int, default: null}}", "")
        wrong = make(tmp_path, log, ", state: carts")
        assert (take(wrong).error_code, len(changes_of(wrong))) == ("STATE_CHANGED", 1)

    def test_new_columns_of_a_metadata_are_added_where_the_policy_adds_them(self, tmp_path: Path) -> None:
        pipeline = make(tmp_path, VALUE, ", state: carts", more="schema_evolution: {add: evolve}")
        new = {**METADATA, "schema": {"id": "int", "text": "string", "n": "int"}}
        land(tmp_path, 0, [METADATA, op("set", 1, {"text": "a"}), new, op("set", 2, {"text": "b", "n": 5})])
        outcome = take(pipeline)
        assert outcome.error_code is None, outcome
        fold_waiting(pipeline, "run")
        assert sorted((r["id"], r["text"], r["n"]) for r in rows(pipeline)) == [(1, "a", None), (2, "b", 5)]
        # The writer was started again with its old program.
        land(tmp_path, 4, [METADATA, op("set", 3, {"text": "c"})])
        assert take(pipeline).error_code is None

    def test_the_time_to_live_is_that_of_the_log(self, tmp_path: Path) -> None:
        log = (VALUE[0], VALUE[1], "{id: int, text: string, at: date}", "")
        pipeline = make(tmp_path, log, more="ttl: {column: at, days: 3}")
        land(tmp_path, 0, [{"op": "metadata", "ttl_days": 3}])
        assert take(pipeline).facts["ignored"] == 1
        land(tmp_path, 1, [{"op": "metadata", "ttl_days": 4}])
        assert take(pipeline).error_code == "STATE_CHANGED"
        assert take(make(tmp_path, log, more="ttl: {column: at, days: 4}")).error_code is None

    def test_trusted_metadata_takes_effect_by_itself(self, tmp_path: Path) -> None:
        """S4: TTL and widened types, as added columns do; it stays so in later runs, until the configuration changes.

        What nobody may decide from afar stops the log with the words of today, with what comes with it.
        """
        columns = "{id: int, text: string, n: {type: int, default: null}, at: {type: date, default: null}}"
        log = (VALUE[0], VALUE[1], columns, "")
        more = "schema_evolution: {add: evolve}\n    ttl: {column: at, days: 3}"
        trusted = make(tmp_path, log, ", state: carts, metadata: follow", more=more)
        new = {**METADATA, "schema": {"id": "long", "text": "string", "n": "long", "more": "int"}, "ttl_days": 4}
        large = {"text": "b", "n": 1 << 40, "more": 5, "at": None}
        old = {"text": "a", "n": 1, "at": None}
        land(tmp_path, 0, [{**METADATA, "ttl_days": 3}, op("set", 1, old), new, op("set", 1 << 40, large)])
        outcome = take(trusted)
        assert outcome.error_code is None, outcome
        assert outcome.facts["added"] == {"id": "long", "n": "long", "more": "int", "ttl.days": "4"}
        fold_waiting(trusted, "run")
        [first, second] = sorted(rows(trusted), key=lambda row: row["id"])
        assert (first["id"], first["n"], second["id"], second["n"], second["more"]) == (1, 1, 1 << 40, 1 << 40, 5)
        assert days_of(trusted) == 4
        # The same metadata, and one that is narrower, changes nothing more; neither does another process.
        again = open_pipeline(tmp_path / "tidefold.yaml")
        land(tmp_path, 4, [new, {**METADATA, "ttl_days": 4}, op("set", 2, old)])
        assert take(again).error_code is None
        assert len(state_of(again).schemas) == 2
        for number, changed in enumerate(
            ({"name": "orders"}, {"kind": "map"}, {"ttl_days": None}, {"ttl_days": 0}, {"schema": {"id": "string"}})
        ):
            assert take_stopped(again, tmp_path, 7 + number, {**new, **changed}) == "STATE_CHANGED"
        # The configuration stays the authority: a newer value of its own counts again, and so does distrust.
        newer = make(tmp_path, log, ", state: carts, metadata: follow", more=more.replace("days: 3", "days: 9"))
        assert days_of(newer) == 9
        assert days_of(make(tmp_path, log, ", state: carts", more=more)) == 3


def days_of(pipeline: Pipeline) -> int | None:
    ttl = pipeline.log_of(state_of(pipeline)).ttl
    return ttl and ttl.days


def take_stopped(pipeline: Pipeline, root: Path, offset: int, operation: Operation) -> str | None:
    """Lands one operation, and returns the error of its ingest; the file is removed again."""
    land(root, offset, [operation])
    outcome = take(pipeline)
    for path in (root / "landing").rglob(f"*{offset:010d}*"):
        path.unlink()
    return outcome.error_code


class TestS5Queue:
    """S5: priority queue: add, poll, remove; kept in order on restore."""

    _STEPS = st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 5), st.integers(0, 3)),
            st.tuples(st.just("poll"), st.just(0), st.just(0)),
            st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
        ),
        min_size=1,
        max_size=14,
    )

    @given(steps=_STEPS, data=st.data())
    @SETTINGS
    def test_as_the_state(
        self, steps: list[tuple[str, int, int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        queue: dict[int, int] = {}
        log = []
        for name, item, priority in steps:
            if name == "add":
                queue[item] = priority
                log.append(op("add", value={"id": item, "priority": priority}))
            elif queue:
                head = min(queue, key=lambda i: (queue[i], i)) if name == "poll" else item
                queue.pop(head, None)
                log.append(op(name, value={"id": head}))
        found = check(QUEUE, log, data, tmp_path_factory.mktemp("s5")) if log else []
        order = sorted((row["priority"], row["id"]) for row in found)
        assert order == sorted((priority, item) for item, priority in queue.items())

    def test_what_is_polled_must_be_named(self, tmp_path: Path) -> None:
        """S5: Flink's REMOVE_FIRST_ELEMENT. Later operations would act on another queue."""
        land(tmp_path, 0, [op("add", value={"id": i, "priority": i}) for i in (1, 2)])
        land(tmp_path, 2, [op("poll"), op("remove", value={"id": 2})])
        stopped = make(tmp_path, QUEUE, more="quality: {max_refused: 1}")
        assert (take(stopped).error_code, len(changes_of(stopped))) == ("POLL_UNNAMED", 2)
        quarantining = make(tmp_path, QUEUE, more="on_bad_record: quarantine")
        assert take(quarantining).facts["refused"] == {"POLL_UNNAMED": 1}
        assert len(changes_of(quarantining)) == 3


STATES = {
    "value": (VALUE, [op("set", 1, {"text": "a"}), op("set", 2, {"text": "b"}), op("clear", 1)]),
    "list": (
        LIST,
        [op("add_all", 1, values=[9, 3, 7]), op("add_all", 2, values=[5]), op("add", 1, 1), op("add", 1, 8)],
    ),
    "map": (MAP, [op("put_all", 1, values=[{"name": n, "n": i} for i, n in enumerate("zyx")]), op("clear", 2)]),
    "reducing": (SUMS, [op("add", 1, {"total": n, "most": n}) for n in (4, -1, 3)]),
    "queue": (QUEUE, [op("add", value={"id": i, "priority": -i}) for i in (2, 9, 4)] + [op("poll", value={"id": 9})]),
}
HELD = {
    "value": [{"id": 2, "text": "b"}],
    "list": [{"id": 1, "items": [9, 3, 7, 1, 8]}, {"id": 2, "items": [5]}],
    "map": [{"id": 1, "name": name, "n": i} for i, name in reversed(list(enumerate("zyx")))],
    "reducing": [{"id": 1, "total": 6, "most": 4}],
    "queue": [{"id": 4, "priority": -4}, {"id": 2, "priority": -2}],
}


def in_order(kind: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as docs/reference/sources.md reads them: a queue by its priority, all others by their key."""
    return sorted(found, key=lambda row: (row["priority"], row["id"]) if kind == "queue" else (*row.values(),)[:2])


@pytest.mark.rotates(6)
@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("kind", list(STATES))
def test_every_kind_of_state_comes_back_in_order(kind: str, layout: Layout, tmp_path: Path) -> None:
    """S2, S5, N9, L8: savepoint, import into other buckets, rescale, restore. Flink's SavepointFormatITCase."""
    log, operations = STATES[kind]
    pipeline = make(tmp_path / "one", log)
    for number, half in enumerate((operations[:2], operations[2:])):
        land(tmp_path / "one", number * 2, half)
        take(pipeline)
        fold_waiting(pipeline, f"run-{number}")
    assert in_order(kind, rows(pipeline)) == HELD[kind]
    to = str(tmp_path / "saved")
    assert take_savepoint(pipeline, "items", SavepointRequest(to, layout=layout)).status == "saved"

    other = make(tmp_path / "two", log)
    config = (tmp_path / "two/tidefold.yaml").read_text()
    (tmp_path / "two/tidefold.yaml").write_text(config.replace("buckets: 2", "buckets: 5"))
    other = open_pipeline(tmp_path / "two/tidefold.yaml")
    for run, request in (
        ("import", Import("import", open_address(to).uri(""), Ownership.NO_CLAIM)),
        ("rescale", Fold("rescale", kind=KindPolicy.FULL)),
        ("restore", Restore("restore", RestorePoint(1, RestoreMode.SKIP))),
    ):
        [outcome] = materialize(other, ["items"], request, in_process)
        assert outcome.error_code is None, outcome
        if outcome.status != "nothing":
            judge_all(other, "items")
            confirm(other, "items", Confirmation(run=run))
        assert in_order(kind, rows(other)) == HELD[kind]


@pytest.mark.parametrize(
    ("log", "operation", "reason"),
    [
        (VALUE, op("put", 1, {"text": "a"}), "OP_UNKNOWN"),
        (VALUE, {"key": {"id": 1}}, "NOT_AN_OPERATION"),
        (VALUE, op("set", 1), "NOT_AN_OPERATION"),
        (VALUE, op("set", value={"text": "a"}), "KEY_NULL"),
        (VALUE, op("set", 1, {"text": "a", "id": 2}), "NOT_AN_OPERATION"),
        (VALUE, op("set", 1, {"text": 5}), "VALUE_INVALID"),
        (VALUE, op("set", 1, {}), "MISSING_COLUMN"),
        (VALUE, op("set", 1, {"text": "a", "more": 1}), "UNKNOWN_COLUMN"),
        (VALUE, {"op": "clear", "key": {"other": 1}}, "KEY_NULL"),
        (LIST, op("add_all", 1), "NOT_AN_OPERATION"),
        (LIST, op("add", 1, "text"), "VALUE_INVALID"),
        (MAP, op("put", 1, {"n": 1}), "KEY_NULL"),
        (MAP, op("remove", 1, {}), "KEY_NULL"),
    ],
)
def test_operations_that_are_refused(
    log: tuple[str, str, str, str], operation: Operation, reason: str, tmp_path: Path
) -> None:
    pipeline = make(tmp_path, log)
    land(tmp_path, 0, [operation])
    assert take(pipeline).facts["refused"] == {reason: 1}
    assert (changes_of(pipeline), [e["offset"] for e in quarantined(pipeline)]) == ([], [0])


def test_a_second_partition_is_not_taken_unless_it_is_said_to_be_one(tmp_path: Path) -> None:
    """A clear of everything must have its place among all operations."""
    land(tmp_path, 0, [op("set", 1, {"text": "a"})])
    land(tmp_path, 0, [op("set", 2, {"text": "b"})], name="{topic}+1+{start:010d}.{extension}")
    one = make(tmp_path, VALUE)
    assert [p["code"] for p in take(one).facts["problems"]] == ["STATE_PARTITIONS"]
    many = make(tmp_path, VALUE, ", partitions: many")
    take(many)
    assert sorted((r["_partition"], r["id"]) for r in changes_of(many)) == [(0, 1), (1, 2)]
    land(tmp_path, 1, [op("clear")])
    assert take(many).error_code == "TABLE_EVENT"


def mistakes(root: Path, log: Iterable[str]) -> list[str]:
    options, key, columns, merge = log
    try:
        make(root, (options, key, columns, merge))
    except ConfigError as error:
        return [problem.code for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("log", "at", "other", "code"),
    [
        (VALUE, 0, "kind: value, state_key: [text]", "STATE_KEY"),
        (MAP, 0, "kind: map, state_key: [id, name]", "STATE_KEY"),
        (MAP, 0, "kind: map, state_key: [name]", "STATE_KEY"),
        (MAP, 0, "kind: map, state_key: []", "STATE_KEY"),
        (VALUE, 0, "kind: set, state_key: [id]", "CONFIG_UNKNOWN_VALUE"),
        (LIST, 3, "", "STATE_MERGE"),
        (SUMS, 3, "", "STATE_MERGE"),
        (VALUE, 3, "merge: first", "STATE_MERGE"),
    ],
)
def test_logs_that_do_not_fit_their_state(log: tuple[str, ...], at: int, other: str, code: str, tmp_path: Path) -> None:
    assert mistakes(tmp_path, log) == []
    assert code in mistakes(tmp_path, [*log[:at], other, *log[at + 1 :]])


def test_operations_may_come_as_kafka_records(tmp_path: Path) -> None:
    pipeline = make(tmp_path, VALUE)
    text = (tmp_path / "tidefold.yaml").read_text().replace("record: value", "record: kafka")
    (tmp_path / "tidefold.yaml").write_text(text)
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    value = op("set", 1, {"text": "a"})
    line = {"topic": "shop.public.items", "partition": 0, "offset": 3, "timestamp": 9, "key": None, "value": value}
    land(tmp_path, 3, [json.dumps(line)])
    take(pipeline)
    assert [(r["_offset"], r["_ts"], r["text"]) for r in changes_of(pipeline)] == [(3, 9000, "a")]
