"""A DAG that landed files start. It is paused, so that it takes no file from other tests."""

from datetime import timedelta

from tidefold_airflow import tidefold_dag, waiting_asset

dag = tidefold_dag(
    "shop_waiting",
    schedule=[waiting_asset("shop", logs=["notes"], look_every=timedelta(seconds=1))],
    logs=["notes"],
    is_paused_upon_creation=True,
)
