"""Changes of equal order: the place of arrival decides in every engine, and ties are counted (I5, I25)."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.engine_cases import ANY, COLUMNS, KEY, histories, named, shape_of
from support.folding import bucket_of, read_all
from support.naive import key_of, order, place, rows_of
from tidefold.changelog.schema import DELETE, UPSERT, change_schema, table_schema
from tidefold.domain.table.table_spec import FILE, Engine, Merge, TableSpec
from tidefold.fold.merge.compaction import compact_changes, find_waiting_ties
from tidefold.fold.merge.merge import merge_bucket

Change = dict[str, Any]


def by_file(engine: Engine, *columns: str) -> TableSpec:
    return TableSpec(KEY, COLUMNS, "columns", 4, 1, (*columns, FILE), Merge(engine))


CASES = [
    *ANY,
    (shape_of(Engine.HISTORY, "columns"), (UPSERT, UPSERT, UPSERT, DELETE), False),
    *((by_file(engine, *more), (UPSERT, UPSERT, UPSERT, DELETE), False)
      for engine in (Engine.LAST, Engine.HISTORY) for more in ((), ("at",))),
    (shape_of(Engine.APPEND, "position"), (UPSERT,), False),
]  # fmt: skip


@st.composite
def arrivals(draw: st.DrawFn, case: Any) -> list[list[Change]]:
    """Draws changes as the rows of landed files: few orders, so that many are equal; some rows come again."""
    shape, ops, absent = case
    files: list[list[Change]] = []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        rows = [{**row, "at": row["at"] and row["at"] % 2} for row in draw(histories(shape, ops, absent))]
        before = [row for file in files for row in file]
        if before and draw(st.booleans()):
            rows += draw(st.lists(st.sampled_from(before), max_size=3))
        time = draw(st.integers(0, 3)) * 1_000_000
        files.append([_placed(shape, row, number, at, time) for at, row in enumerate(rows, 1)])
    return files


def _placed(shape: TableSpec, row: Change, number: int, at: int, time: int) -> Change:
    row = {**row, "_partition": number, "_offset": at, "_ts": time}
    numbers = {f"_o{i}": time if name == FILE else (row[name] or 0) for i, name in enumerate(shape.order_by)}
    return {**row, **{name: numbers[name] for name in numbers}}


def fold(shape: TableSpec, folds: Iterable[list[Change]]) -> tuple[list[Change], list[int]]:
    """Returns the rows after these folds, and how many ties each counted."""
    base, hidden, cleared, ties = table_schema(shape).empty_table(), None, (), []
    for changes in folds:
        table = pa.Table.from_pylist(changes, schema=change_schema(shape))
        with (
            tempfile.TemporaryDirectory() as scratch,
            merge_bucket(bucket_of(base, hidden), table, shape, cleared, memory=100_000_000, scratch=scratch) as done,
        ):
            base = read_all(done.bucket, shape)
            hidden, cleared = done.bucket.read_sidecar(), done.cleared
        ties.append(done.ties.count)
    names = [column.name for column in shape.columns]
    return base.select(names).to_pylist(), ties


def expected(shape: TableSpec, changes: list[Change]) -> list[Change]:
    """The rows of the naive program. A history by files has no version that equals the one before."""
    rows = rows_of(shape, changes)
    names = [column.name for column in shape.columns]
    if shape.merge.engine is not Engine.HISTORY:
        return [{name: row[name] for name in names} for row in rows]
    kept: list[Change] = []
    for row in rows:
        values = {name: row[name] for name in names}
        follows = kept and kept[-1]["until"] == row["from"] and kept[-1]["values"] == values
        if follows and shape.orders_by_file:
            kept[-1]["until"] = row["until"]
        else:
            kept.append({"values": values, "until": row["until"]})
    return [row["values"] for row in kept]


@pytest.mark.rotates(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{named(case)}-{'-'.join(case[0].order_by)}")
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(5, 40), deadline=None)
def test_the_arrival_decides_however_files_are_folded(case: Any, data: st.DataObject, seed: random.Random) -> None:
    shape, files = case[0], data.draw(arrivals(case))
    changes = [row for file in files for row in file]
    late = seed.sample(files, len(files)) if shape.merge.engine is not Engine.APPEND else files
    for folds in (late, [changes]):
        assert fold(shape, folds)[0] == expected(shape, changes)
    # A compaction of some neighbours changes nothing.
    cut = seed.randrange(len(files) + 1)
    table = pa.Table.from_pylist([row for file in files[:cut] for row in file], schema=change_schema(shape))
    assert fold(shape, [compact_changes(table, shape).to_pylist(), *files[cut:]])[0] == expected(shape, changes)


def _content(shape: TableSpec, change: Change) -> tuple[Any, ...]:
    names = [column.name for column in shape.columns if column.name not in shape.key]
    deletes = change["_op"] == DELETE
    return (deletes, *(None if deletes else repr(change[name]) for name in names))


class Told:
    """Ties in the simplest way: equal orders with other content within a fold, or with what the table has."""

    def __init__(self, shape: TableSpec) -> None:
        self.shape = shape
        self.rows: dict[Any, Change] = {}
        self.tombstones: dict[Any, Change] = {}
        self.versions: dict[Any, dict[tuple[int, ...], Change]] = {}

    def count(self, changes: list[Change]) -> int:
        """Takes the changes of a fold. Returns how many keys have a tie."""
        of_key: dict[Any, list[Change]] = {}
        for change in sorted(changes, key=lambda c: place(self.shape, c)):
            of_key.setdefault(key_of(self.shape, change), []).append(change)
        tied = sum(self._is_tied(key, mine) for key, mine in of_key.items())
        for key, mine in of_key.items():
            self._take(key, mine)
        return tied

    def _is_tied(self, key: Any, mine: list[Change]) -> bool:
        groups: dict[tuple[int, ...], set[Any]] = {}
        for change in mine:
            groups.setdefault(order(self.shape, change), set()).add(_content(self.shape, change))
        best = mine[0 if self.shape.merge.engine is Engine.FIRST else -1]
        for there in self._find_there(key):
            at = order(self.shape, there)
            if at in groups and (self._is_history or at == order(self.shape, best)):
                groups[at].add(_content(self.shape, there))
        return any(len(group) > 1 for group in groups.values())

    @property
    def _is_history(self) -> bool:
        return self.shape.merge.engine is Engine.HISTORY

    def _find_there(self, key: Any) -> list[Change]:
        if self._is_history:
            return list(self.versions.get(key, {}).values())
        rows = [self.rows[key]] if key in self.rows and self.rows[key]["_op"] != DELETE else []
        return [*rows, self.tombstones[key]] if key in self.tombstones else rows

    def _take(self, key: Any, mine: list[Change]) -> None:
        # A fold remembers a delete that is older than the row, until an upsert is newer than the delete.
        newest = max([*mine, *filter(None, [self.tombstones.pop(key, None)])], key=lambda c: place(self.shape, c))
        if newest["_op"] == DELETE:
            self.tombstones[key] = newest
        for change in mine:
            there = self.rows.get(key)
            is_later = there is not None and place(self.shape, there) < place(self.shape, change)
            if there is None or is_later != (self.shape.merge.engine is Engine.FIRST):
                self.rows[key] = change
            line, at = self.versions.setdefault(key, {}), order(self.shape, change)
            if at not in line or place(self.shape, line[at]) < place(self.shape, change):
                line[at] = change


@pytest.mark.rotates(6)
@pytest.mark.parametrize(
    "case", [one for one in CASES if one[0].merge.engine in (Engine.LAST, Engine.FIRST, Engine.HISTORY)],
    ids=lambda case: f"{named(case)}-{'-'.join(case[0].order_by)}",
)  # fmt: skip
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(5, 40), deadline=None)
def test_ties_are_counted_in_a_fold_and_against_the_table(case: Any, data: st.DataObject, seed: random.Random) -> None:
    shape, files = case[0], data.draw(arrivals(case))
    for folds in (seed.sample(files, len(files)), [[row for file in files for row in file]]):
        told = Told(shape)
        assert fold(shape, folds)[1] == [told.count(changes) for changes in folds]


@pytest.mark.rotates(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{named(case)}-{'-'.join(case[0].order_by)}")
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(5, 40), deadline=None)
def test_a_compaction_keeps_the_ties_of_what_waits(case: Any, data: st.DataObject, seed: random.Random) -> None:
    """Of two runs apart, above a table that has rows and remembers deletes."""
    shape, files = case[0], data.draw(arrivals(case))
    changes = [row for file in files for row in file]
    low, high = sorted(seed.randrange(len(changes) + 1) for _ in range(2))
    runs = [pa.Table.from_pylist(one, schema=change_schema(shape)) for one in (changes[low:high], changes[high:])]
    tied = find_waiting_ties(runs, shape)
    left = [row for run in runs for row in compact_changes(run, shape, tied=tied).to_pylist()]
    assert fold(shape, [changes[:low], left])[1] == fold(shape, [changes[:low], changes[low:]])[1]
