"""The DAG that scrubs: `dag = tidefold_scrub_dag("my_scrub", schedule="@weekly", config="/data/tidefold.yaml")`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import DAG, Param

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, failure_settings, logs_param

DOC = """
### Finds damage before a file is needed

| task | does | Spark |
|---|---|---|
| choose | returns the logs of this run | none |
| scrub | reads the next share of each log's files, compares checksums, repairs from an intact copy | none |

Each run continues where the last one stopped: with a share of 25 %, four runs read every file. Presence and length of
all files are checked in each run.

**Red run?** Damage is left. The last line of the task is the alarm: the file, the effect of the damage, and the command
that repairs it. Later runs stay red until it is repaired. The page of each log and `./tidefold status` show the newest
proof. Parameters: `logs`, `share`.
"""
_SHARE = r"^(100|[0-9]{1,2}(\.[0-9]+)?)%$"


def tidefold_scrub_dag(
    dag_id: str,
    *,
    schedule: str | None = "@weekly",
    share: str = "25%",
    config: str | None = None,
    logs: Sequence[str] = (),
    alarm_conn_id: str | None = None,
    **dag: Any,
) -> DAG:
    """The DAG that reads a share of the files of the logs of a `tidefold.yaml` in each run.

    :param schedule: cron in UTC; None: only by hand.
    :param share: share of each log's bytes that a run reads, if its form does not set another.
    :param logs: only these; none: all that are configured.
    :param config: as for `tidefold_dag`.
    :param alarm_conn_id: connection of the webhook that receives alarms; see GateNotifier. None: none is sent.
    :param dag: more of Airflow's own arguments of a DAG.
    """
    settings = {
        **dag_settings(schedule),
        "description": "Reads a share of all stored files, proves their checksums and repairs damage",
        "doc_md": DOC,
        "params": {"logs": logs_param(config, logs), "share": share_param(share)},
        **dag,
    }
    with DAG(dag_id, **settings) as made:
        choose = operators.TidefoldListLogsOperator(
            task_id="choose", logs=f"{{{{ params.logs or {list(logs)!r} }}}}", only=logs, config=config, retries=1
        )
        operators.TidefoldScrubOperator(
            task_id="scrub",
            logs=choose.output,
            share="{{ params.share }}",
            config=config,
            retries=1,
            **failure_settings(alarm_conn_id),
        )
    return made


def share_param(share: str) -> Param:
    """A share of the bytes of each log."""
    return Param(
        share,
        type="string",
        pattern=_SHARE,
        examples=["1%", "5%", "25%", "100%"],
        title="Share",
        description="Share of each log's bytes that this run reads, in percent.",
    )
