"""A user's own DAG with tidefold's tasks as a group in it."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, task

from tidefold_airflow.dags.factory import Options, tidefold_group

with DAG("shop_group", schedule=None, start_date=datetime(2025, 1, 1, tzinfo=UTC)):

    @task
    def before() -> str:
        return "landed"

    @task
    def after() -> str:
        return "told"

    before() >> tidefold_group(logs=["notes"], options=Options(approval=timedelta(hours=1))) >> after()
