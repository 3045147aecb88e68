"""What only Azure can do to a store: lost answers, refusals, uploads in blocks. Promises I2, I11, I23, I26.

The suite that all stores share is in test_store.py. No real Azure was at hand: the server is Azurite.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.azure_server import AzureServer
from support.lossy_proxy import LossyProxy, lossy_proxy
from support.object_stores import race_processes, read_in_any_order, require_made, require_named_at_once, run_apart
from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError, UnknownOutcomeError
from tidefold.storage import SizedStore, Store, link_data_file, open_store
from tidefold.storage.azure import client
from tidefold.storage.azure import store as azure_store
from tidefold.storage.azure import store as store_module
from tidefold.storage.azure.address import AzureAccount, AzureAddress
from tidefold.storage.object_store import PART

HERE = Path("/")


@pytest.fixture
def proxy(azure: str, azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """Everything that the store asks of Azurite passes here. Nobody waits for failures to pass."""
    monkeypatch.setattr(client, "PATIENCE", 0.0)
    with lossy_proxy(azure_server.url) as made:
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", made.url)
        yield made


@pytest.fixture
def store(azure: str, proxy: LossyProxy) -> Store:
    made = open_store(azure, HERE)
    made.put_if_absent("warm", b"")
    proxy.requests.clear()
    return made


def names(store: Store) -> list[str]:
    return [entry.path for entry in store.list("", unfinished=True) if entry.path != "warm"]


@pytest.mark.parametrize("size", [0, 5, 2 * PART + 1])
def test_a_lost_answer_is_settled_by_asking_whose_object_it_is(proxy: LossyProxy, store: Store, size: int) -> None:
    data = os.urandom(size)
    proxy.fail("PUT", "/mine?comp=blocklist" if size > PART else "/mine")
    store.put_if_absent("mine", data)
    assert store.read("mine") == data
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", data)


def test_a_put_that_is_sent_again_after_a_lost_answer_has_won_its_race(
    proxy: LossyProxy, azure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE", 30.0)
    monkeypatch.setattr(client, "_clients", {})
    store = open_store(azure, HERE)
    proxy.fail("PUT", "/mine")
    proxy.fail("PUT", "/mine", 503, "ServerBusy")
    store.put_if_absent("mine", b"bytes")
    assert [method for method, _ in proxy.requests] == ["PUT", "PUT", "PUT", "HEAD"]
    assert store.read("mine") == b"bytes"


def test_a_lost_answer_that_nobody_can_settle_is_unknown(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "/mine")
    proxy.fail("HEAD", "/mine", 503, "ServerBusy")
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    assert store.read("mine") == b"bytes"


def test_a_put_that_may_still_arrive_is_unknown_though_nothing_is_there(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "/mine", 500, "InternalError")
    with pytest.raises(UnknownOutcomeError):
        store.put_if_absent("mine", b"bytes")
    assert names(store) == []


def test_a_lost_answer_after_a_rival_is_a_lost_race(proxy: LossyProxy, store: Store) -> None:
    store.put_if_absent("mine", b"bytes")  # The same bytes, another's put.
    proxy.fail("PUT", "/mine")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("mine", b"bytes")


def test_a_lost_answer_to_a_copy_is_settled(proxy: LossyProxy, store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    proxy.fail("PUT", "/two")
    assert link_data_file(store, "one", "two", 5) == "copy"
    assert store.read("two") == b"bytes"


def test_refusals_are_never_absence(proxy: LossyProxy, store: Store) -> None:
    store.put_if_absent("mine", b"bytes")
    for method, act in (
        ("GET", lambda: store.read("mine")),
        ("GET", lambda: store.list("")),
        ("HEAD", lambda: store.link("mine", "other")),
        ("DELETE", lambda: store.delete(["mine"])),
    ):
        proxy.fail(method, "", 403, "AuthorizationFailure")
        with pytest.raises(StorageError) as refused:
            act()
        assert (type(refused.value), refused.value.code) == (StorageError, "AZURE_DENIED")
    proxy.fail("PUT", "/new", 403, "AuthorizationFailure")
    with pytest.raises(StorageError) as refused:
        store.put_if_absent("new", b"bytes")
    assert (refused.value.code, names(store)) == ("AZURE_DENIED", ["mine"])


def test_a_wrong_key_is_named_and_not_repeated(azure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    with pytest.raises(StorageError) as refused:
        open_store(azure, HERE).read("x")
    assert refused.value.code == "AZURE_DENIED"
    assert "c2VjcmV0" not in str(refused.value)


def test_a_missing_container_is_no_absence(azure: str) -> None:
    other = open_store(azure.replace("test-", "none-"), HERE)
    for act in (
        lambda: other.read("x"),
        lambda: other.list(""),
        lambda: other.put_if_absent("x", b""),
        lambda: other.delete(["x"]),
        lambda: other.link("x", "y"),
    ):
        with pytest.raises(StorageError) as failed:
            act()
        assert failed.value.code == "AZURE_CONTAINER_MISSING"


def test_of_two_uploads_in_blocks_the_first_that_ends_wins(store: Store) -> None:
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


@pytest.mark.parametrize("size", [0, 5, PART + 5])
def test_blocks_that_were_never_committed_are_no_file_and_take_no_name(store: Store, size: int) -> None:
    def write(name: str) -> None:
        with store.create(name) as stream:
            stream.write(os.urandom(PART + 1))
            raise RuntimeError("process trouble")

    for name in ("half", "copy"):
        with pytest.raises(RuntimeError):
            write(name)
    assert names(store) == []
    with pytest.raises(NotFoundError):
        store.read("half")
    data = os.urandom(size)
    store.put_if_absent("half", data)
    assert store.link("half", "copy") == "copy"
    assert store.read("half") == store.read("copy") == data
    for name in ("half", "copy"):
        with pytest.raises(AlreadyExistsError):
            store.put_if_absent(name, b"other")


def test_without_the_key_of_the_account_a_copy_passes_through_this_process(
    proxy: LossyProxy, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("one", b"bytes")
    assert link_data_file(store, "one", "two", 5) == "copy"
    assert [method for method, _ in proxy.requests] == ["PUT", "PUT"]
    monkeypatch.setattr(store_module, "COPIED_AT_ONCE", 0)
    monkeypatch.setattr(azure_store, "COPIED_AT_ONCE", 4)
    assert link_data_file(store, "one", "three", 5) == "copy"
    assert store.read("three") == b"bytes"


def test_sizes_of_few_files_in_a_large_folder_cost_no_listing_of_it(
    proxy: LossyProxy, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, SizedStore)
    for number in range(5):
        store.put_if_absent(f"f/{number}", b"x" * number)
    monkeypatch.setattr(azure_store, "_PAGE", 2)
    proxy.requests.clear()
    found = store.find_sizes("f", ["f/1", "f/4", "f/absent"])
    assert (found["f/1"], found["f/4"], "f/absent" in found) == (1, 4, False)
    assert sorted(method for method, _ in proxy.requests) == ["GET", "HEAD", "HEAD"]


def test_a_large_file_is_read_in_any_order(store: Store) -> None:
    read_in_any_order(store)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_of_many_processes_one_wins_each_name_also_when_forked_from_one_that_used_azure(
    azure: str, method: str
) -> None:
    run_apart(race_processes, azure, method)


ACCOUNT = {"AZURE_STORAGE_ACCOUNT_NAME": "account1"}


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("abfs://data/a/store", AzureAddress("account1", "data", "a/store")),
        ("abfss://data@other1.dfs.core.windows.net/a=b/", AzureAddress("other1", "data", "a=b")),
        ("abfss://data@other1.dfs.core.windows.net", AzureAddress("other1", "data", "")),
    ],
)
def test_addresses(address: str, found: AzureAddress) -> None:
    parsed = AzureAddress.parse(address, ACCOUNT)
    assert parsed == found
    assert AzureAddress.parse(parsed.uri(parsed.prefix), {}) == found


@pytest.mark.parametrize(
    "address",
    [
        "abfs://d/a",
        "abfs://data/a/../b",
        "abfs://data/a b",
        "abfs://data/a%20b",
        "abfs://data/a./b",
        "abfss://data@evil.example.com/a",
        "abfss://data@account1.dfs.core.windows.net.evil.com/a",
        "abfss://user:secret@account1.dfs.core.windows.net/a",
        "abfs://data/a?sig=secret",
    ],
)
def test_other_addresses_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        AzureAddress.parse(address, ACCOUNT)
    assert refused.value.code == "STORE_ADDRESS"
    assert "secret" not in str(refused.value)


def test_an_address_without_an_account_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        AzureAddress.parse("abfs://data/a", {})
    assert "AZURE_STORAGE_ACCOUNT_NAME" in refused.value.hint


def test_options_hold_no_secret() -> None:
    secrets = {"AZURE_STORAGE_ACCOUNT_KEY": "a-secret", "AZURE_STORAGE_SAS_TOKEN": "another-secret"}
    account = AzureAccount.of("account1", secrets | {"AZURE_STORAGE_ENDPOINT": "https://a.blob.core.chinacloudapi.cn/"})
    assert account.delta_options() == {
        "azure_storage_account_name": "account1",
        "azure_storage_endpoint": "https://a.blob.core.chinacloudapi.cn",
    }


def test_a_service_without_conditional_writes_is_named_at_once(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "/mine", 501, "NotImplemented", times=99)
    require_named_at_once(store, proxy.requests)


def test_a_snapshots_table_whose_commit_lost_its_answer_is_made(proxy: LossyProxy, store: Store) -> None:
    proxy.fail("PUT", "_delta_log/00000000000000000000.json")
    require_made(store)
