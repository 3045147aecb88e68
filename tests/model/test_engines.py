"""Every merge engine against the naive program: any permutation, repetition and split of the changes gives its rows
(promises I5 and I25).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.engine_cases import ANY, OWN, histories, named, shape_of
from support.folding import folded
from support.naive import rows_of
from tidefold.changelog.schema import CLEAR, DELETE, UPSERT
from tidefold.domain.table.table_spec import Engine, TableSpec


def users(shape: TableSpec, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{c.name: row[c.name] for c in shape.columns} for row in rows]


def shuffled(folds: list[list[dict[str, Any]]], seed: random.Random) -> list[list[dict[str, Any]]]:
    """Each fold's changes in any order, some of them twice."""
    again = [fold + seed.sample(fold, len(fold) // 2) for fold in folds]
    return [seed.sample(fold, len(fold)) for fold in again]


def cut(changes: list[dict[str, Any]], seed: random.Random) -> list[list[dict[str, Any]]]:
    """Some folds, one after the other."""
    edges = sorted(seed.randrange(len(changes) + 1) for _ in range(seed.randrange(4)))
    return [changes[a:b] for a, b in zip([0, *edges], [*edges, len(changes)], strict=True)]


@pytest.mark.rotates(4)
@pytest.mark.parametrize("case", OWN, ids=named)
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(5, 40), deadline=None)
def test_a_log_in_its_own_order_gives_the_naive_rows(case: Any, data: st.DataObject, seed: random.Random) -> None:
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    folds = cut(changes, seed)
    if shape.key:  # Repeats of a position are left out before a keyless log, or one of aggregates, is folded.
        folds = shuffled(folds, seed) if shape.merge.engine is not Engine.AGGREGATE else folds
    assert users(shape, folded(shape, folds)) == rows_of(shape, changes)


@pytest.mark.rotates(4)
@pytest.mark.parametrize("case", ANY, ids=named)
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(5, 40), deadline=None)
def test_a_log_ordered_by_columns_may_come_in_any_order(case: Any, data: st.DataObject, seed: random.Random) -> None:
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    mixed = cut(seed.sample(changes, len(changes)), seed)
    folds = shuffled(mixed, seed) if shape.merge.engine is not Engine.AGGREGATE else mixed
    assert users(shape, folded(shape, folds)) == rows_of(shape, changes)


@pytest.mark.rotates(4)
@pytest.mark.parametrize("case", [case for case in (*OWN, *ANY) if case[0].marks_rows], ids=named)
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(5, 40), deadline=None)
def test_a_change_needs_only_the_row_of_its_key(case: Any, data: st.DataObject, seed: random.Random) -> None:
    """So a fold may mark that row, and reads no other one."""
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    folds = cut(changes if shape.source_ordered else seed.sample(changes, len(changes)), seed)
    assert users(shape, folded(shape, folds, marks=True)) == rows_of(shape, changes)


@pytest.mark.parametrize("order", ["postgresql", "columns", "position"])
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(7, 60), deadline=None)
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
