"""The DAG of a log that a program feeds: write >> ingest >> materialize >> quality >> confirm, then retention."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.factory import Options, tidefold_group
from tidefold_airflow.dags.settings import dag_settings

DOC = """
### Writes changes of a program to a log, and publishes them

| task | does | Spark |
|---|---|---|
| write | appends the changes that the function of this DAG returns | none |
| tidefold | the tasks of `tidefold_materialize` for this log: fold, judge, publish, retention | if needed |

A retry of `write` continues where the log is: nothing is lost, and nothing comes twice.
"""


def tidefold_write_dag(
    dag_id: str,
    *,
    log: str,
    changes: Callable[[int], Iterable[Any]],
    schedule: str | None,
    writer: str = "airflow",
    options: Options | None = None,
    **dag: Any,
) -> DAG:
    """The whole DAG of a log without `source`: a function returns its changes.

    :param log: the log; the configuration names it without a `source`, with `order: arrival`.
    :param changes: gets the number of changes that the log has of this writer, and returns those after them.
    :param schedule: cron in UTC; None: only by hand.
    :param writer: the name of the writer. DAGs that write to one log need different names.
    :param options: see Options.
    :param dag: more of Airflow's own arguments of a DAG.
    """
    options = options or Options()
    settings = {
        **dag_settings(schedule),
        "description": f"Write the changes of {log}, then fold, judge and publish them",
        "doc_md": DOC,
        "default_args": {"retry_delay": timedelta(seconds=10)},
        **dag,
    }
    with DAG(dag_id, **settings) as made:
        write = operators.TidefoldWriteOperator(
            task_id="write", changes=changes, writer=writer, logs=[log], config=options.config, retries=2
        )
        write >> tidefold_group(logs=[log], options=options)
    return made
