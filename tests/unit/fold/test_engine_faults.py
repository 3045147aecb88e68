"""What a fold refuses, and what it only tells."""

from __future__ import annotations

import json
import tempfile
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from support.folding import bucket_of, read_all
from tidefold.changelog.schema import DELETE, MERGE, UPSERT, change_schema, table_schema
from tidefold.domain.table.table_spec import Column, Engine, Merge, TableSpec
from tidefold.errors import InvalidInputError
from tidefold.fold.merge.arrow_merge import ListedKeys
from tidefold.fold.merge.merge import list_left_out, merge_bucket

COLUMNS = (Column("id", "int"), Column("at", "long"), Column("text", "string"), Column("n", "int"))


def shape_of(engine: Engine, order: str = "postgresql", **how: Any) -> TableSpec:
    return TableSpec(("id",), COLUMNS, order, 1, 1, ("at",) if order == "columns" else (), Merge(engine, **how))


def change(order: int, offset: int, **values: Any) -> dict[str, Any]:
    given = {"_op": UPSERT, "_kg": 0, "_partition": 0, "_offset": offset, "_ts": 0, "id": 1, "at": order}
    return {**given, "_o0": order, "_o1": 0, "text": None, "n": None, **values}


class Folded(NamedTuple):
    hidden: pa.Table | None
    ties: ListedKeys


def fold(
    shape: TableSpec,
    changes: list[dict[str, Any]],
    base: list[dict[str, Any]] | None = None,
    hidden: pa.Table | None = None,
    horizon: int | None = None,
) -> tuple[list[dict[str, Any]], Folded]:
    schema = change_schema(shape)
    table = pa.Table.from_pylist([{k: v for k, v in c.items() if k in schema.names} for c in changes], schema=schema)
    rows = pa.Table.from_pylist(base or [], schema=table_schema(shape))
    with (
        tempfile.TemporaryDirectory() as scratch,
        merge_bucket(bucket_of(rows, hidden), table, shape, (), horizon, memory=100_000_000, scratch=scratch) as done,
    ):
        return read_all(done.bucket, shape).to_pylist(), Folded(done.bucket.read_sidecar(), done.ties)


def test_an_unavailable_value_takes_the_former_one() -> None:
    """Complaint: unchanged TOAST values overwrite data (hudi#19748)."""
    shape = shape_of(Engine.LAST)
    base = [{"id": 1, "at": 1, "text": "long", "n": 1}]
    rows, _ = fold(shape, [change(2, 0, n=2, _absent=["text"])], base)
    assert rows == [{"id": 1, "at": 2, "text": "long", "n": 2}]
    rows, _ = fold(shape, [change(2, 0, n=2, text="new"), change(3, 1, n=3, _absent=["text"])], base)
    assert rows == [{"id": 1, "at": 3, "text": "new", "n": 3}]


@pytest.mark.parametrize(
    ("engine", "op", "functions"),
    [
        (Engine.LAST, UPSERT, ()),
        (Engine.FIRST, UPSERT, ()),
        (Engine.PARTIAL, UPSERT, ()),
        (Engine.AGGREGATE, MERGE, ()),
        (Engine.AGGREGATE, UPSERT, ()),
        (Engine.AGGREGATE, MERGE, (("x", "last"), ("xs", "first"))),
    ],
)
def test_the_sign_of_a_zero_stays(engine: Engine, op: int, functions: tuple[tuple[str, str], ...]) -> None:
    """DuckDB's arg_max and arg_min with an order of several numbers make 0.0 of -0.0."""
    columns = (Column("id", "int"), Column("x", "double"), Column("y", "float"), Column("xs", "array<double>"))
    columns = (*columns, Column("text", "string"))
    for order in ("postgresql", "columns") if engine is Engine.PARTIAL else ("postgresql",):
        by = ("at",) if order == "columns" else ()
        named = (*columns, Column("at", "long"))
        shape = TableSpec(("id",), named, order, 1, 1, by, Merge(engine, aggregates=functions))
        given = change(2, 0, _op=op, x=-0.0, y=-0.0, xs=[-0.0, None, 5e-324], _absent=["text"])
        base = [{"id": 1, "x": None, "y": 1.0, "xs": None, "text": "a", "at": 1}]
        if op == UPSERT and engine is Engine.AGGREGATE:
            given["_absent"] = None
        [row], _ = fold(shape, [given], [] if engine is Engine.FIRST else base)
        assert repr((row["x"], row["y"], row["xs"])) == "(-0.0, -0.0, [-0.0, None, 5e-324])"


@pytest.mark.parametrize("earlier", [[], [change(1, 0, _op=DELETE)]])
def test_an_unavailable_value_without_a_former_one_leaves_its_key_out(earlier: list[dict[str, Any]]) -> None:
    """Bad input 55: it is no null, and the other keys of the table are folded (I31)."""
    others = [change(1, 5, id=2, text="b"), change(3, 6, id=2, _absent=["text"])]
    rows, done = fold(shape_of(Engine.LAST), [*earlier, change(2, 1, n=2, _absent=["text"]), *others])
    assert [row["id"] for row in rows] == [2]
    assert done.hidden
    left_out = list_left_out(done.hidden, shape_of(Engine.LAST))
    assert left_out.count == 1
    assert [json.loads(one) for one in left_out.listed] == [{"columns": ["text"], "key": {"id": 1}}]


def test_a_sum_that_does_not_fit_is_refused() -> None:
    shape = shape_of(Engine.AGGREGATE, aggregates=(("n", "sum"),))
    most = {"_op": MERGE, "n": 2**31 - 1}
    with pytest.raises(InvalidInputError) as refused:
        fold(shape, [change(1, 0, **most), change(2, 1, **most)])
    assert refused.value.code == "VALUE_OUT_OF_RANGE"


def test_ties_are_counted_and_listed() -> None:
    """Of two changes of one order the later position counts, whatever the arrival."""
    shape = shape_of(Engine.LAST, "columns")
    changes = [change(5, 7, text="a"), change(5, 9, text="b"), change(5, 9, text="b"), change(4, 1, id=2)]
    for given in (changes, changes[::-1]):
        rows, done = fold(shape, given)
        assert rows[0]["text"] == "b"
        assert done.ties.count == 1
        assert [json.loads(one) for one in done.ties.listed] == [{"id": 1, "order": [5]}]


def test_a_change_that_comes_twice_is_no_tie() -> None:
    """Bad input 47: the same position with the same content is the same change."""
    assert fold(shape_of(Engine.LAST), [change(5, 7, text="a"), change(5, 8, text="a")])[1].ties.count == 0


def test_a_tombstone_goes_behind_the_horizon() -> None:
    """A deleted row does not come back, and its tombstone does not stay for ever."""
    shape = shape_of(Engine.LAST, "columns")
    _, deleted = fold(shape, [change(10, 0, _op=DELETE, at=None)])
    assert deleted.hidden is not None
    rows, later = fold(shape, [change(9, 1, text="late")], [], deleted.hidden)
    assert rows == []
    assert later.hidden == deleted.hidden
    _, gone = fold(shape, [change(30, 2, id=2)], [], later.hidden, horizon=11)
    assert gone.hidden is None
