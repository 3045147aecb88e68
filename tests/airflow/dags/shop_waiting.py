"""A DAG that is paused, so that it takes no file from other tests. A person decides failed gates."""

from datetime import timedelta

from tidefold_airflow import tidefold_dag

dag = tidefold_dag("shop_waiting", schedule=None, approval=timedelta(hours=1), is_paused_upon_creation=True)
