"""An Airflow DAG of a log that a program feeds. Copy it to your DAG folder, and change `read_orders`."""

from airflow.sdk import dag, task

from tidefold_airflow import tidefold_group


def read_orders(offset):
    """Returns the changes after the first `offset` ones: rows, lists of rows or Arrow tables."""
    orders = [{"id": 1, "item": "tea", "amount": 2}, {"id": 2, "item": "rice", "amount": 1}]
    yield from orders[offset:]


@task(retries=2)
def write(config=None):
    """Appends what is new. `config`: the path of `tidefold.yaml`; None: `TIDEFOLD_CONFIG`."""
    from tidefold.operations.ingest.write_changes import write_changes
    from tidefold.wiring import open_pipeline
    from tidefold_airflow.operators.run_context import config_path

    print(write_changes(open_pipeline(config_path(config)), "orders", read_orders, writer="orders_dag").message)


@dag("orders", schedule="@hourly", max_active_runs=1, render_template_as_native_obj=True)
def make_dag():
    """Writes the changes of `orders`, then folds, judges and publishes them."""
    write() >> tidefold_group(logs=["orders"])


made = make_dag()
