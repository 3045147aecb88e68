"""Tables are registered after their publication, once, and a catalog that fails concerns nobody who reads the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.delta.published_table import delta_state
from tidefold.domain.paths import LogPaths
from tidefold.errors import StorageError
from tidefold.operations.catalog.register import find_unregistered, list_warnings, register
from tidefold.operations.doctor.machine import JavaInstallation
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import Fold, materialize
from tidefold.operations.verify.verify import Asked, verify
from tidefold.spark.steps import RegisterStep
from tidefold.spark.submit import spark_conf

HIVE = """
catalog:
  database: sales
  settings: {spark.sql.catalogImplementation: hive, spark.hadoop.hive.metastore.uris: "thrift://meta:9083"}
"""
DESCRIBED = CONFIG.replace(
    "    columns: {id: int, text: string}\n",
    "    comment: Accounts of the bank\n    columns: {id: {type: int, comment: Number of the account}, text: string}\n",
    1,
)


@dataclass
class FakeCatalog:
    """A catalog in memory; `broken`: it does not answer."""

    tables: dict[tuple[str, str], str] = field(default_factory=dict)
    broken: bool = False

    def register(self, database: str, table: str, location: str) -> bool:
        if self.broken:
            raise StorageError("CATALOG_FAILED", "The metastore does not answer.", hint="Start it.")
        new = (database, table) not in self.tables
        self.tables[database, table] = location
        return new


def publish(pipeline: Pipeline, run: str, changes: list[dict[str, Any]]) -> Outcome:
    put(pipeline, changes)
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)
    return confirm(pipeline, "accounts")


def table(pipeline: Pipeline) -> DeltaTable:
    return DeltaTable(pipeline.store.uri(LogPaths("accounts").table))


def test_a_table_is_registered_once(tmp_path: Path) -> None:
    pipeline, catalog = make_pipeline(tmp_path, CONFIG + HIVE), FakeCatalog()
    assert find_unregistered(pipeline, ["accounts"]) == []
    publish(pipeline, "run-1", [{"id": 1, "text": "a"}])
    assert find_unregistered(pipeline, ["accounts", "tellers"]) == ["accounts"]
    [outcome] = register(pipeline, ["accounts"], catalog)
    assert outcome.status == "registered"
    assert catalog.tables == {("sales", "accounts"): pipeline.store.uri("tables/accounts")}
    publish(pipeline, "run-2", [{"id": 2, "text": "b"}])
    assert find_unregistered(pipeline, ["accounts"]) == []
    # Another database is another place to look.
    other = make_pipeline(tmp_path, CONFIG + HIVE.replace("sales", "other"))
    assert find_unregistered(other, ["accounts"]) == ["accounts"]
    assert register(other, ["accounts"], catalog)[0].status == "registered"


def test_a_catalog_that_fails_is_a_warning_with_the_next_step(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, CONFIG + HIVE)
    assert publish(pipeline, "run-1", [{"id": 1, "text": "a"}]).status == "published"
    [warning] = list_warnings(register(pipeline, ["accounts"], FakeCatalog(broken=True)))
    assert "accounts is published, but not registered" in warning
    assert warning.endswith("Start it. Then: `tidefold register accounts`.")
    assert find_unregistered(pipeline, ["accounts"]) == ["accounts"]
    assert table_rows(pipeline) == {1: "a"}


def test_without_a_catalog_nothing_is_asked(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    publish(pipeline, "run-1", [{"id": 1, "text": "a"}])
    assert find_unregistered(pipeline, ["accounts"]) == []
    [outcome] = RegisterStep().prepare(pipeline, ["accounts"])
    assert isinstance(outcome, Outcome)
    assert outcome.message == "the configuration names no catalog"
    assert pipeline.store.list(LogPaths("accounts").registrations) == []


def test_a_run_whose_catalog_fails_is_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step needs Spark; here the process that would start it finds no Java."""
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "orders+0+0000000000.jsonl").write_text('{"id": 1}\n')
    config = "version: 1\nstore: store\nlogs:\n  orders:\n    source: {format: json, path: landing, record: value}\n"
    (tmp_path / "tidefold.yaml").write_text(config + "    key: [id]\n    columns: {id: long}\n" + HIVE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    monkeypatch.setattr("tidefold.cli.spark_submit.find_java", lambda: JavaInstallation(""))
    done = CliRunner().invoke(app, ["run"])
    assert done.exit_code == 0, done.output
    assert "warning: the catalog was not asked: [JAVA_MISSING]" in done.output
    assert len(DeltaTable(str(tmp_path / "store/tables/orders")).to_pandas()) == 1
    assert CliRunner().invoke(app, ["register"]).exit_code == 4


def test_comments_and_properties_are_in_the_table(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, DESCRIBED + HIVE)
    publish(pipeline, "run-1", [{"id": 1, "text": "a"}])
    publish(pipeline, "run-2", [{"id": 2, "text": "b"}])
    found = table(pipeline)
    assert found.metadata().description == "Accounts of the bank"
    assert [one.metadata for one in found.schema().fields] == [{"comment": "Number of the account"}, {}]
    properties = found.metadata().configuration
    assert (properties["tidefold.snapshot"], properties["tidefold.verdict"]) == ("2", "passed")
    assert verify(pipeline, "accounts", Asked()).status == "whole"


def test_a_comment_is_no_change_of_the_table_and_a_foreign_one_stays(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    publish(pipeline, "run-1", [{"id": 1, "text": "a"}])
    before = delta_state(pipeline.store, LogPaths("accounts").table)
    table(pipeline).alter.set_table_description("Set by hand")
    described = make_pipeline(tmp_path, DESCRIBED.replace("    comment: Accounts of the bank\n", ""))
    publish(described, "run-2", [{"id": 1, "text": "b"}])
    after = delta_state(described.store, LogPaths("accounts").table)
    assert before
    assert after
    assert before.schema == after.schema
    assert table(described).metadata().description == "Set by hand"
    assert table(described).schema().fields[0].metadata == {"comment": "Number of the account"}
    assert table_rows(described) == {1: "b"}


def test_only_the_job_that_registers_gets_the_settings_of_the_catalog(tmp_path: Path) -> None:
    config = make_pipeline(tmp_path, CONFIG + HIVE).config
    assert spark_conf(config, "register")["spark.sql.catalogImplementation"] == "hive"
    assert "spark.sql.catalogImplementation" not in spark_conf(config, "materialize")
