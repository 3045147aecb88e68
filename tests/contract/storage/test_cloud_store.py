"""What obstore changes for a store: no fork, no condition at the end of a long stream, listings that may end early."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from support.object_stores import refuse_fork, run_apart
from support.s3_server import S3Bucket
from tidefold.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    StoreUnusableError,
    TidefoldError,
)
from tidefold.storage import SizedStore, Store, cloud_client, open_store
from tidefold.storage.cloud_client import PART
from tidefold.storage.identity import require_identity

HERE = Path("/")


@pytest.fixture
def store(s3: S3Bucket) -> Store:
    return open_store(s3.address, HERE)


def test_a_fork_of_a_process_that_used_a_store_is_refused_by_name(s3: S3Bucket) -> None:
    run_apart(refuse_fork, s3.address)


@pytest.mark.parametrize(
    ("address", "variable"),
    [
        ("s3://bucket/store", "AWS_ENDPOINT_URL"),
        ("abfs://data/store", "AZURITE_BLOB_STORAGE_URL"),
        ("gs://bucket/store", "STORAGE_EMULATOR_HOST"),
    ],
)
def test_a_port_that_refuses_connections_is_an_outage(
    address: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: the errno of a refused connection, 111, was taken for the status of an answer, and nobody waited."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    for name, value in ((variable, f"http://{host}"), ("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "secret")):
        monkeypatch.setenv(name, value)
    for name, value in (("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"), ("AZURE_STORAGE_USE_EMULATOR", "true")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    slept: list[float] = []
    monkeypatch.setattr(cloud_client, "wait", slept.append)
    monkeypatch.setattr(cloud_client, "PATIENCE", 0.2)
    monkeypatch.setattr(cloud_client, "find_patience", lambda: 0.2)
    with pytest.raises(StorageError) as refused:
        open_store(address, HERE).read("a")
    assert slept
    assert f"`{host}`" in refused.value.message
    assert "(Connection refused)" in refused.value.message
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["127.0.0.1:9000", "minio.example", "ftp://me:secret@host"])
def test_an_endpoint_without_a_scheme_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: the client ended the process by a panic."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(InvalidInputError, match="AWS_ENDPOINT_URL") as refused:
        open_store("s3://bucket/store", HERE)
    assert "secret" not in str(refused.value)


def test_a_large_put_is_one_conditional_request(s3: S3Bucket, store: Store) -> None:
    """Whatever is contested is decided by the service, also above the size of a part."""
    won: list[int] = []
    s3.server.heal()

    def put(number: int) -> None:
        try:
            store.put_if_absent("race", bytes([number]) * (PART + 1))
        except AlreadyExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("race", 0, 1) == bytes(won)
    assert {method for method, address in s3.server.requests() if "/race" in address} == {"PUT", "HEAD", "GET"}


def test_a_stream_is_sent_while_it_is_written_and_refused_where_its_name_is_taken(s3: S3Bucket, store: Store) -> None:
    store.put_if_absent("x", b"first")
    for path in ("x", "y"):
        with pytest.raises(AlreadyExistsError) if path == "x" else os.scandir("/"), store.create(path) as stream:
            for _ in range(5):
                stream.write(bytes(PART // 2))
            sent = [a for method, a in s3.server.requests() if method == "PUT" and "partNumber" in a and path in a]
            assert sent
    assert store.read("x") == b"first"
    assert [(one.path, one.bytes) for one in store.list("")] == [("x", 5), ("y", PART * 5 // 2)]
    assert "Uploads" not in s3.client.list_multipart_uploads(Bucket=s3.name)


@pytest.fixture
def ends_early(s3: S3Bucket) -> Iterator[Any]:
    """A server that announces more names and does not say where they begin."""
    page = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    s3.server.fail("GET", "list-type=2", status=200, code="OK", body=page, times=9)
    yield
    s3.server.heal()


def test_a_listing_that_ends_early_makes_no_known_file_absent(s3: S3Bucket, store: Store, ends_early: None) -> None:
    assert isinstance(store, SizedStore)
    store.put_if_absent("f/one", b"1")
    assert store.list("f") == []
    assert store.find_sizes("f", ["f/one", "f/two"]) == {"f/one": 1}
    s3.server.fail("HEAD", "/f/two", status=403, code="AccessDenied")
    with pytest.raises(StorageError):
        store.find_sizes("f", ["f/one", "f/two"])


def test_a_name_that_obstore_cannot_list_is_named(s3: S3Bucket, store: Store) -> None:
    s3.put("a/store/f//x", b"1")
    with pytest.raises(StorageError, match="f//x") as refused:
        store.list("f")
    assert (refused.value.code, "another name" in refused.value.hint) == ("STORE_KEY", True)


def test_an_error_shows_no_address_of_a_request(s3: S3Bucket, store: Store) -> None:
    """The address of a request may hold a signature. Promise I26."""
    s3.server.fail("GET", "/x", status=400, code="Odd", times=9)
    with pytest.raises(StorageError) as failed:
        store.read("x")
    assert "Odd" in str(failed.value)
    assert s3.server.url not in str(failed.value)


@pytest.mark.parametrize(("status", "code"), [(403, "InvalidAccessKeyId"), (404, "XAdminUserNotFound")])
def test_an_unknown_key_id_is_named_in_each_request(s3: S3Bucket, store: Store, status: int, code: str) -> None:
    """Fault: versitygw answers 404, which was shown as a service that is broken. The answer of a HEAD has no code."""
    for method in ("GET", "HEAD", "PUT"):
        s3.server.fail(method, "/", status=status, code=code, times=99)
    acts: list[Any] = [
        lambda: store.read("a"),
        lambda: store.list(""),
        lambda: store.put_if_absent("a", b""),
        lambda: cast(SizedStore, store).find_sizes("", ["a"]),
    ]
    for act in acts:
        with pytest.raises(StorageError) as refused:
            act()
        assert refused.value.code == "STORE_DENIED"
        assert "credentials" in refused.value.hint
    assert "key id" in refused.value.message


def test_a_host_that_is_not_found_is_named(monkeypatch: pytest.MonkeyPatch, s3: S3Bucket) -> None:
    """Fault: the hint was to call again."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://no-such-host.invalid:9000")
    with pytest.raises(StorageError, match=r"no-such-host\.invalid:9000") as refused:
        open_store("s3://bucket/store", HERE).read("a")
    assert "Check the name of the host" in refused.value.hint
    assert "Call again" not in refused.value.hint


def test_an_outage_is_the_same_error_for_all_paths(monkeypatch: pytest.MonkeyPatch, s3: S3Bucket) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    said = set()
    for path in ("a", "b"):
        with pytest.raises(StoreUnusableError) as refused:
            open_store("s3://bucket/store", HERE).read(path)
        said.add(str(refused.value))
    assert len(said) == 1


def test_an_endpoint_with_a_path_is_doubted(monkeypatch: pytest.MonkeyPatch, s3: S3Bucket) -> None:
    """Fault: the hint was to mount the disk."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{s3.server.url}/{s3.name}")
    store = open_store(s3.address, HERE)
    for act in (lambda: require_identity(store, "a1"), lambda: store.read("a"), lambda: store.list("")):
        with pytest.raises(TidefoldError) as refused:
            act()
        if not isinstance(refused.value, NotFoundError):
            assert "AWS_ENDPOINT_URL ends with a path" in refused.value.hint
            assert "disk" not in refused.value.hint
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.server.url)
    with pytest.raises(TidefoldError) as refused:
        require_identity(open_store(s3.address, HERE), "a1")
    assert "AWS_ENDPOINT_URL, else AWS_REGION" in refused.value.hint
    assert "path" not in refused.value.hint
