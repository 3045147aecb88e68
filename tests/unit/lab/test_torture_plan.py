"""What 30 seeds of the torture rig try: each dimension, with each database and each form of records."""

from __future__ import annotations

from collections import Counter

import pytest

from torture.plan import BINARY_MODES, CONNECTORS, LANDED, OVERLAPS, ROTATIONS, draw_plan

SEEDS = 30
# How often each form tries it at least, for one database.
EACH = {
    "envelope": {"kill": 3, "engine stopped": 2, "truncate": 3, "alter": 3, "incremental": 3, "blocking": 3}
    | {"drop": 3, "come back": 3, "scale": 3, "schemas on": 3, "schemas off": 3}
    | {"decimals precise": 2, "decimals string": 2},
    "set": {"kill": 2, "engine stopped": 1, "truncate": 2, "alter": 2, "incremental": 2, "blocking": 2}
    | {"drop": 2, "come back": 2, "scale": 2, "schemas on": 1, "schemas off": 1}
    | {"decimals precise": 1, "decimals string": 1},
    "unwrapped": {"kill": 3, "engine stopped": 2, "alter": 3, "incremental": 3, "blocking": 3}
    | {"drop": 3, "come back": 3, "scale": 2, "decimals precise": 2, "decimals string": 2},
}
# What lands of a record, and which transactions are open while the connector begins.
WHOLE = {
    "envelope": {"landed whole": 2, "landed values": 2, "open at the start: at once": 1},
    "set": {"landed whole": 3} | {f"open at the start: {when}": 1 for when in ("at once", "late", "killed")},
    "unwrapped": {f"landed {what}": 2 for what in LANDED} | {"open at the start: late": 1},
}
POSTGRESQL = {
    "envelope": {"deferred keys": 4, "no first snapshot": 2, "rows left out": 2}
    | {f"open at the start: {when}": 1 for when in OVERLAPS},
    "set": {"deferred keys": 2},
    "unwrapped": {"deferred keys": 4, "no first snapshot": 1, "rows left out": 5}
    | {f"open at the start: {when}": 1 for when in OVERLAPS},
}
POSTGRESQL = {form: {**wanted, "copy": 2} for form, wanted in POSTGRESQL.items()}


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("form", EACH)
def test_thirty_seeds_try_each_dimension_with_each_database_and_form(connector: str, form: str) -> None:
    tried: Counter[str] = Counter()
    for number in range(SEEDS):
        plan = draw_plan(number)
        if (plan.connector, plan.form) == (connector, form):
            tried.update(plan.dimensions)
    wanted = EACH[form] | {f"files of {count} records": 1 for count in ROTATIONS}
    wanted |= WHOLE[form] | (POSTGRESQL[form] if connector == "postgresql" else {})
    assert {name: tried[name] for name, least in wanted.items() if tried[name] < least} == {}


@pytest.mark.parametrize("connector", CONNECTORS)
def test_thirty_seeds_try_each_mode_of_bytes(connector: str) -> None:
    plans = [draw_plan(number) for number in range(SEEDS)]
    modes = Counter(plan.binary for plan in plans if plan.connector == connector)
    assert set(modes) == set(BINARY_MODES[connector])
    assert min(modes.values()) >= 2


def test_changes_of_scale_have_schemas_in_some_seeds_and_none_in_others() -> None:
    plans = [plan for number in range(SEEDS) if "scale" in (plan := draw_plan(number)).dimensions]
    assert all(count >= 3 for count in Counter((plan.connector, plan.schemas) for plan in plans).values())
    assert {(plan.connector, plan.schemas) for plan in plans} == {(c, s) for c in CONNECTORS for s in ("on", "off")}


def test_a_column_comes_back_after_it_was_dropped() -> None:
    for number in range(SEEDS):
        deeds = [deed for phase in draw_plan(number).deeds for _, deed in phase]
        assert deeds.count("drop") == deeds.count("come back")
        if "drop" in deeds:
            assert deeds.index("drop") < deeds.index("come back"), number


def test_a_seed_is_drawn_from_its_number_alone() -> None:
    assert draw_plan(17) == draw_plan(17)
    assert draw_plan(17) != draw_plan(19)


def test_keys_change_in_small_files_of_values_alone() -> None:
    plans = [plan for number in range(SEEDS) if (plan := draw_plan(number)).form == "envelope"]
    assert {plan.rotate for plan in plans if plan.landed == "values"} == {min(ROTATIONS)}


def test_an_unwrapped_record_with_headers_leaves_no_row_out() -> None:
    plans = [draw_plan(number) for number in range(SEEDS)]
    named = [plan for plan in plans if (plan.form, plan.landed, plan.unseen) == ("unwrapped", "whole", False)]
    assert "postgresql" in {plan.connector for plan in named}
    assert not any(plan.leaves_out for plan in named)
