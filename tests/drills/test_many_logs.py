"""A run over 200 logs in a live Airflow, of which one is refused and one fails in `confirm`. Issue 53."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from deltalake import write_deltalake

from local_airflow.settings import Request
from local_airflow.stack import down, up
from support.airflow_shop import FAILS, wait_for
from support.airflow_stack import SELDOM
from support.landing_pair import land, make
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.paths import LogPaths
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

LOGS = [f"log_{number:03d}" for number in range(200)]
REFUSED, FOREIGN = "log_017", "log_101"
DAG = "tidefold_materialize"


def test_each_published_table_sends_its_event_beside_a_refused_and_a_failed_log(tmp_path: Path) -> None:
    pipeline = make(tmp_path, LOGS)
    _publish_first_rows(tmp_path)
    config = pipeline.config.path
    entry = f"\n  {REFUSED}:\n"
    (tmp_path / "never.yaml").write_text(FAILS)
    config.write_text(config.read_text().replace(entry, f"{entry}    quality: {{suite: never.yaml}}\n"))
    other = pa.table({"id": pa.array([999], pa.int32()), "text": ["another program"]})
    write_deltalake(pipeline.store.uri(LogPaths(FOREIGN).table), other, mode="append", schema_mode="merge")
    for log in LOGS:
        land(tmp_path, log, 1)
    airflow = up(Request(tmp_path / "airflow", config, "", more=SELDOM), print)
    try:
        api = airflow.api
        run = api.trigger(DAG)
        wait_for(lambda: _state(airflow, run) in ("success", "failed"), lambda: _state(airflow, run), seconds=1_200)
        tasks = {(one["task_id"], one["map_index"]): one["state"] for one in api.tasks(DAG, run)}
        events = [
            one["name"]
            for offset in (0, 100, 200)
            for one in api.get(f"/assets/events?limit=100&offset={offset}&order_by=timestamp")["asset_events"]
        ]
        assert _state(airflow, run) == "failed"
        assert {state for (task, _), state in tasks.items() if task == "confirm"} == {"success"}
        assert len([task for task, _ in tasks if task == "confirm"]) == 8
        assert [task for (task, _), state in tasks.items() if state == "failed"] == ["alarms"]
        said = "\n".join(api.log(DAG, run, "alarms", 1))
        assert REFUSED in said
        assert FOREIGN in said
        assert len(events) == len(set(events)) == len(LOGS) - 2
    finally:
        down(tmp_path / "airflow", print)


def _publish_first_rows(root: Path) -> None:
    pipeline = open_pipeline(root / "tidefold.yaml")
    for log in LOGS:
        land(root, log, 0)
    ingest(pipeline, LOGS, in_process)
    materialize(pipeline, LOGS, Fold("first"), in_process)
    for log in LOGS:
        judge_all(pipeline, log)
        confirm(pipeline, log, Confirmation(run="first"))


def _state(airflow: object, run: str) -> str:
    return str(airflow.api.get(f"/dags/{DAG}/dagRuns/{quote(run)}")["state"])
