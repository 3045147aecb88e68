"""What only Google Cloud Storage can do to a store: lost answers, refusals, parts. Promises I2, I11, I23, I26.

The suite that all stores share is in test_store.py. No real bucket was at hand: the server is Google's
storage-testbench (see gcs_server.py).
"""

from __future__ import annotations

import concurrent.futures
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.gcs_server import GcsBucketOfTest
from support.lossy_proxy import LossyProxy, lossy_proxy
from support.object_stores import race_processes, read_in_any_order, require_made, require_named_at_once, run_apart
from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError, UnknownOutcomeError
from tidefold.storage import SizedStore, Store, link_data_file, open_store
from tidefold.storage.gcs.address import GcsAddress, GcsEndpoint
from tidefold.storage.object_store import PART

HERE = Path("/")


@pytest.fixture
def proxy(gcs: GcsBucketOfTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """Everything that the store asks passes here. Nobody waits for failures to pass."""
    from tidefold.storage.gcs import client

    monkeypatch.setattr(client.object_client, "PATIENCE", 0.0)
    with lossy_proxy(gcs.server.url) as made:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", made.url)
        yield made


@pytest.fixture
def store(gcs: GcsBucketOfTest, proxy: LossyProxy) -> Store:
    made = open_store(gcs.address, HERE)
    made.put_if_absent("warm", b"")
    proxy.requests.clear()
    return made


def names(store: Store) -> list[str]:
    return [entry.path for entry in store.list("", unfinished=True) if entry.path != "warm"]


@pytest.mark.parametrize("size", [0, 5])
def test_a_lost_answer_is_settled_by_asking_whose_object_it_is(proxy: LossyProxy, store: Store, size: int) -> None:
    data = os.urandom(size)
    proxy.fail("POST", "uploadType=multipart")
    store.put_if_absent("mine", data)
    assert store.read("mine") == data
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", data)


def test_a_lost_answer_to_the_last_part_is_settled(proxy: LossyProxy, store: Store) -> None:
    data = os.urandom(2 * PART + 1)
    stream: Any
    with store.create("mine") as stream:
        stream.write(data)
        stream._upload._send_part()  # The part that waits for the last one.
        stream._upload._waiting = b""
        proxy.fail("PUT", "upload_id")
    assert store.read("mine") == data


def test_a_put_that_is_sent_again_after_a_lost_answer_has_won_its_race(
    proxy: LossyProxy, gcs: GcsBucketOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidefold.storage.gcs import client

    monkeypatch.setattr(client.object_client, "PATIENCE", 30.0)
    monkeypatch.setattr(client, "_clients", {})
    store = open_store(gcs.address, HERE)
    proxy.fail("POST", "uploadType=multipart")
    proxy.fail("POST", "uploadType=multipart", 503)
    store.put_if_absent("mine", b"bytes")
    assert [method for method, _ in proxy.requests] == ["POST", "POST", "POST", "GET"]
    assert store.read("mine") == b"bytes"


def test_too_many_requests_are_waited_for(
    proxy: LossyProxy, gcs: GcsBucketOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidefold.storage.gcs import client

    monkeypatch.setattr(client.object_client, "PATIENCE", 30.0)
    monkeypatch.setattr(client, "_clients", {})
    store = open_store(gcs.address, HERE)
    proxy.fail("GET", "/o", 429, times=2)
    assert store.list("") == []
    assert len(proxy.requests) == 3


def test_a_lost_answer_that_nobody_can_settle_is_unknown(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("POST", "uploadType=multipart")
    proxy.fail("GET", "mine", 503)
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    assert store.read("mine") == b"bytes"


def test_a_put_that_may_still_arrive_is_unknown_though_nothing_is_there(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("POST", "uploadType=multipart", 500)
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    assert names(store) == []


def test_a_lost_answer_after_a_rival_is_a_lost_race(proxy: LossyProxy, store: Store, gcs: GcsBucketOfTest) -> None:
    gcs.put("a/store/mine", b"bytes")  # The same bytes, another's put.
    proxy.fail("POST", "uploadType=multipart")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", b"bytes")


def test_a_copy_is_one_conditional_request_and_its_lost_answer_is_settled(proxy: LossyProxy, store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    proxy.requests.clear()
    assert link_data_file(store, "one", "two", 5) == "copy"
    assert [method for method, _ in proxy.requests] == ["POST"]
    proxy.fail("POST", "rewriteTo")
    assert link_data_file(store, "one", "three", 5) == "copy"
    assert store.read("three") == b"bytes"
    store.put_if_absent("other", b"other")
    with pytest.raises(AlreadyExistsError):
        link_data_file(store, "one", "other", 5)
    assert store.link("one", "two") == "kept"
    with pytest.raises(NotFoundError):
        link_data_file(store, "none", "four", 5)


def test_refusals_are_never_absence(proxy: LossyProxy, store: Store) -> None:
    store.put_if_absent("mine", b"bytes")
    for method, act in (
        ("GET", lambda: store.read("mine")),
        ("GET", lambda: store.list("")),
        ("GET", lambda: store.link("mine", "other")),
        ("DELETE", lambda: store.delete(["mine"])),
    ):
        proxy.fail(method, "", 403)
        with pytest.raises(StorageError) as refused:
            act()
        assert (type(refused.value), refused.value.code) == (StorageError, "GCS_DENIED")
    proxy.fail("POST", "uploadType=multipart", 403)
    with pytest.raises(StorageError) as refused:
        store.put_if_absent("new", b"bytes")
    assert (refused.value.code, names(store)) == ("GCS_DENIED", ["mine"])


def test_a_missing_bucket_is_no_absence(gcs: GcsBucketOfTest) -> None:
    other = open_store(gcs.address.replace("test-", "none-"), HERE)
    for act in (
        lambda: other.read("x"),
        lambda: other.list(""),
        lambda: other.put_if_absent("x", b""),
        lambda: other.delete(["x"]),
        lambda: other.link("x", "y"),
    ):
        with pytest.raises(StorageError) as failed:
            act()
        assert failed.value.code == "GCS_BUCKET_MISSING"


def test_no_login_is_named(gcs: GcsBucketOfTest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    store = open_store(gcs.address, HERE)
    for act in (lambda: store.read("x"), lambda: store.put_if_absent("x", b"")):
        with pytest.raises(StorageError) as failed:
            act()
        assert (type(failed.value), failed.value.code) == (StorageError, "GCS_CREDENTIALS")
        assert "GOOGLE_APPLICATION_CREDENTIALS" in failed.value.hint


def test_of_two_uploads_in_parts_the_first_that_ends_wins(store: Store) -> None:
    one, other = os.urandom(PART + 7), os.urandom(2 * PART)

    def write() -> None:
        with store.create("long") as slow:
            slow.write(one)
            with store.create("long") as fast:
                fast.write(other)
            slow.write(b"more")

    with pytest.raises(AlreadyExistsError):
        write()
    assert store.read("long") == other
    assert [(e.path, e.bytes) for e in store.list("") if e.path == "long"] == [("long", 2 * PART)]


def test_of_many_long_uploads_exactly_one_wins(store: Store) -> None:
    def put(number: int) -> bool:
        try:
            store.put_if_absent("race", bytes([number]) * (PART + 1))
        except AlreadyExistsError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        won = list(pool.map(put, range(4)))
    assert won.count(True) == 1
    assert store.read("race") == bytes([won.index(True)]) * (PART + 1)


def test_an_upload_that_fails_is_no_file_and_takes_no_name(store: Store) -> None:
    def write() -> None:
        with store.create("half") as stream:
            stream.write(os.urandom(2 * PART + 1))
            raise RuntimeError("process trouble")

    with pytest.raises(RuntimeError):
        write()
    assert names(store) == []
    store.put_if_absent("half", b"whole")
    assert store.read("half") == b"whole"


def test_sizes_of_few_files_in_a_large_folder_cost_no_listing_of_it(
    proxy: LossyProxy, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidefold.storage.gcs import store as gcs_store

    assert isinstance(store, SizedStore)
    for number in range(5):
        store.put_if_absent(f"f/{number}", b"x" * number)
    monkeypatch.setattr(gcs_store, "_PAGE", 2)
    proxy.requests.clear()
    found = store.find_sizes("f", ["f/1", "f/4", "f/absent"])
    assert (found["f/1"], found["f/4"], "f/absent" in found) == (1, 4, False)
    assert [method for method, _ in proxy.requests] == ["GET"] * 3
    assert [entry.path for entry in store.list("f")] == [f"f/{number}" for number in range(5)]


def test_a_large_file_is_read_in_any_order(store: Store) -> None:
    read_in_any_order(store)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_of_many_processes_one_wins_each_name_also_when_forked_from_one_that_used_google(
    gcs: GcsBucketOfTest, method: str
) -> None:
    run_apart(race_processes, gcs.address, method)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("gs://bucket_1.example/a/store", GcsAddress("bucket_1.example", "a/store")),
        ("gs://bucket/a=b/", GcsAddress("bucket", "a=b")),
        ("gs://bucket", GcsAddress("bucket", "")),
    ],
)
def test_addresses(address: str, found: GcsAddress) -> None:
    parsed = GcsAddress.parse(address)
    assert parsed == found
    assert GcsAddress.parse(parsed.uri(parsed.prefix)) == found


@pytest.mark.parametrize(
    "address",
    [
        "gs://",
        "gs://B/a",
        "gs://bucket/a/../b",
        "gs://bucket/a//b",
        "gs://bucket/a b",
        "gs://bucket/a%20b",
        "gs://bucket/a?generation=secret",
        "gs://user:secret@bucket/a",
        "GS://bucket/a",
    ],
)
def test_other_addresses_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        GcsAddress.parse(address)
    assert refused.value.code == "STORE_ADDRESS"
    assert "secret" not in str(refused.value)


def test_options_hold_no_secret() -> None:
    assert GcsEndpoint.of({"GOOGLE_APPLICATION_CREDENTIALS": "/a/secret.json"}).delta_options() == {}
    [(name, value)] = GcsEndpoint.of({"STORAGE_EMULATOR_HOST": "127.0.0.1:1/"}).delta_options().items()
    assert name == "google_service_account_key"
    assert json.loads(value) == {
        "gcs_base_url": "http://127.0.0.1:1",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }


def test_a_service_without_conditional_writes_is_named_at_once(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("POST", "uploadType=multipart", 501, "NotImplemented", times=99)
    require_named_at_once(store, proxy.requests)


def test_a_snapshots_table_whose_commit_lost_its_answer_is_made(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "_delta_log/00000000000000000000.json")
    require_made(store)
