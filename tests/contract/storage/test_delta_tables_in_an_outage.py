"""deltalake gives up an outage after seconds. The door to it waits as the store's own requests do.

deltalake does not repeat a request whose answer has status 400: so nobody waits here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.s3_server import S3Bucket
from tidefold.errors import StorageError
from tidefold.storage import Store, open_store
from tidefold.storage.delta_tables import open_table

ACTS: dict[str, Callable[[DeltaTable], Any]] = {
    "create_checkpoint": lambda table: table.create_checkpoint(),
    "history": lambda table: table.history(limit=1),
    "transaction_version": lambda table: table.transaction_version("tidefold/orders"),
    "update_incremental": lambda table: table.update_incremental(),
}


@pytest.fixture
def store(s3: S3Bucket) -> Store:
    store = open_store(s3.address, Path("/"))
    for row in (1, 2):
        options = store.options()
        write_deltalake(store.uri("table"), pa.table({"id": [row]}), mode="append", storage_options=options)
    return store


def lose(s3: S3Bucket, times: int = 1) -> None:
    """Loses requests for the log of the table, but not for the file by which the store is asked whether it answers."""
    for address in ("prefix=a%2Fstore%2Ftable", "_delta_log/0000"):
        s3.server.fail("GET", address, status=400, code="RequestTimeout", times=times)


def test_a_table_is_opened_after_an_outage(s3: S3Bucket, store: Store) -> None:
    lose(s3)
    assert open_table(store, "table").version() == 1


@pytest.mark.parametrize("act", ACTS)
def test_each_request_of_an_open_table_outlasts_an_outage(s3: S3Bucket, store: Store, act: str) -> None:
    table = open_table(store, "table")
    s3.server.heal()
    lose(s3)
    ACTS[act](table)
    assert ("GET", f"/{s3.name}/a/store/table/_delta_log/_last_checkpoint?") in s3.server.requests()


def test_the_store_itself_says_why_it_does_not_answer(s3: S3Bucket, store: Store) -> None:
    s3.server.fail("GET", "", status=403, code="AccessDenied", times=99)
    with pytest.raises(StorageError) as told:
        open_table(store, "table")
    assert told.value.code == "STORE_DENIED"
    assert "Error performing" not in str(told.value)


def test_what_only_deltalake_cannot_read_is_one_sentence(s3: S3Bucket, store: Store) -> None:
    lose(s3, times=99)
    with pytest.raises(StorageError) as told:
        open_table(store, "table")
    assert told.value.message == "deltalake cannot reach the Delta table `table` (RequestTimeout)."
