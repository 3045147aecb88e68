"""What may change in the columns of a log, by policy, and the move that takes it up: S5, I28."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.builders import appended, manifest_of, new_log, verdict_for
from tidefold.domain.ingest.append import append, check_shape, require_fence
from tidefold.domain.log_state import Column, LogState, SnapshotKind, State, TableSpec
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.table.schema_evolution import ChangeKind, Policies, Policy, changes_of, evolve, shape_at
from tidefold.domain.table.table_spec import COLUMNS, Engine, Group, Merge
from tidefold.domain.table.types import (
    FIRST,
    ColumnOrigin,
    column_origins,
    find_dropped_columns,
    keeps_values,
    must_rewrite,
    parse_value,
    steps,
    widens,
)
from tidefold.errors import RefusedError, SupersededError

KEY = Column("id", "int")
SHAPE = TableSpec(("id",), (KEY, Column("n", "int"), Column("text", "string")), "postgresql", 16, 4)
ALL = Policies(*[Policy.EVOLVE] * 6)


def log(shape: TableSpec = SHAPE) -> LogState:
    return appended(new_log(shape))


def with_columns(*columns: Column, shape: TableSpec = SHAPE, **changes: Any) -> TableSpec:
    return replace(shape, columns=columns, **changes)


def became(state: LogState, shape: TableSpec, policies: Policies = ALL) -> LogState:
    return evolve(state, shape, policies, "2026-01-01T00:00:00Z", "r")


def used(state: LogState) -> LogState:
    return appended(state)


ADDED = with_columns(*SHAPE.columns, Column("more", "long"))
WIDENED = with_columns(KEY, Column("n", "long"), Column("text", "string"))
RENAMED = with_columns(KEY, Column("number", "int", aliases=("n",)), Column("text", "string"))
DROPPED = with_columns(KEY, Column("text", "string"))
RETYPED = with_columns(KEY, Column("n", "string"), Column("text", "string"))
LONG = with_columns(KEY, Column("n", "long"), Column("text", "string"))
KINDS: list[tuple[ChangeKind, TableSpec, TableSpec, str]] = [
    (ChangeKind.ADD, SHAPE, ADDED, "add `more` long"),
    (ChangeKind.WIDEN, SHAPE, WIDENED, "widen `n` from int to long"),
    (ChangeKind.RENAME, SHAPE, RENAMED, "rename `n` to `number`"),
    (ChangeKind.NARROW, LONG, SHAPE, "narrow `n` from long to int"),
    (ChangeKind.DROP, SHAPE, DROPPED, "drop `n` int"),
    (ChangeKind.RETYPE, SHAPE, RETYPED, "retype `n` from int to string"),
]


@pytest.mark.parametrize("policy", [Policy.EVOLVE, Policy.FREEZE, Policy.QUARANTINE])
@pytest.mark.parametrize(("kind", "before", "after", "said"), KINDS, ids=[k[0] for k in KINDS])
def test_every_kind_of_change_is_taken_up_or_refused_by_its_own_policy(
    kind: ChangeKind, before: TableSpec, after: TableSpec, said: str, policy: Policy
) -> None:
    """I28: what a policy holds is refused by name, before anything happens; the hint names policy and kind."""
    state = log(before)
    policies = replace(ALL, **{kind: policy})
    if policy is Policy.EVOLVE:
        only = replace(Policies(*[Policy.FREEZE] * 6), **{kind: Policy.EVOLVE})
        moved = became(state, after, only)
        assert (moved.shape, moved.schema, moved.fence) == (after, 2, state.fence + 1)
        [(schema, [change])] = changes_of(moved.schemas)
        assert (schema.id, schema.run, str(change)) == (2, "r", said)
        assert became(moved, after, only) == moved
        return
    with pytest.raises(RefusedError) as refused:
        became(state, after, policies)
    assert refused.value.code == "SHAPE_CHANGED"
    assert said in refused.value.message
    assert f"`schema_evolution.{kind}` of the log is `{policy}`" in refused.value.message
    assert f"schema_evolution: {{{kind}: evolve}}" in refused.value.hint


def test_what_loses_nothing_is_taken_up_unless_somebody_says_otherwise() -> None:
    defaults = {kind: Policies().of(kind) for kind in ChangeKind}
    taken = [kind for kind, policy in defaults.items() if policy in (Policy.STOP, Policy.EVOLVE)]
    assert taken == [ChangeKind.ADD, ChangeKind.WIDEN, ChangeKind.RENAME]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (replace(SHAPE, key=("id", "n")), "key: id before, id, n now"),
        (replace(SHAPE, order="arrival"), "order: postgresql before, arrival now"),
        (replace(SHAPE, key_groups=32), "key_groups: 16 before, 32 now"),
        (replace(SHAPE, merge=Merge(Engine.FIRST)), "merge: last"),
        (with_columns(Column("number", "int"), *SHAPE.columns[1:], key=("number",)), "key: id before, number now"),
        (with_columns(Column("id", "string"), *SHAPE.columns[1:]), "it is part of the key"),
        (with_columns(KEY, Column("n", "boolean"), SHAPE.columns[2]), "values of type int cannot become boolean"),
        (with_columns(KEY, Column("n", "decimal(4,0)"), SHAPE.columns[2]), "decimal(4,0), decimal(10,0) holds"),
        (with_columns(KEY, Column("n", "decimal(10,2)"), SHAPE.columns[2]), "decimal(12,2) holds all of both"),
        (with_columns(KEY, Column("n", "decimal(38,29)"), SHAPE.columns[2]), "int cannot become decimal(38,29))"),
        (with_columns(*SHAPE.columns[:2], Column("text", "long")), "values of type string cannot become long"),
    ],
)  # fmt: skip
def test_what_no_policy_can_allow(shape: TableSpec, said: str) -> None:
    with pytest.raises(RefusedError) as refused:
        became(log(), shape)
    assert refused.value.code == "SHAPE_CHANGED"
    assert said in refused.value.message
    assert "evolve" not in refused.value.hint


def test_a_key_may_be_renamed_and_widened() -> None:
    shape = with_columns(Column("number", "long", aliases=("id",)), *SHAPE.columns[1:], key=("number",))
    state = became(log(), shape)
    [(_, told)] = changes_of(state.schemas)
    assert [str(change) for change in told] == ["rename `id` to `number`", "widen `number` from int to long"]
    assert shape_at(state, FIRST).key == ("id",)


def test_what_orders_a_log_keeps_its_numbers() -> None:
    columns = (KEY, Column("at", "date"), Column("n", "int"))
    shape = TableSpec(("id",), columns, COLUMNS, 16, 4, ("at",))
    with pytest.raises(RefusedError, match="it orders the changes"):
        became(log(shape), replace(shape, columns=(KEY, Column("at", "timestamp"), Column("n", "int"))))
    renamed = replace(shape, columns=(KEY, Column("when", "date", aliases=("at",)), Column("n", "int")))
    state = became(log(shape), replace(renamed, order_by=("when",)))
    assert shape_at(state, FIRST).order_by == ("at",)
    by_number = replace(shape, order_by=("n",))
    wider = replace(by_number, columns=(*columns[:2], Column("n", "long")))
    assert became(log(by_number), wider).schema == 2
    history = replace(by_number, merge=Merge(Engine.HISTORY))
    with pytest.raises(RefusedError, match="it orders the changes"):
        became(log(history), replace(wider, merge=Merge(Engine.HISTORY)))


def test_a_new_column_may_come_with_a_group_of_its_own() -> None:
    merge = Merge(Engine.PARTIAL, groups=(Group(("n",), ("text",)),))
    shape = replace(SHAPE, merge=merge)
    groups = (*merge.groups, Group(("more",), ("n",)))
    moved = became(log(shape), replace(ADDED, merge=replace(merge, groups=groups)))
    assert shape_at(moved, FIRST).merge == merge
    with pytest.raises(RefusedError, match="merge"):
        became(log(shape), replace(ADDED, merge=replace(merge, groups=(Group(("n", "more"), ("id",)),))))


def test_other_things_of_a_column_change_freely() -> None:
    """How a source writes a value, its former names and its place among the others are no change of the schema."""
    shape = with_columns(SHAPE.columns[2], Column("n", "int", aliases=("m",)), KEY)
    state = became(log(), shape, Policies(*[Policy.FREEZE] * 6))
    assert (state.shape, state.schemas, state.fence) == (shape, (), log().fence)
    check_shape(state, replace(SHAPE, columns=shape.columns))
    with pytest.raises(RefusedError, match="column order"):
        check_shape(state, SHAPE)
    buckets = replace(shape, buckets=8)
    assert became(state, buckets) == state, "the number of buckets waits for a full snapshot"


def test_an_empty_log_takes_any_shape() -> None:
    state = new_log(SHAPE)
    other = TableSpec(("text",), (Column("text", "string"),), "arrival", 8, 2)
    assert became(state, other, Policies(*[Policy.FREEZE] * 6)).shape == other


def test_a_value_of_older_rows_never_changes() -> None:
    state = used(became(log(), with_columns(*SHAPE.columns, Column("more", "int", default="5"))))
    for default in (None, "6"):
        with pytest.raises(RefusedError, match="cannot change"):
            became(state, with_columns(*SHAPE.columns, Column("more", "int", default=default)))


def test_what_was_announced_before_is_given_up() -> None:
    """Every change set has the schema that the log has when it is appended: others are refused."""
    state = log()
    announced = state.fence
    moved = became(state, ADDED)
    with pytest.raises(SupersededError):
        require_fence(moved, announced)
    after = used(moved)
    assert [c.schema for c in after.change_sets] == [1, 2]
    assert append(after, ()) == after


def test_a_schema_that_nothing_was_made_with_is_taken_back() -> None:
    """A column that was dropped by mistake comes back with its values, as long as nothing came after."""
    state = log()
    dropped = became(state, DROPPED)
    back = became(dropped, SHAPE, Policies())
    assert (back.schemas, back.shape) == ((), SHAPE)
    later = became(used(dropped), SHAPE)
    assert later.schema == 3
    assert column_origins(later.schemas, 1, 3)["n"] == ColumnOrigin(None, ("int",), None), (
        "the column is another one now"
    )
    assert must_rewrite(later.schemas, 1, 3)


def test_names_that_nothing_was_made_with_are_names_all_the_same() -> None:
    """A column that is renamed twice before anything is taken in keeps its values."""
    state = became(log(), RENAMED)
    again = with_columns(KEY, Column("count", "int", aliases=("number",)), Column("text", "string"))
    assert column_origins(became(state, again).schemas, 1, 3)["count"].name == "n"


def test_an_open_attempt_keeps_the_schema_that_it_began_with() -> None:
    state = claim.claim(log(), claim.Claim("run", "r", SnapshotKind.FULL, "2026-01-01T00:00:00Z"))
    moved = became(state, RENAMED)
    attempt = moved.open_attempt
    assert attempt
    assert (attempt.schema, moved.schema) == (1, 2)
    assert shape_at(moved, attempt.schema).columns == SHAPE.columns
    staged = transitions.stage(moved, manifest_of(moved, attempt), "digest")
    assert staged.open_attempt
    judged = transitions.record_verdict(staged, attempt.id, verdict_for(staged.open_attempt))
    done = transitions.confirm(judged, attempt.id)
    assert (done.shape, done.latest and done.latest.state) == (RENAMED, State.COMPLETED)
    again = claim.claim(
        transitions.record_publication(used(done), attempt.id, 0), claim.Claim("next", "r", SnapshotKind.FULL, "")
    )
    assert again.open_attempt
    assert again.open_attempt.schema == 2


def test_where_values_come_from() -> None:
    state = used(became(log(), with_columns(*SHAPE.columns, Column("more", "int", default="5"))))
    state = used(became(state, with_columns(KEY, Column("number", "long", aliases=("n",)), SHAPE.columns[2],
                                            Column("more", "long", default="5"))))  # fmt: skip
    assert column_origins(state.schemas, 1, 3) == {
        "id": ColumnOrigin("id", ("int", "int", "int")),
        "number": ColumnOrigin("n", ("int", "int", "long")),
        "text": ColumnOrigin("text", ("string", "string", "string")),
        "more": ColumnOrigin(None, ("int", "long"), "5"),
    }
    assert column_origins(state.schemas, 2, 3)["more"] == ColumnOrigin("more", ("int", "long"))
    assert column_origins(state.schemas, 3, 3) == {}
    assert [must_rewrite(state.schemas, *pair) for pair in ((1, 1), (1, 2), (2, 3), (3, 3))] == [0, 1, 1, 0]


def test_files_stay_when_a_column_comes_without_a_value() -> None:
    state = used(became(log(), ADDED))
    assert not must_rewrite(state.schemas, 1, 2)
    dropped = became(state, SHAPE)
    assert must_rewrite(dropped.schemas, 2, 3)
    assert find_dropped_columns(dropped.schemas, 2, 3) == ("more",)
    assert not must_rewrite(dropped.schemas, 1, 3), "such files never had the column"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "long"), ("float", "double"), ("date", "timestamp"), ("int", "decimal(10,0)"), ("int", "decimal(12,2)"),
        ("long", "decimal(19,0)"), ("decimal(4,2)", "decimal(5,2)"), ("decimal(4,2)", "decimal(6,4)"),
        ("array<int>", "array<long>"),
    ],
)  # fmt: skip
def test_wider_types(old: str, new: str) -> None:
    assert widens(old, new)
    assert not widens(new, old)
    assert keeps_values(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "int"), ("int", "double"), ("long", "double"), ("int", "decimal(9,0)"), ("long", "decimal(19,1)"),
        ("decimal(4,2)", "decimal(4,3)"), ("decimal(4,2)", "decimal(4,2)"), ("timestamp", "date"), ("int", "string"),
        ("array<int>", "int"), ("boolean", "int"),
    ],
)  # fmt: skip
def test_types_that_are_not_wider(old: str, new: str) -> None:
    assert not widens(old, new)


@pytest.mark.parametrize(
    ("types", "left"),
    [
        (("int",), ("int",)),
        (("int", "int"), ("int",)),
        (("long", "int", "long"), ("long",)),
        (("int", "long", "decimal(20,0)"), ("int", "decimal(20,0)")),
        (("int", "decimal(12,2)", "string"), ("int", "decimal(12,2)", "string")),
        (("float", "double", "double", "string"), ("float", "double", "string")),
    ],
)
def test_types_in_between_count_only_where_a_text_is_taken(types: tuple[str, ...], left: tuple[str, ...]) -> None:
    """A column that was narrowed by mistake can be widened again: the values of before are not asked for it."""
    assert steps(types) == left


@pytest.mark.parametrize(
    ("type_", "text"),
    [("int", "5000000000"), ("int", "x"), ("boolean", "yes"), ("decimal(4,2)", "1.555"), ("decimal(4,2)", "123.00"),
     ("date", "31.1."), ("timestamp", "2026-01-01T00:00:00"), ("double", "nan"), ("binary", "00"), ("array<int>", "1")],
)  # fmt: skip
def test_texts_that_are_no_value(type_: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"not a value of type|cannot have a default"):
        parse_value(type_, text)
