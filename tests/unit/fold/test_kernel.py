"""The merge of a bucket against a plain "sort, apply one by one" program. Promises I5, I25."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.folding import read_all
from tidefold.changelog.schema import DELETE, UPSERT, change_schema, order_columns, table_schema
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import FILE
from tidefold.fold.base_rows import BucketRows
from tidefold.fold.merge import merge
from tidefold.fold.merge.arrow_merge import replace_rows, rows_of
from tidefold.fold.merge.merge import merge_bucket

SHAPE = TableSpec(
    ("id", "part"), (Column("id", "int"), Column("part", "string"), Column("value", "long")), "postgresql", 16, 4
)

CHANGE = st.fixed_dictionaries(
    {
        "_op": st.sampled_from([UPSERT, UPSERT, DELETE]),
        "_o0": st.integers(-1, 3),
        "_o1": st.integers(0, 3),
        "id": st.integers(0, 5),
        "part": st.sampled_from(["a", "b", "", "ä'\"`"]),
        "value": st.none() | st.integers(-(2**63), 2**63 - 1),
    }
)
BASE = st.dictionaries(
    st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", ""])), st.none() | st.integers(-5, 5), max_size=12
)


def oracle(base: dict, changes: list[dict]) -> dict:
    rows = dict(base)
    for change in sorted(changes, key=lambda c: (c["_o0"], c["_o1"], c["_partition"], c["_offset"])):
        key = change["id"], change["part"]
        if change["_op"] == DELETE:
            rows.pop(key, None)
        else:
            rows[key] = change["value"]
    return rows


def fold(base: dict, changes: list[dict]) -> tuple[dict, int, int]:
    """The rows, how many came from upserts, how many keys were deleted: by Arrow and by SQL, which must agree."""
    by_arrow = _fold(base, changes)
    with by_sql():
        assert _fold(base, changes) == by_arrow
    return by_arrow


def by_sql() -> AbstractContextManager[object]:
    """As if no case were plain."""
    return patch.object(merge.arrow_merge, "find", lambda *given: None)


def _fold(base: dict, changes: list[dict]) -> tuple[dict, int, int]:
    schema = table_schema(SHAPE)
    stored = sorted(base.items(), key=lambda row: (row[0][0], row[0][1].encode()))
    rows = [{"id": k[0], "part": k[1], "value": v} for k, v in stored]
    table = pa.Table.from_pylist([{"_kg": 0, "_ts": 0, **c} for c in changes], schema=change_schema(SHAPE))
    # In batches of a few rows, as those of a large file are.
    reader = pa.Table.from_pylist(rows, schema=schema).to_reader(3)
    with (
        tempfile.TemporaryDirectory() as scratch,
        merge_bucket(BucketRows(reader), table, SHAPE, memory=100_000_000, scratch=scratch) as done,
    ):
        out = read_all(done.bucket, SHAPE).to_pylist()
    keys = [(r["id"], r["part"]) for r in out]
    assert keys == sorted(keys, key=lambda k: (k[0], k[1].encode()))
    assert len(set(keys)) == len(keys)
    return {k: r["value"] for k, r in zip(keys, out, strict=True)}, done.upserts, done.deletes


@settings(max_examples=choose(24, 60), deadline=None)
@given(base=BASE, changes=st.lists(CHANGE, max_size=30), seed=st.randoms(use_true_random=False))
def test_any_order_split_and_repetition_gives_the_oracle_s_rows(
    base: dict, changes: list[dict], seed: random.Random
) -> None:
    placed = [{**c, "_partition": 0, "_offset": i} for i, c in enumerate(changes)]
    expected = oracle(base, placed)
    shuffled = placed + seed.sample(placed, len(placed) // 2)
    seed.shuffle(shuffled)
    rows, upserts, deletes = fold(base, shuffled)
    assert rows == expected
    assert upserts + deletes == len({(c["id"], c["part"]) for c in placed})


def test_numbers_order_as_numbers_and_an_unknown_commit_comes_first() -> None:
    change = {"_op": UPSERT, "_partition": 0, "id": 1, "part": "a"}
    rows, _, _ = fold(
        {},
        [
            {**change, "_o0": 9, "_o1": 10, "_offset": 0, "value": 1},
            {**change, "_o0": 10, "_o1": 9, "_offset": 1, "value": 2},
            {**change, "_o0": -1, "_o1": 99, "_offset": 2, "value": 3},
        ],
    )
    assert rows == {(1, "a"): 2}


def test_insert_and_delete_in_one_batch_leave_nothing_whatever_the_arrival() -> None:
    insert = {"_op": UPSERT, "_o0": 1, "_o1": 1, "_partition": 0, "_offset": 0, "id": 1, "part": "a", "value": 1}
    delete = {**insert, "_op": DELETE, "_o1": 2, "_offset": 1, "value": None}
    assert fold({}, [delete, insert])[0] == {}
    assert fold({(1, "a"): 7}, [insert, delete])[0] == {}


def test_a_merge_that_spills_leaves_nothing_to_the_next() -> None:
    """The thread's connection is kept: neither rows nor the folder of an earlier merge may show in a later one."""
    schema, changes = table_schema(SHAPE), change_schema(SHAPE).empty_table()
    rows = pa.table(
        {"id": pa.array(range(200_000), pa.int32()), "part": [f"{i * 7919:072d}" for i in range(200_000)]}
    ).append_column("value", pa.nulls(200_000, pa.int64()))
    for _ in range(2):
        with tempfile.TemporaryDirectory() as scratch:
            reader = rows.cast(schema).to_reader(16_384)
            with by_sql(), merge_bucket(BucketRows(reader), changes, SHAPE, memory=20_000_000, scratch=scratch) as done:
                assert sum(batch.num_rows for batch in done.bucket.rows or ()) == 200_000
            assert os.listdir(scratch), "it did not spill"
        assert fold({(1, "a"): 7}, [])[0] == {(1, "a"): 7}


def test_a_merge_that_fails_leaves_nothing_to_the_next() -> None:
    """Its base breaks off, as a damaged file does; then its reader goes away before the end."""
    schema = table_schema(SHAPE)
    change = {"_op": UPSERT, "_o0": 1, "_o1": 1, "_partition": 0, "_offset": 0, "id": 1, "part": "a", "value": 1}
    changes = pa.Table.from_pylist([{"_kg": 0, "_ts": 0, **change}], schema=change_schema(SHAPE))

    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"id": 2, "part": "b", "value": 5}], schema=schema)
        raise OSError("the disk is gone")

    base = pa.RecordBatchReader.from_batches(schema, broken())
    with (
        by_sql(),
        pytest.raises(Exception, match="the disk is gone"),
        tempfile.TemporaryDirectory() as scratch,
        merge_bucket(BucketRows(base), changes, SHAPE, memory=100_000_000, scratch=scratch) as done,
    ):
        read_all(done.bucket, SHAPE)
    assert fold({(3, "b"): 6}, [])[0] == {(3, "b"): 6}
    with (
        by_sql(),
        pytest.raises(KeyError),
        tempfile.TemporaryDirectory() as scratch,
        merge_bucket(BucketRows(), changes, SHAPE, memory=100_000_000, scratch=scratch),
    ):
        raise KeyError
    assert fold({(3, "b"): 6}, [])[0] == {(3, "b"): 6}


@settings(max_examples=choose(60, 150), deadline=None)
@given(
    rows=st.dictionaries(st.integers(-50, 50), st.integers(0, 9)),
    gone=st.sets(st.integers(-60, 60)),
    coming=st.dictionaries(st.integers(-60, 60), st.integers(10, 19)),
    size=st.integers(1, 40),
    seed=st.none() | st.randoms(use_true_random=False),
    type_=st.sampled_from([pa.int32(), pa.int64(), pa.timestamp("us"), pa.date32(), pa.string(), pa.decimal128(12, 2)]),
)
def test_rows_are_replaced_in_their_order(
    rows: dict[int, int], gone: set[int], coming: dict[int, int], size: int, seed: random.Random | None, type_: Any
) -> None:
    """Of a base that is not sorted (`seed`) the rows are the same; only their order is not promised."""

    def table(given: list[tuple[int, int]]) -> pa.Table:
        keys = pa.array([key for key, _ in given], pa.int32())
        made = pc.cast(keys.cast(pa.int64()) if type_ == pa.timestamp("us") else keys, type_)
        return pa.table({"key": made, "value": pa.array([value for _, value in given], pa.int64())})

    base = list(rows.items())
    if seed:
        seed.shuffle(base)
    touched = table([(key, 0) for key in gone | coming.keys()]).select(["key"]).sort_by("key")
    new = table(list(coming.items())).sort_by("key")
    stored = table(base) if seed else table(base).sort_by("key")
    found = pa.Table.from_batches(replace_rows(stored.to_batches(max_chunksize=size), touched, new), new.schema)
    expected = table([*((k, v) for k, v in rows.items() if k not in gone | coming.keys()), *coming.items()])
    assert found.sort_by("key").equals(expected.sort_by("key"))
    assert seed or found.equals(expected.sort_by("key"))


KEYS = {
    ("int",): st.tuples(st.integers(-3, 3)),
    ("string",): st.tuples(st.sampled_from(["", "a", "b", "ä", "Z", "\U0001f600"])),
    ("double",): st.tuples(st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    ("string", "long"): st.tuples(st.sampled_from(["a", "B", "b"]), st.integers(-1, 1)),
}
ORDERS = (("columns", ("at",)), ("columns", ("at", FILE)), ("columns", (FILE,)), ("postgresql", ()), ("arrival", ()))


@settings(max_examples=choose(40, 2000), deadline=None)
@given(data=st.data(), types=st.sampled_from(list(KEYS)), order=st.sampled_from(ORDERS))
@example(None, ("int",), ("columns", ("at",)))
def test_a_first_fold_by_arrow_gives_what_sql_gives(data: Any, types: tuple[str, ...], order: Any) -> None:
    """Keys that come twice, ties, deletes, absent columns, orders without a value: rows, sidecar, counts and ties."""
    key = tuple(f"k{i}" for i in range(len(types)))
    names = [*zip(key, types, strict=True), ("at", "long"), ("text", "string"), ("number", "double")]
    shape = TableSpec(key, tuple(Column(*pair) for pair in names), order[0], 16, 4, order[1])
    changes: list[dict[str, Any]] = [{"k0": 2, "_o0": 1}, {"k0": 1, "_o0": 2}, {"k0": 2, "_o0": 3, "text": "last"}]
    if data:
        ops, lacks = data.draw(st.sampled_from([([UPSERT], []), ([UPSERT, DELETE], []), ([UPSERT], [["text"]])]))
        made = {
            **dict.fromkeys(order_columns(shape), st.integers(0, 4)),
            "_op": st.sampled_from(ops),
            "_partition": st.integers(0, 1),
            "_absent": st.sampled_from([None, *lacks]),
            "text": st.none() | st.sampled_from("xy"),
            "number": st.sampled_from([None, -0.0, 0.0, float("nan")]),
        }
        drawn = data.draw(st.lists(st.tuples(KEYS[types], st.fixed_dictionaries(made)), max_size=8))
        changes = [{**row, **dict(zip(key, values, strict=True))} for values, row in drawn]
    placed = [{"_op": UPSERT, "_partition": 0, "_offset": i, **change} for i, change in enumerate(changes)]
    found, plain = _fold_first(shape, placed)
    with by_sql():
        assert _fold_first(shape, placed)[0] == found
    assert plain or data


def _fold_first(shape: TableSpec, changes: list[dict[str, Any]]) -> tuple[object, bool]:
    """What a fold without a base gives, floating point numbers as text; and whether Arrow did it."""
    table = pa.Table.from_pylist(changes, schema=change_schema(shape))
    answers, find = [], merge.arrow_merge.find
    with (
        tempfile.TemporaryDirectory() as scratch,
        patch.object(merge.arrow_merge, "find", lambda *given: answers.append(find(*given)) or answers[0]),
        merge_bucket(BucketRows(), table, shape, memory=100_000_000, scratch=scratch) as done,
    ):
        rows, sidecar = read_all(done.bucket, shape).to_pylist(), done.bucket.read_sidecar()
    ties = (done.ties.count, sorted(done.ties.listed), done.ties.apart)
    hidden = sidecar.to_pylist() if sidecar and len(sidecar) else []
    return repr((rows, hidden, done.upserts, done.deletes, done.cleared, ties)), bool(answers and answers[0])


@given(
    numbers=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 20)), max_size=40),
    wanted=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 20)), max_size=12),
    is_sorted=st.booleans(),
)
def test_rows_of_finds_what_a_naive_look_finds(
    numbers: list[int | None], wanted: list[int | None], is_sorted: bool
) -> None:
    """Numbers that rise are searched, all others are looked up."""
    wanted += [number for number in numbers[::3] if number is not None]
    if is_sorted:
        numbers = sorted({number for number in numbers if number is not None})
    batch = pa.record_batch({"id": pa.array(numbers, pa.int64())})
    found = rows_of(batch, pa.table({"id": pa.array(wanted, pa.int64())}))
    assert found.tolist() == [row for row, number in enumerate(numbers) if number in wanted]
