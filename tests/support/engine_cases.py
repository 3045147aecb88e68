"""Table definitions of all engines with their allowed operations, and random histories of changes for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidefold.changelog.schema import CLEAR, DELETE, MERGE, UPSERT
from tidefold.domain.table.table_spec import Column, Engine, Group, Merge, TableSpec

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


def shape_of(engine: Engine, order: str = "postgresql", **how: Any) -> TableSpec:
    order_by = ("at",) if order == "columns" else ()
    merge = Merge(engine, **{k: v for k, v in how.items() if k in ("groups", "aggregates")})
    key = () if engine is Engine.APPEND else KEY
    return TableSpec(key, COLUMNS, order, 4, 1, order_by, merge, how.get("spread", 0))


@st.composite
def histories(draw: st.DrawFn, shape: TableSpec, ops: tuple[int, ...], absent: bool = False) -> list[dict[str, Any]]:
    """Draws changes with different positions; several may share an order if columns order the log."""
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
    (shape_of(Engine.PARTIAL, groups=(Group(("a", "c"), ("at",)),)), (UPSERT, UPSERT, UPSERT, CLEAR), True),
    (shape_of(Engine.PARTIAL, groups=(Group(("a",), ("at",)),), spread=1), (UPSERT, UPSERT, UPSERT, CLEAR), True),
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


def named(case: tuple[TableSpec, tuple[int, ...], bool]) -> str:
    shape, ops, _ = case
    return f"{shape.merge.engine}-{shape.order}-{len(shape.merge.groups)}-{len(ops)}"
