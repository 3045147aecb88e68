"""The operators of `tidefold source` under a live Airflow: which tasks end green or red, and with which words."""

from __future__ import annotations

import re
from pathlib import Path

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, down, up
from sources.rig import SourceRig
from support.airflow_stack import SELDOM, wait_until
from torture.capture import Java
from torture.servers import Postgres

_ATTEST = """\
from airflow.sdk import DAG
from tidefold_airflow.operators import TidefoldAttestOperator

with DAG("attest_tables", schedule=None):
    asked = {"logs": ["acct"], "connection": "source", "patience": 1.0, "retries": 1}
    later = TidefoldAttestOperator(task_id="later", lag=3600.0, **asked)
    later >> TidefoldAttestOperator(task_id="now", lag=0.0, trigger_rule="all_done", **asked)
"""
_LOAD, _NAME = "tidefold_load", "attest_tables"


def prove_airflow(server: Postgres, java: Java, folder: Path) -> str:
    """Returns which tasks ended otherwise than they should; empty: none."""
    rig = SourceRig(server, java, folder / "airflow", "acct", "{id: long, name: string}")
    rig.session.execute(
        "create table acct (id bigint primary key, name text)",
        "insert into acct select n, 'begin' from generate_series(1, 1000) n",
        f"create publication {rig.name}_pub for table acct",
    )
    rig.write_configuration()
    root = rig.folder / "root"
    (root / "dags").mkdir(parents=True)
    (root / "dags/tidefold_load.py").symlink_to(PROJECT / "dags/tidefold_load.py")
    (root / "dags/attest_tables.py").write_text(_ATTEST)
    more = {**SELDOM, "TIDEFOLD_LOAD_CONN": "source"}
    request = Request(root, rig.folder / "tidefold.yaml", "0 0 1 1 *", dags=root / "dags", more=more)
    try:
        return "; ".join(_play(rig, up(request, print)))
    finally:
        down(root, print)
        rig.session.rows(f"select pg_drop_replication_slot('{rig.name}_slot')")
        rig.session.close()


def _play(rig: SourceRig, airflow: LocalAirflow) -> list[str]:
    names = {"slot": f"{rig.name}_slot", "publication": f"{rig.name}_pub"}
    seen = [_run(airflow, _LOAD, {"load": ("success", f"slot.name={rig.name}_slot")}, **names)]
    rig.run_once()
    equal = "success", r"snapshot 1: 1,000 keys equal at rest, 0 still moving, 0 differ"
    seen.append(_run(airflow, _NAME, {"later": equal, "now": equal}))
    seen.append(_run(airflow, _LOAD, {"load": ("failed", r"SLOT_EXISTS.*--drop-slot")}, **names))
    rig.session.execute("update acct set name = 'lost' where id = 5", "delete from acct where id = 6")
    undecided = "failed", r"ATTEST_UNDECIDED.*tidefold run acct`, then `tidefold source attest acct --connection source"
    differs = "failed", r"SOURCE_DIFFERS.*2 differ.*id=5 differs in name.*id=6 is not at the source"
    seen.append(_run(airflow, _NAME, {"later": undecided, "now": differs}))
    return [one for told in seen for one in told]


def _run(airflow: LocalAirflow, dag: str, expected: dict[str, tuple[str, str]], **conf: str) -> list[str]:
    """Returns the tasks of a run that end otherwise than expected: by state, and by words in their log."""
    api = airflow.api
    wait_until(lambda: dag in [one["dag_id"] for one in api.dags()])
    run, wrong = api.trigger(dag, conf), []
    wait_until(lambda: api.get(f"/dags/{dag}/dagRuns/{run}")["state"] in ("success", "failed"))
    for task in api.tasks(dag, run):
        name, state, tries = task["task_id"], task["state"], task["try_number"]
        lines = api.log(dag, run, name, tries)
        wanted, words = expected[name]
        told = next((line for line in lines if re.search(words, line, re.DOTALL)), "")
        print(f"airflow: {dag}.{name}: {state} at try {tries}: {told[:700] or lines[-12:]}", flush=True)
        wrong += [] if (state, tries) == (wanted, 1) and told else [f"{dag}.{name} is {state}"]
    return wrong
