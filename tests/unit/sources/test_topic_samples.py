"""Which topics `init` leaves out by their names, and which records of a topic it reads."""

from __future__ import annotations

import pytest

from tidefold.sources.kafka.client import Reach
from tidefold.sources.kafka.sampling import choose_ranges, explain_own


@pytest.mark.parametrize(
    "name",
    [
        "__consumer_offsets",
        "__debezium-heartbeat.shop",
        "_schemas",
        "_confluent-command",
        "app-KSTREAM-1-repartition",
        "connect-offsets",
        "my-connect-configs",
        "schema-changes.inventory",
        "schemahistory.fullfillment",
        "dbhistory.inventory",
        "shop_schema-history",
        "shop.transaction",
    ],
)
def test_topics_of_programs(name: str) -> None:
    assert explain_own(name)


@pytest.mark.parametrize(
    "name", ["shop.orders", "shop.transactions", "connected", "_orders", "history", "orders-changelog"]
)
def test_topics_of_people(name: str) -> None:
    assert not explain_own(name)


def test_the_first_and_the_last_records_of_the_largest_partitions() -> None:
    reaches = [Reach(0, 0, 10), Reach(1, 5, 2000), Reach(2, 7, 7), Reach(3, 0, 900), Reach(4, 0, 3)]
    assert [*choose_ranges(reaches)] == [
        (1, 5, 505), (1, 1500, 2000), (3, 0, 500), (3, 500, 900), (0, 0, 10),
    ]  # fmt: skip
    assert [*choose_ranges(reaches[2:3])] == []
