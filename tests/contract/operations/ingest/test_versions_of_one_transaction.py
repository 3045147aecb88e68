"""A history has each version, also of a row that comes and ends in one transaction (decision 0069)."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from contract.operations.quarantine.test_feeds_at_borders import COLUMNS, Feed, Row, make_unwrapped, play
from support.landing import fold_waiting, land, make_landing, record, take
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.inspect import count_refused
from tidefold.operations.quarantine.retry import retry

Change = tuple[int, str, str | None, str | None]
BEGUN: list[Change] = [(1, "c", None, "a"), (2, "c", None, "b")]
CASES: dict[str, tuple[list[Change], list[tuple[int, str]]]] = {
    "insert, delete": ([(9, "c", None, "x"), (9, "d", "x", None)], [(9, "x")]),
    "there and back": (
        [(1, "d", "a", None), (9, "c", None, "a"), (9, "u", "a", "z"), (9, "d", "z", None), (1, "c", None, "z")],
        [(1, "z"), (9, "a"), (9, "z")],
    ),
    "over a row and back": (
        [(1, "d", "a", None), (2, "c", None, "a"), (2, "d", "a", None), (1, "c", None, "a")],
        [(1, "a"), (2, "a"), (2, "b")],
    ),
    "the row below ends": ([(9, "c", None, "x"), (9, "c", None, "y"), (9, "d", "x", None)], [(9, "x"), (9, "y")]),
}


def make_history(root: Path, columns: str) -> Pipeline:
    made, path = make_landing(root, columns), root / "tidefold.yaml"
    path.write_text(path.read_text().replace("key: [id]", "key: [id]\n    merge: history"))
    return Pipeline(load_config(path), made.store)


@pytest.mark.parametrize("name", CASES)
def test_each_version_of_a_transaction_is_in_the_history(tmp_path: Path, name: str) -> None:
    """Fault: the records of a row that ended within its transaction counted as ignored, if one file had them all."""
    changes, versions = CASES[name]
    made, sent = make_history(tmp_path, COLUMNS.replace("n: int, ", "")), list[dict[str, Any]]()
    send(sent, 1000, BEGUN)
    send(sent, 2000, changes)
    land(tmp_path, 0, sent)
    take(made)
    assert not count_refused(made, "items")
    fold_waiting(made, "run")
    assert sorted((row["id"], row["text"]) for row in read_versions(made)) == sorted([(1, "a"), (2, "b"), *versions])


def test_a_version_that_ended_is_no_row_that_the_key_had(tmp_path: Path) -> None:
    """Fault: a row that was deleted was valid again where a later one of its key came and ended over two files."""
    made, sent = make_history(tmp_path, COLUMNS.replace("n: int, ", "")), list[dict[str, Any]]()
    send(sent, 1000, BEGUN)
    send(sent, 2000, [(2, "d", "b", None)])
    send(sent, 3000, [(2, "c", None, "y"), (2, "d", "y", None)])
    for start, end in ((0, 3), (3, 4), (4, 5)):
        land(tmp_path, start, sent[start:end])
        take(made)
        fold_waiting(made, f"run-{start}")
    assert not count_refused(made, "items")
    assert [(row["id"], row["text"]) for row in read_versions(made) if row["_valid_to"] is None] == [(1, "a")]


@pytest.mark.parametrize("folds", [False, True])
def test_without_times_nothing_shows_which_version_ended(tmp_path: Path, folds: bool) -> None:
    """Unwrapped records without a time: the changes of the log answer, the rows of a snapshot do not."""
    made, unwrap = make_unwrapped(tmp_path, "kafka")
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("key: [id]", "key: [id]\n    merge: history"))
    made, feed = Pipeline(load_config(path), made.store), Feed(random.Random(0), "full", late=True)
    others: list[tuple[int, Row | None]] = [(row, (row, row, "z")) for row in (7, 8)]
    for number, (row, new) in enumerate([(1, (2, 1, "b")), (1, None), *others, (3, (2, 3, "y")), (3, None)]):
        feed.transaction = min(number, 4)
        feed.change(row, new)
    for at, one in enumerate(feed.records):
        land(tmp_path, at, [unwrap(one)])
        take(made)
        if folds:
            fold_waiting(made, f"run-{at}")
    assert [one.reason for one in count_refused(made, "items")] == (["KEY_TAKEN_OVER"] if folds else [])
    fold_waiting(made, "end")
    assert sorted(row["n"] for row in read_versions(made)) == [1, 3, 7, 8]


def send(sent: list[dict[str, Any]], commit: int, changes: list[Change]) -> None:
    for at, (key, op, before, after) in enumerate(changes, len(sent)):
        images = {n: text and {"id": key, "text": text} for n, text in (("before", before), ("after", after))}
        own = {"sequence": f'["{commit}","{commit + at}"]', "txId": commit}
        sent.append(record(at, key, op, **images, **own))


def read_versions(made: Pipeline) -> list[dict[str, Any]]:
    _, batches = read_rows(made, "items", ReadRequest(What.LIVE))
    return [row for batch in batches for row in batch.to_pylist()]


class Versions(Feed):
    """A table of PostgreSQL, with all versions that its keys had.

    Of two rows under a key, the one that took it later is seen. Where it leaves, the other one is a version again.
    Equal versions that follow each other are one: of two equal rows, nothing shows which one ends.
    """

    def __init__(self, *args: Any, **own: Any) -> None:
        super().__init__(*args, **own)
        self.taken: dict[int, int] = {}
        self.seen: dict[int, Row] = {}
        self.versions: list[Row] = []

    def change(self, row: int, new: Row | None) -> None:
        former = self.rows.get(row)
        super().change(row, new)
        if new and (former is None or former[0] != new[0]):
            self.taken[row] = self.position
        seen = {one[0]: one for _, one in sorted(self.rows.items(), key=lambda item: self.taken[item[0]])}
        self.versions += [one for key, one in seen.items() if self.seen.get(key) != one]
        self.seen = seen

    def transact(self) -> None:
        before, count = deepcopy((self.taken, self.seen, self.versions)), len(self.records)
        super().transact()
        if len(self.records) == count:
            self.taken, self.seen, self.versions = before


@pytest.mark.rotates(8)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("late", [False, True])
def test_a_history_has_the_versions_of_the_source(tmp_path: Path, late: bool, seed: int) -> None:
    """Files, runs, folds and compactions lie anywhere in the transactions."""
    feed = Versions(random.Random(f"history {seed}"), "full", late, tombstones=seed % 2 == 1)
    made = play(tmp_path, feed, make_history(tmp_path, COLUMNS))
    retry(made, "items")
    assert not count_refused(made, "items")
    fold_waiting(made, "end")
    found: list[Row] = []
    until = None
    for one in sorted(read_versions(made), key=lambda one: (one["id"], one["_valid_from"])):
        row = one["id"], one["n"], one["text"]
        found += [] if (row, one["_valid_from"]) == (found[-1] if found else None, until) else [row]
        until = one["_valid_to"]
    assert sorted(found, key=str) == sorted(feed.versions, key=str)
