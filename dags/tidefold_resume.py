"""Resumes stopped logs: after a restore whose rows were to stay, or after a savepoint that stopped them."""

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, log_param

DOC = """
### Resumes a stopped log

| task | does |
|---|---|
| resume | lets the log ingest and fold again; the next run folds what waits, which the task's log names |

A restore with `stay`, and `savepoint --stop`, stop a log. `tidefold move resume LOG` does the same on the command line.
"""

with DAG(
    "tidefold_resume",
    description="Resume: a stopped log ingests and folds again",
    doc_md=DOC,
    params={"log": log_param()},
    **dag_settings(None),
) as dag:
    operators.TidefoldResumeOperator(task_id="resume", retries=1, logs=["{{ params.log }}"])
