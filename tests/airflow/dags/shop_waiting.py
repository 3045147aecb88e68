"""A DAG that landed files start, paused so that it takes no file from other tests. A person decides failed gates."""

from datetime import timedelta

from tidefold_airflow import tidefold_dag, waiting_asset

dag = tidefold_dag(
    "shop_waiting",
    schedule=[waiting_asset("shop", look_every=timedelta(seconds=1))],
    approval=timedelta(hours=1),
    is_paused_upon_creation=True,
)
