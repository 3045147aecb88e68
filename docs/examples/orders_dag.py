"""An Airflow DAG of a log that a program feeds. Copy it to your DAG folder, and change `read_orders`."""

from tidefold_airflow import tidefold_write_dag


def read_orders(offset):
    """Returns the changes after the first `offset` ones: rows, lists of rows or Arrow tables."""
    orders = [{"id": 1, "item": "tea", "amount": 2}, {"id": 2, "item": "rice", "amount": 1}]
    yield from orders[offset:]


dag = tidefold_write_dag("orders", log="orders", changes=read_orders, schedule="@hourly", writer="orders_dag")
