"""SQL views on a set in real Spark sessions: they show the pointer's versions while single tables are newer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.bank_sets import ENDS, KEYS, LOGS, SET, config, count_records, land, make_bank, replay, run
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.sets.read import write_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(4, whole=True)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A published set. Then all tables are published once more, each alone, by a configuration without sets."""
    folder = tmp_path_factory.mktemp("views")
    all_records = {name: count_records(name) for name in (*LOGS, ENDS)}
    land(make_bank(folder).config.path.parent, {name: count // 2 for name, count in all_records.items()})
    run(make_bank(folder), "r1")
    land(folder, all_records)
    run(make_bank(folder, config("")), "alone")
    return make_bank(folder, config(SET))


def _expect(bank: Pipeline) -> dict[str, list[dict[str, int]]]:
    version = bank.set_ledger("bank").read().published
    assert version
    return {log: [rows[key] for key in sorted(rows)] for log, rows in replay().rows[version.position].items()}


def test_views_of_a_session(bank: Pipeline, analyst: SparkSession) -> None:
    for statement in write_views(bank, "bank"):
        analyst.sql(statement)
    expected = _expect(bank)
    for log in LOGS:
        rows = analyst.sql(f"SELECT * FROM bank_{log}").orderBy(KEYS[log]).collect()
        assert [row.asDict() for row in rows] == expected[log]


def test_a_registered_table_is_found_by_name(bank: Pipeline, analyst: SparkSession) -> None:
    """The statement of docs/how-to/read.md; another session reads what is published."""
    analyst.sql("CREATE SCHEMA IF NOT EXISTS sales")
    address = bank.store.uri("tables/tellers")
    analyst.sql(f"CREATE TABLE sales.tellers USING delta LOCATION '{address}'")
    rows = analyst.newSession().sql("SELECT * FROM sales.tellers").orderBy(KEYS["tellers"]).collect()
    newest = replay().rows[max(replay().rows)]["tellers"]
    assert [row.asDict() for row in rows] == [newest[key] for key in sorted(newest)]
