"""Loads the first rows of tables from PostgreSQL, once, before their connector starts."""

import os

from airflow.sdk import DAG, Param

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, logs_param

DOC = """
### Loads tables from their database

| task | does | Spark |
|---|---|---|
| load | makes the connector's slot, and reads the tables as they were at that moment | none |

Trigger it once for the tables of one connector. Then start the connector with the settings in the task's log; the next
run of `tidefold_materialize` ingests the rows. A log that has rows gets new ones in their place. A load that breaks off
loads nothing; it says whether its slot is left, which `tidefold source load LOG --connection NAME --drop-slot` drops.

Environment: `TIDEFOLD_LOAD_CONN` (connection of type postgres, whose user may make replication slots),
`TIDEFOLD_CONFIG`.
"""

with DAG(
    "tidefold_load",
    description="Load: reads the first rows of tables from PostgreSQL, before their change stream",
    doc_md=DOC,
    params={
        "logs": logs_param(),
        "slot": Param("tidefold", type="string", title="Slot", description="Of the connector; the load makes it."),
        "publication": Param("tidefold", type="string", title="Publication", description="Of the connector."),
    },
    **dag_settings(None),
) as dag:
    operators.TidefoldLoadOperator(
        task_id="load",
        retries=0,
        logs="{{ params.logs or [] }}",
        connection=os.environ.get("TIDEFOLD_LOAD_CONN", ""),
        slot="{{ params.slot }}",
        publication="{{ params.publication }}",
    )
