"""Every store passes the suite that third parties run too (`tidefold.testing`). Promises I2, I23, I26."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from support.dict_store import DictStore
from support.gcs_server import GcsBucketOfTest
from support.s3_server import S3Bucket
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore
from tidefold.testing import SnapshotStorageContract, StoreContract


class TestLocalStore(SnapshotStorageContract):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "store")


class TestS3Store(SnapshotStorageContract):
    @pytest.fixture
    def address(self, s3: S3Bucket) -> str:
        return s3.address


class TestAzureStore(SnapshotStorageContract):
    @pytest.fixture
    def address(self, azure: str) -> str:
        return azure


class TestGcsStore(SnapshotStorageContract):
    @pytest.fixture
    def address(self, gcs: GcsBucketOfTest) -> str:
        return gcs.address


class TestDictStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return DictStore()


def test_names_of_one_copy_have_one_identity(tmp_path: Path) -> None:
    store = open_store("store", tmp_path)
    store.put_if_absent("one", b"bytes")
    store.put_if_absent("twin", b"bytes")
    assert store.link("one", "two") == "link"
    assert store.identity("one") == store.identity("two") != store.identity("twin")
    with pytest.raises(NotFoundError):
        store.identity("none")


@pytest.mark.parametrize("address", ["s3a://bucket/x", "wasb://x", "file://host/x", "http://h/x", "memory://x"])
def test_other_schemes_are_refused_and_the_known_ones_named(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        open_store(address, tmp_path)
    assert refused.value.code == "STORE_SCHEME"
    assert all(known in refused.value.hint for known in ("a path", "file:///", "s3://"))


def test_s3_refuses_to_replace_and_says_how_to_go_on(s3: S3Bucket) -> None:
    store = open_store(s3.address, Path("/"))
    store.put_if_absent("d/one", b"old")
    with pytest.raises(RefusedError) as refused, store.replace(["d/two", "d/one"]):
        raise AssertionError("never begun")
    assert (refused.value.code, "aws s3 rm s3://" in refused.value.hint) == ("STORE_NO_REPLACE", True)


@pytest.mark.parametrize("verb", ["put", "link", "replace"])
def test_a_folder_that_is_pruned_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Another process deletes the last file beside it after mkdir, several times."""
    store = LocalStore(tmp_path)
    store.put_if_absent("source", b"bytes")
    left, real = [3], os.makedirs

    def pruned(path: str, mode: int, exist_ok: bool) -> None:
        real(path, mode, exist_ok=exist_ok)
        if left[0] and path.endswith("b"):
            left[0] -= 1
            store._prune(path)

    monkeypatch.setattr(os, "makedirs", pruned)
    if verb == "put":
        store.put_if_absent("a/b/c", b"bytes")
    elif verb == "link":
        store.link("source", "a/b/c")
    else:
        with store.replace(["a/b/c", "a/b/d"]) as stream:
            stream.write(b"bytes")
    assert store.read("a/b/c") == b"bytes"
    assert left == [0]


def test_of_a_writer_and_one_who_deletes_beside_it_neither_fails(tmp_path: Path) -> None:
    store, ended = LocalStore(tmp_path), threading.Event()

    def delete() -> None:
        while not ended.is_set():
            store.delete(["a/b/c/gone"])

    other = threading.Thread(target=delete)
    other.start()
    try:
        for number in range(60):
            store.put_if_absent(f"a/b/c/{number}", b"")
            store.delete([f"a/b/c/{number}"])
    finally:
        ended.set()
        other.join()
