"""One broker for all tests of this folder, and topics with names of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kafka_broker import KafkaBroker, find_reason


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    if reason := find_reason():
        pytest.skip(reason)
    running = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        yield running
    finally:
        running.kill()
