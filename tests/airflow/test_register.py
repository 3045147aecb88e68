"""The task that registers tables: only where a catalog is configured, after confirm, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from support.pipelines import CONFIG, judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import Fold, materialize
from tidefold_airflow.dags.factory import tidefold_dag
from tidefold_airflow.observability.assets import _name_in_catalog
from tidefold_airflow.operators import TidefoldRegisterOperator

CATALOG = """
catalog:
  database: sales
  settings: {spark.hadoop.hive.metastore.uris: "thrift://meta:9083,thrift://other:9083"}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """`accounts` is published, and not registered yet."""
    made = make_pipeline(tmp_path, CONFIG + CATALOG)
    put(made, [{"id": 1, "text": "a"}])
    materialize(made, ["accounts"], Fold("run-1"), in_process)
    judge_all(made)
    confirm(made, "accounts")
    return made


def run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """What the task returns where spark-submit fails."""

    def fail(task: Any, *_: Any) -> None:
        raise AirflowException("spark-submit failed")

    monkeypatch.setattr(SparkSubmitOperator, "execute", fail)
    task = TidefoldRegisterOperator(
        task_id="register", logs=["accounts"], config=str(pipeline.config.path), conn_id="spark_default", **options
    )
    instance = SimpleNamespace(xcom_push=lambda key, value: None, task_id="register", map_index=-1, try_number=1)
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id="r"), "ti": instance, "params": SimpleNamespace()}
    found: dict[str, Any] = type(task).execute.__wrapped__(task, context)
    return found


def test_the_dag_registers_after_confirm_if_there_is_a_catalog(pipeline: Pipeline, tmp_path: Path) -> None:
    dag = tidefold_dag("with_catalog", schedule=None, config=str(pipeline.config.path))
    register = dag.get_task("register")
    assert (register.upstream_task_ids, register.downstream_task_ids) == ({"choose", "confirm"}, {"done"})
    (tmp_path / "plain.yaml").write_text(CONFIG)
    assert "register" not in tidefold_dag("plain", schedule=None, config=str(tmp_path / "plain.yaml")).task_ids


def test_a_catalog_that_fails_is_a_warning(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(pipeline, monkeypatch) == {}
    with pytest.raises(AirflowException):
        run(pipeline, monkeypatch, strict=True)


def test_openlineage_names_the_registered_table(pipeline: Pipeline) -> None:
    entry = pipeline.config.catalog
    assert entry
    [named] = _name_in_catalog(entry, "accounts").identifiers
    assert (named.namespace, named.name, named.type) == ("hive://meta:9083", "sales.accounts", "TABLE")
