"""Writes orders to a log without Spark or Airflow. `tidefold run orders` then publishes them.

`PYTHONPATH=include .venv/bin/python docs/examples/write_orders.py tidefold.yaml`, with this log in the configuration:

    logs:
      orders: {order: arrival, key: [id], columns: {id: long, item: string, amount: long}}
"""

import sys
from pathlib import Path

from tidefold.operations.ingest.write_changes import write_changes
from tidefold.wiring import open_pipeline

# Where a program would ask its database or queue. The log remembers how many of them it has.
ORDERS = [
    {"id": 1, "item": "tea", "amount": 2},
    {"id": 2, "item": "rice", "amount": 1},
    {"id": 1, "item": "tea", "amount": 3},
    {"_op": "delete", "id": 2},
    {"id": 3, "item": "salt", "amount": 5},
]


def read_orders(offset):
    """Returns the changes after the first `offset` ones."""
    yield from ORDERS[offset:]


if __name__ == "__main__":
    pipeline = open_pipeline(Path(sys.argv[1]).absolute())
    print(write_changes(pipeline, "orders", read_orders, writer="shop").message)
