"""What `order`, `merge` and `late` of a log say: an option without effect, or without an exact result, is a mistake.

Other programs ignore such options in silence (dlt-hub/dlt#2201 and PR 2202 `dedup_sort`, apache/paimon#8858, #10134).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidefold.config import load_config
from tidefold.domain.table.table_spec import COLUMNS, POSITION, Deletes, Engine, Group
from tidefold.yaml_files.document import ConfigError

LOG = """
version: 1
store: store
logs:
  items:
    source: {{format: json, path: landing, op: {{column: op}}}}
    columns: {{id: int, at: long, day: date, ts: timestamp, a: long, d: double, t: string, l: "array<long>"}}
    {rest}
"""
WRONG = {
    "merge: last": "LOG_WITHOUT_KEY",
    "key: [id]\n    merge: append": "KEY_WITHOUT_EFFECT",
    "merge: append\n    order: [at]": "ORDER_INVALID",
    "key: [id]\n    order: [nope]": "ORDER_COLUMN",
    "key: [id]\n    order: [t]": "ORDER_COLUMN",
    "key: [id]\n    order: [at, at]": "ORDER_COLUMN",
    "key: [id]\n    order: postgresql": "ORDER_INVALID",
    "key: [id]\n    order: []": "CONFIG_WRONG_TYPE",
    "key: [id]\n    merge: newest": "CONFIG_UNKNOWN_VALUE",
    "key: [id]\n    merge: {engine: last, groups: [{columns: [a]}]}": "MERGE_WITHOUT_EFFECT",
    "key: [id]\n    merge: {engine: partial, aggregates: {a: sum}}": "MERGE_WITHOUT_EFFECT",
    "key: [id]\n    merge: {aggregates: {a: sum}}": "MERGE_WITHOUT_EFFECT",
    "key: [id]\n    dedup_sort: desc": "CONFIG_UNKNOWN_KEY",
    "key: [id]\n    merge: {engine: partial, groups: [{columns: [id]}]}": "MERGE_COLUMN",
    "key: [id]\n    merge: {engine: partial, groups: [{columns: [a]}, {columns: [a]}]}": "MERGE_COLUMN",
    "key: [id]\n    merge: {engine: partial, groups: [{columns: [a], order: [t]}]}": "ORDER_COLUMN",
    "key: [id]\n    merge: {engine: partial, deletes: apply, groups: [{columns: [a], order: [at]}]}": "DELETES_INEXACT",
    "key: [id]\n    order: [at]\n    merge: {engine: first, deletes: apply}": "DELETES_INEXACT",
    "key: [id]\n    merge: {engine: aggregate, aggregates: {id: sum}}": "MERGE_COLUMN",
    "key: [id]\n    merge: {engine: aggregate, aggregates: {a: median}}": "AGGREGATE_UNKNOWN",
    "key: [id]\n    merge: {engine: aggregate, aggregates: {d: sum}}": "AGGREGATE_TYPE",
    "key: [id]\n    merge: {engine: aggregate, aggregates: {t: list}}": "AGGREGATE_TYPE",
    "key: [id]\n    merge: {engine: aggregate, aggregates: {a: count, t: bool_or}}": "AGGREGATE_TYPE",
    "key: [id]\n    order: [at]\n    merge: {engine: aggregate, aggregates: {a: sum}}": "AGGREGATE_INEXACT",
    "key: [id]\n    late: {allowed_lateness: 7d}": "LATE_WITHOUT_EFFECT",
    "key: [id]\n    order: [at]\n    merge: first\n    late: {allowed_lateness: 7}": "LATE_WITHOUT_EFFECT",
    "key: [id]\n    order: [at]\n    late: {allowed_lateness: 7d}": "LATE_HORIZON",
    "key: [id]\n    order: [ts]\n    late: {allowed_lateness: 7}": "LATE_HORIZON",
    "key: [id]\n    order: [day]\n    late: {allowed_lateness: 36h}": "LATE_HORIZON",
    "key: [id]\n    order: [ts]\n    late: {allowed_lateness: soon}": "CONFIG_WRONG_TYPE",
    "key: [id]\n    order: [ts]\n    late: {allowed_lateness: 7d, policy: drop}": "CONFIG_UNKNOWN_VALUE",
}


def written(folder: Path, rest: str) -> Path:
    path = folder / "tidefold.yaml"
    path.write_text(LOG.format(rest=rest))
    return path


@pytest.mark.parametrize("rest", WRONG, ids=range(len(WRONG)))
def test_a_mistake_is_refused_by_name(tmp_path: Path, rest: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(written(tmp_path, rest))
    found = {problem.code: problem for problem in refused.value.problems}
    assert WRONG[rest] in found, found
    assert found[WRONG[rest]].line > 1
    # The next step: a hint, or what is allowed in the message itself.
    assert found[WRONG[rest]].hint or WRONG[rest].startswith("CONFIG_")


def test_what_is_said_is_taken(tmp_path: Path) -> None:
    groups = "groups: [{columns: [a, at], order: [at]}, {columns: [t]}]"
    rest = f"key: [id]\n    merge: {{engine: partial, deletes: ignore, {groups}}}"
    log = load_config(written(tmp_path, rest)).logs["items"]
    assert (log.shape.order, log.shape.order_by) == (POSITION, ())
    assert log.shape.merge.groups == (Group(("a", "at"), ("at",)), Group(("t",)))
    assert log.shape.merge.deletes is Deletes.IGNORE


@pytest.mark.parametrize(
    ("order", "horizon", "lateness"), [("at", "7", 7), ("ts", "36h", 36 * 3_600_000_000), ("day", "7d", 7)]
)
def test_a_horizon_is_in_the_unit_of_its_column(tmp_path: Path, order: str, horizon: str, lateness: int) -> None:
    log = load_config(written(tmp_path, f"key: [id]\n    order: [{order}]\n    late: {{allowed_lateness: {horizon}}}"))
    found = log.logs["items"]
    assert (found.shape.order, found.lateness, found.late.policy) == (COLUMNS, lateness, "quarantine")


def test_deletes_are_put_aside_where_they_cannot_be_exact(tmp_path: Path) -> None:
    log = load_config(written(tmp_path, "key: [id]\n    order: [at]\n    merge: first")).logs["items"]
    assert (log.shape.merge.engine, log.shape.merge.deletes) == (Engine.FIRST, Deletes.QUARANTINE)


@pytest.mark.parametrize(
    ("paimon", "engine"),
    [("deduplicate", "last"), ("first-row", "first"), ("partial-update", "partial"), ("aggregation", "aggregate")],
)
def test_the_engines_have_the_names_of_paimon_too(tmp_path: Path, paimon: str, engine: str) -> None:
    """The stored name of an engine does not depend on its spelling."""
    for text in (f"merge: {paimon}", f"merge: {{engine: {paimon}}}"):
        assert load_config(written(tmp_path, f"key: [id]\n    {text}")).logs["items"].shape.merge.engine == engine


def test_the_former_key_of_lateness_is_refused_with_its_name_now(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(written(tmp_path, "key: [id]\n    order: [ts]\n    late: {horizon: 7d}"))
    hints = {(p.code, p.key): p.hint for p in refused.value.problems}
    assert hints["CONFIG_UNKNOWN_KEY", "logs.items.late.horizon"] == "Did you mean `allowed_lateness`?"
