"""Every merge engine against the naive program: any permutation, repetition and split of the changes gives its rows
(promises I5 and I25).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folding import folded
from naive import rows_of
from tidefold.changelog.columns import CLEAR, DELETE, MERGE, UPSERT
from tidefold.lifecycle.shape import Column, Engine, Group, Merge, Shape

COLUMNS = (
    Column("id", "int"),
    Column("part", "string"),
    Column("at", "long"),
    Column("a", "long"),
    Column("b", "string"),
    Column("c", "boolean"),
    Column("tags", "array<string>"),
)
KEY = ("id", "part")
VALUES = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-5, 5),
        "b": st.none() | st.sampled_from(["x", "y", "z"]),
        "c": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.sampled_from(["p", "q"]), max_size=2),
    }
)
KEYS = st.tuples(st.integers(0, 2), st.sampled_from(["m", "n"]))


def shape_of(engine: Engine, order: str = "postgresql", **how: Any) -> Shape:
    order_by = ("at",) if order == "columns" else ()
    merge = Merge(engine, **{k: v for k, v in how.items() if k in ("groups", "aggregates")})
    key = () if engine is Engine.APPEND else KEY
    return Shape(key, COLUMNS, order, 4, 1, order_by, merge, how.get("spread", 0))


@st.composite
def histories(draw: st.DrawFn, shape: Shape, ops: tuple[int, ...], absent: bool = False) -> list[dict[str, Any]]:
    """Changes with places that differ; several may share an order where columns order the log."""
    changes = []
    for offset in range(draw(st.integers(1, 14))):
        op, key = draw(st.sampled_from(ops)), draw(KEYS)
        values = draw(VALUES) if op in (UPSERT, MERGE) else {"a": None, "b": None, "c": None, "tags": None}
        # Where values are added up, a set is of the whole row.
        partial = absent and (op == MERGE or shape.merge.engine is not Engine.AGGREGATE)
        left_out = draw(st.lists(st.sampled_from(["a", "b", "c", "tags"]), unique=True)) if partial else []
        at = draw(st.integers(0, 6))
        change = {"_op": op, "_kg": 0, "_partition": 0, "_offset": offset, "_ts": 1_000 * offset, "at": at, **values}
        change |= {"_absent": (left_out or None) if op in (UPSERT, MERGE) else None}
        change |= dict.fromkeys(left_out) if op in (UPSERT, MERGE) else {"at": None}
        change |= {"id": key[0], "part": key[1]}
        if op == CLEAR:
            of_key = shape.spread and draw(st.booleans())
            change |= {"id": key[0] if of_key else None, "part": None}
        change |= {"_o0": at} if shape.order == "columns" else {"_o0": offset, "_o1": 0} if shape.order_width else {}
        changes.append(change)
    return changes


def users(shape: Shape, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{c.name: row[c.name] for c in shape.columns} for row in rows]


def shuffled(folds: list[list[dict[str, Any]]], seed: random.Random) -> list[list[dict[str, Any]]]:
    """Each fold's changes in any order, some of them twice."""
    again = [fold + seed.sample(fold, len(fold) // 2) for fold in folds]
    return [seed.sample(fold, len(fold)) for fold in again]


def cut(changes: list[dict[str, Any]], seed: random.Random) -> list[list[dict[str, Any]]]:
    """Some folds, one after the other."""
    edges = sorted(seed.randrange(len(changes) + 1) for _ in range(seed.randrange(4)))
    return [changes[a:b] for a, b in zip([0, *edges], [*edges, len(changes)], strict=True)]


AGGREGATES = (("a", "sum"), ("c", "bool_or"), ("tags", "list"))
COMMUTING = (("a", "sum"), ("c", "bool_or"), ("at", "max"), ("b", "min"), ("tags", "max"))
OWN = [
    (shape_of(Engine.LAST), (UPSERT, UPSERT, DELETE, CLEAR), False),
    (shape_of(Engine.LAST, spread=1), (UPSERT, UPSERT, UPSERT, DELETE, CLEAR), False),
    (shape_of(Engine.LAST, "position"), (UPSERT, UPSERT, DELETE, CLEAR), False),
    (shape_of(Engine.FIRST), (UPSERT, UPSERT, DELETE, CLEAR), False),
    (shape_of(Engine.PARTIAL), (UPSERT, UPSERT, UPSERT, DELETE), True),
    (shape_of(Engine.PARTIAL), (UPSERT, UPSERT, UPSERT, DELETE, CLEAR), True),
    (shape_of(Engine.PARTIAL, groups=(Group(("a", "c", "at"), ("at",)),)), (UPSERT,), True),
    (shape_of(Engine.AGGREGATE, aggregates=AGGREGATES), (MERGE, MERGE, MERGE, UPSERT, DELETE, CLEAR), True),
    (shape_of(Engine.AGGREGATE, aggregates=(("a", "count"), ("b", "last"))), (MERGE, MERGE, DELETE), False),
    (shape_of(Engine.AGGREGATE, aggregates=(("a", "max"), ("b", "first"), ("c", "bool_and"))), (MERGE,), False),
    (shape_of(Engine.AGGREGATE, aggregates=(("a", "product"), ("at", "min"))), (MERGE, DELETE), False),
    (shape_of(Engine.APPEND), (UPSERT, UPSERT, CLEAR), False),
    (shape_of(Engine.APPEND, "position"), (UPSERT,), False),
]
ANY = [
    (shape_of(Engine.LAST, "columns"), (UPSERT, UPSERT, DELETE), False),
    (shape_of(Engine.FIRST, "columns"), (UPSERT,), False),
    (shape_of(Engine.PARTIAL, "columns"), (UPSERT, UPSERT, UPSERT, DELETE), True),
    (shape_of(Engine.PARTIAL, "columns", groups=(Group(("a", "c"), ("at",)),)), (UPSERT,), True),
    (shape_of(Engine.AGGREGATE, "columns", aggregates=COMMUTING), (MERGE,), False),
]


def named(case: tuple[Shape, tuple[int, ...], bool]) -> str:
    shape, ops, _ = case
    return f"{shape.merge.engine}-{shape.order}-{len(shape.merge.groups)}-{len(ops)}"


@pytest.mark.parametrize("case", OWN, ids=named)
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_log_in_its_own_order_gives_the_naive_rows(case: Any, data: st.DataObject, seed: random.Random) -> None:
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    folds = cut(changes, seed)
    if shape.key:  # Repeats of a position are left out before a keyless log, or one of aggregates, is folded.
        folds = shuffled(folds, seed) if shape.merge.engine is not Engine.AGGREGATE else folds
    assert users(shape, folded(shape, folds)) == rows_of(shape, changes)


@pytest.mark.parametrize("case", ANY, ids=named)
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_log_ordered_by_columns_may_come_in_any_order(case: Any, data: st.DataObject, seed: random.Random) -> None:
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    mixed = cut(seed.sample(changes, len(changes)), seed)
    folds = shuffled(mixed, seed) if shape.merge.engine is not Engine.AGGREGATE else mixed
    assert users(shape, folded(shape, folds)) == rows_of(shape, changes)


@pytest.mark.parametrize("order", ["postgresql", "columns", "position"])
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_a_history_has_the_naive_spans(order: str, data: st.DataObject, seed: random.Random) -> None:
    """A late change splits the right interval; what was deleted has an end and no row after it."""
    shape = shape_of(Engine.HISTORY, order)
    ops = (UPSERT, UPSERT, UPSERT, DELETE) if order == "columns" else (UPSERT, UPSERT, UPSERT, DELETE, CLEAR)
    changes = data.draw(histories(shape, ops))
    mixed = seed.sample(changes, len(changes)) if order == "columns" else changes
    rows = folded(shape, shuffled(cut(mixed, seed), seed))
    expected = rows_of(shape, changes)
    assert users(shape, rows) == users(shape, expected)
    width = shape.order_width or 2
    assert [tuple(row["_order"][:width]) for row in rows] == [row["from"] for row in expected]
    if order == "columns":
        assert [(row["_valid_from"], row["_valid_to"]) for row in rows] == [
            (row["from"][0], row["until"] and row["until"][0]) for row in expected
        ]
    else:
        times = {(c["_o0"] if order == "postgresql" else c["_offset"]): c["_ts"] for c in changes}
        spans = [tuple(v and int(v.timestamp() * 1e6) for v in (r["_valid_from"], r["_valid_to"])) for r in rows]
        first = 0 if order == "postgresql" else 1
        assert spans == [
            (times[row["from"][first]], None if row["until"] is None else times[row["until"][first]])
            for row in expected
        ]
