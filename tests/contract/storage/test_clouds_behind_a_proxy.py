"""Lost answers and refusals of Azure and Google Cloud Storage. Promises I2, I11, I23.

The suite that all stores share is in test_store.py. No real account was at hand: the servers are Azurite and Google's
storage-testbench (see gcs_server.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.lossy_proxy import LossyProxy, lossy_proxy
from support.object_stores import race_processes, read_in_any_order, require_made, require_named_at_once, run_apart
from tidefold.errors import (
    AlreadyExistsError,
    NotFoundError,
    StorageError,
    StoreRefusedError,
    StoreWrongError,
    UnknownOutcomeError,
)
from tidefold.storage import SizedStore, Store, cloud_client, link_data_file, open_store
from tidefold.storage.cloud_client import PART

HERE = Path("/")


@pytest.fixture(params=["azure", "gcs"])
def address(request: pytest.FixtureRequest) -> str:
    """A folder in a new bucket."""
    bucket = request.getfixturevalue(request.param)
    return str(getattr(bucket, "address", bucket))


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> float:
    """Nobody waits for failures to pass."""
    monkeypatch.setattr(cloud_client, "PATIENCE", 0.0)
    return 0.0


@pytest.fixture
def proxy(address: str, patience: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """Everything that the store asks passes here."""
    variable = "STORAGE_EMULATOR_HOST" if address.startswith("gs:") else "AZURITE_BLOB_STORAGE_URL"
    with lossy_proxy(os.environ[variable]) as made:
        monkeypatch.setenv(variable, made.url)
        yield made


@pytest.fixture
def store(address: str, proxy: LossyProxy) -> Store:
    made = open_store(address, HERE)
    made.put_if_absent("warm", b"")
    proxy.requests.clear()
    return made


def names(store: Store) -> list[str]:
    return [entry.path for entry in store.list("") if entry.path != "warm"]


@pytest.mark.parametrize("size", [0, 5, PART + 1])
def test_a_lost_answer_to_a_put_is_settled_by_asking_whose_object_it_is(
    proxy: LossyProxy, store: Store, size: int
) -> None:
    data = os.urandom(size)
    proxy.fail("PUT", "mine")
    store.put_if_absent("mine", data)
    assert store.read("mine") == data
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", data)


def test_a_lost_answer_to_the_end_of_a_stream_is_settled(proxy: LossyProxy, store: Store, address: str) -> None:
    data = os.urandom(2 * PART + 1)
    with store.create("mine") as stream:
        stream.write(data)
        proxy.fail(*(("POST", "uploadId") if address.startswith("gs:") else ("PUT", "comp=blocklist")))
    assert store.read("mine") == data


def test_a_put_that_is_sent_again_after_a_lost_answer_has_won_its_race(
    proxy: LossyProxy, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_client, "PATIENCE", 30.0)
    store = open_store(address, HERE)
    proxy.fail("PUT", "mine")
    proxy.fail("PUT", "mine", 503, "ServerBusy")
    store.put_if_absent("mine", b"bytes")
    assert [method for method, _ in proxy.requests] == ["PUT", "PUT", "PUT", "HEAD"]
    proxy.fail("GET", "", 429, times=2)
    assert names(store) == ["mine"]


def test_a_lost_answer_that_nobody_can_settle_is_unknown(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "mine")
    proxy.fail("HEAD", "mine", 503, "ServerBusy")
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    assert store.read("mine") == b"bytes"


def test_a_put_that_may_still_arrive_is_unknown_though_nothing_is_there(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "mine", 500, "InternalError")
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    assert names(store) == []


def test_a_lost_answer_after_a_rival_is_a_lost_race(proxy: LossyProxy, store: Store) -> None:
    store.put_if_absent("mine", b"bytes")  # The same bytes, another's put.
    proxy.fail("PUT", "mine")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", b"bytes")


def test_a_copy_is_one_request_and_its_lost_answer_is_settled(proxy: LossyProxy, store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    proxy.requests.clear()
    assert link_data_file(store, "one", "two", 5) == "copy"
    assert [method for method, _ in proxy.requests] == ["PUT"]
    proxy.fail("PUT", "three")
    assert link_data_file(store, "one", "three", 5) == "copy"
    assert store.read("three") == b"bytes"
    assert store.link("one", "two") == "kept"
    with pytest.raises(NotFoundError):
        link_data_file(store, "none", "four", 5)


def test_refusals_are_never_absence(proxy: LossyProxy, store: Store, address: str) -> None:
    store.put_if_absent("mine", b"bytes")
    for method, act in (
        ("GET", lambda: store.read("mine")),
        ("GET", lambda: store.list("")),
        ("HEAD", lambda: store.link("mine", "other")),
        ("DELETE" if address.startswith("gs:") else "POST", lambda: store.delete(["mine"])),
    ):
        proxy.fail(method, "", 403, "AuthorizationFailure")
        with pytest.raises(StorageError) as refused:
            act()
        assert (type(refused.value), refused.value.code) == (StoreRefusedError, "STORE_DENIED")
    proxy.fail("PUT", "new", 403, "AuthorizationFailure")
    with pytest.raises(StorageError) as refused:
        store.put_if_absent("new", b"bytes")
    assert (refused.value.code, names(store)) == ("STORE_DENIED", ["mine"])


def test_a_missing_bucket_is_no_absence(address: str) -> None:
    other = open_store(address.replace("test-", "none-"), HERE)
    for act in (
        lambda: other.read("x"),
        lambda: other.list(""),
        lambda: other.put_if_absent("x", b""),
        lambda: other.delete(["x"]),
        lambda: other.link("x", "y"),
    ):
        with pytest.raises(StorageError) as failed:
            act()
        assert failed.value.code == "STORE_BUCKET_MISSING"


def test_a_wrong_key_of_azure_is_named_and_not_repeated(azure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    with pytest.raises(StorageError) as refused:
        open_store(azure, HERE).read("x")
    assert refused.value.code == "STORE_DENIED"
    assert "c2VjcmV0" not in str(refused.value)


def test_no_login_of_google_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    store = open_store("gs://no-login/a", HERE)
    for act in (lambda: store.read("x"), lambda: store.put_if_absent("x", b"")):
        with pytest.raises(StorageError) as failed:
            act()
        assert (type(failed.value), failed.value.code) == (StoreWrongError, "STORE_CREDENTIALS")
        assert "GOOGLE_APPLICATION_CREDENTIALS" in failed.value.hint


def test_of_many_large_puts_exactly_one_wins(store: Store) -> None:
    won: list[bytes] = []

    def put(data: bytes) -> None:
        try:
            store.put_if_absent("race", data)
        except AlreadyExistsError:
            return
        won.append(data)

    threads = [threading.Thread(target=put, args=(bytes([number]) * (PART + 1),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.read("race")] == won


def test_an_upload_that_fails_is_no_file_and_takes_no_name(store: Store) -> None:
    def write() -> None:
        with store.create("half") as stream:
            stream.write(os.urandom(2 * PART + 1))
            raise RuntimeError("process trouble")

    with pytest.raises(RuntimeError):
        write()
    assert names(store) == []
    with store.create("half") as stream:
        stream.write(bytes(PART + 1))
    with pytest.raises(AlreadyExistsError), store.create("half") as stream:
        stream.write(os.urandom(PART + 1))
    assert store.read("half") == bytes(PART + 1)


def test_sizes_of_few_files_in_a_large_folder_cost_no_listing_of_it(
    proxy: LossyProxy, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, SizedStore)
    for number in range(1, 6):
        store.put_if_absent(f"f/{number}", b"x" * number)
    proxy.requests.clear()
    sizes = store.find_sizes("f", ["f/1", "f/5", "f/absent"])
    assert (sizes["f/1"], sizes["f/5"], "f/absent" in sizes) == (1, 5, False)
    assert [method for method, _ in proxy.requests] == ["GET", "HEAD"]
    assert [entry.path for entry in store.list("f")] == [f"f/{number}" for number in range(1, 6)]


def test_a_large_file_is_read_in_any_order(store: Store) -> None:
    read_in_any_order(store)


def test_of_many_processes_one_wins_each_name(address: str) -> None:
    run_apart(race_processes, address, "spawn")


def test_a_service_without_conditional_writes_is_named_at_once(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "mine", 501, "NotImplemented", times=99)
    require_named_at_once(store, proxy.requests)


def test_a_snapshots_table_whose_commit_lost_its_answer_is_made(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "00000000000000000000")
    require_made(store)
