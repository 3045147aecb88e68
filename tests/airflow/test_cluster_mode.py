"""The operators when Airflow's connection asks for a driver on the cluster: they refuse, and start nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.pipelines import CONFIG, make_pipeline, put
from tidefold_airflow.operators import TidefoldMaterializeOperator


@pytest.mark.parametrize("master", ["yarn", "spark://a:7077"])
def test_a_driver_on_the_cluster_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    connection = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    pipeline = make_pipeline(tmp_path, CONFIG + "spark: {above: 0B}\n")
    put(pipeline, [{"id": 1, "text": "a"}])
    task = TidefoldMaterializeOperator(task_id="task", config=str(pipeline.config.path), logs=["accounts"])
    instance = SimpleNamespace(
        xcom_push=lambda key, value: None, task_id="task", task=SimpleNamespace(upstream_list=[])
    )
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id="manual-1"), "ti": instance}
    # Airflow wraps `execute`, so that only its task runner calls it.
    with pytest.raises(AirflowFailException, match=r"DEPLOY_MODE.*Remove `deploy-mode` from the connection"):
        type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
    assert pipeline.ledger("accounts").read().open_attempt is None
