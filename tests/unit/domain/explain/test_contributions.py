"""`explain` names the changes that a row consists of: what they gave, put together, is the row."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.engine_cases import ANY, OWN, histories, named
from support.naive import key_of, rows_of
from tidefold.changelog.schema import CLEAR, DELETE, MERGE, place_columns
from tidefold.domain.explain.key_history import FoldedRange, KeyChange, explain
from tidefold.domain.log_state import LogState
from tidefold.domain.table.table_spec import Engine, TableSpec

ONE_VALUE = (Engine.LAST, Engine.FIRST, Engine.PARTIAL)
CASES = [case for case in (*OWN, *ANY) if case[0].merge.engine in ONE_VALUE]


def change_of(shape: TableSpec, number: int, values: dict[str, Any]) -> KeyChange:
    place, op = tuple(values[name] for name in place_columns(shape)), values["_op"]
    if op == CLEAR and shape.order_width:
        place = (*place[:-2], -1, -1)
    absent = values["_absent"] or ()
    said = tuple(c.name for c in shape.columns if c.name not in absent) if absent else None
    ranks = tuple(
        (name, (values["at"],) if values["at"] is not None else None)
        for group in shape.merge.groups
        for name in group.columns
    )
    return KeyChange(number, 1, place, op == DELETE, False, op == CLEAR, op == MERGE, said, ranks)


@pytest.mark.parametrize("case", CASES, ids=named)
@given(data=st.data(), seed=st.randoms(use_true_random=False))
@settings(max_examples=choose(16, 40), deadline=None)
def test_what_the_makers_gave_is_the_row(case: Any, data: st.DataObject, seed: random.Random) -> None:
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    rows = {key_of(shape, row): row for row in rows_of(shape, changes)}
    for key in {key_of(shape, c) for c in changes if c["_op"] != CLEAR}:
        mine = [c for c in changes if (c["_op"] == CLEAR and c["id"] in (None, key[0])) or key_of(shape, c) == key]
        told = explain(
            LogState("log", shape),
            [FoldedRange(0, 1, 1, "run")],
            [change_of(shape, number, values) for number, values in enumerate(mine)],
            shape,
        )
        parts = {name: mine[one.change.number][name] for one in told.changes for name in one.gave}
        assert (key in rows) == (told.winner is not None and not told.winner.removes)
        if key in rows:
            assert parts == {name: rows[key][name] for name in parts}
            rest = [c.name for c in shape.columns if c.name not in parts and c.name not in shape.key]
            assert all(rows[key][name] is None for name in rest)
