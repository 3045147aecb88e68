"""Whatever was refused, sent again, left out or moved to another key: the rows are those of a log that could read all.

Random streams of one table (inserts, updates without their large value, deletes, changes of the key), an engine that is
killed and sends records again, a program that cannot read some records, folds and retries at any moment. Afterwards
today's program retries, and the rows must be those of the database (I32).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import COUNTS, land, make_landing, record, state_of, take
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

GONE = "__debezium_unavailable_value"
KEYS = st.integers(1, 4)
# Above 99 an older program refuses the record, above 120 also the one after it.
VALUES = st.sampled_from((1, 2, 3, 110, 130))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES, st.booleans()),
        st.tuples(st.just("put"), KEYS, VALUES, st.booleans()),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("move"), KEYS, KEYS, VALUES, st.booleans()),
        st.tuples(st.just("kill"), st.integers(1, 5)),
        st.tuples(st.just("land"), st.sampled_from(("", "take", "fold", "retry"))),
    ),
    min_size=5,
    max_size=20,
)


@dataclass
class Database:
    """A table, and what a connector sends of it."""

    rows: dict[int, tuple[int, str]] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    order: int = 1000
    offset: int = 0

    def send(self, given: dict[str, Any]) -> None:
        self.waiting.append({**given, "offset": self.offset})
        self.offset += 1

    def _log(self, *records: dict[str, Any]) -> None:
        self.order += 1
        for one in records:
            self.sent.append(one)
            self.send(one)

    def _change(self, op: str, key: int, after: dict[str, Any] | None, **headers: Any) -> dict[str, Any]:
        return record(0, key, op, self.order + 1, after=after, before={"id": key} if op == "d" else None, **headers)

    def put(self, key: int, n: int, whole: bool) -> None:
        there = key in self.rows
        text = self.rows[key][1] if there and not whole else f"t{self.order}"
        self.rows[key] = (n, text)
        after = {"id": key, "n": n, "text": GONE if there and not whole else text}
        self._log(self._change("u" if there else "c", key, after))

    def delete(self, key: int) -> None:
        if self.rows.pop(key, None):
            self._log(self._change("d", key, None))

    def move(self, key: int, to: int, n: int, named: bool) -> None:
        if key not in self.rows or to in self.rows:
            return
        _, text = self.rows.pop(key)
        self.rows[to] = (n, text)
        headers = [{"key": "__debezium.oldkey", "value": {"id": key}}] if named else []
        create = self._change("c", to, {"id": to, "n": n, "text": GONE}, headers=headers)
        self._log(self._change("d", key, None), create)

    def kill(self, back: int) -> None:
        """The source sends again from a position of its log: never the insert of a changed key without its delete."""
        first = max(len(self.sent) - back, 0)
        if first and first < len(self.sent) and self.sent[first]["value"]["after"]:
            first -= (
                self.sent[first - 1]["value"]["source"]["sequence"] == self.sent[first]["value"]["source"]["sequence"]
            )
        for one in self.sent[first:]:
            self.send(one)

    def take_waiting(self) -> list[dict[str, Any]]:
        waiting, self.waiting = self.waiting, []
        return waiting


def rows(pipeline: Pipeline, what: What) -> dict[int, tuple[int, str]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(what))
    return {row["id"]: (row["n"], row["text"]) for batch in batches for row in batch.to_pylist()}


def fold(pipeline: Pipeline, runs: Iterator[int]) -> None:
    run = f"run-{next(runs)}"
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    assert not outcome.error_code, outcome
    if outcome.status == "staged":
        judge_all(pipeline, "items")
        assert confirm(pipeline, "items", Confirmation(run=run)).status == "published"


@settings(max_examples=choose(5, 12), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_the_rows_are_those_of_a_log_that_could_read_everything(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play(Path(folder), monkeypatch, steps)


def test_a_refused_insert_of_a_key_that_changed_without_naming_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The property found it."""
    play(tmp_path, monkeypatch, [("put", 3, 110, True), ("move", 3, 1, 1, False)])


def test_a_refused_insert_of_a_key_whose_change_was_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random stream found it."""
    play(tmp_path, monkeypatch, [("put", 1, 130, False), ("move", 1, 2, 130, False), ("put", 3, 1, False)])


def test_a_key_change_that_is_sent_again_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("put", 3, 1, False), ("move", 3, 1, 1, False), ("kill", 1), ("kill", 1)]
    play(tmp_path, monkeypatch, steps)


def test_a_key_change_that_is_sent_again_in_a_later_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("put", 3, 1, False), ("move", 3, 1, 1, False), ("land", "take"), ("kill", 1), ("kill", 1)]
    play(tmp_path, monkeypatch, steps)


def play(root: Path, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Any, ...]]) -> None:
    made, database, runs = make_landing(root, "{id: long, n: int, text: string}"), Database(), iter(range(1, 99))
    for name, *arguments in [*steps, ("land", "take")]:
        if name != "land":
            getattr(database, name)(*arguments)
            continue
        if waiting := database.take_waiting():
            land(root, waiting[0]["offset"], waiting)
        with older_program(monkeypatch, most=99):
            if arguments[0]:
                take(made)
            if arguments[0] == "fold" and made.ledger("items").exists():
                fold(made, runs)
        if arguments[0] == "retry" and made.ledger("items").exists():
            with older_program(monkeypatch, most=120):
                retry(made, "items")
    if not database.sent:
        return
    retry(made, "items")
    assert count_refused(made, "items") == []
    assert rows(made, What.LIVE) == database.rows
    fold(made, runs)
    assert rows(made, What.TABLE) == database.rows
    for entry in state_of(made).landed:
        assert entry.records == sum(getattr(entry, name) for name in COUNTS), entry
