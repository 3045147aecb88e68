"""One behaviour suite for every store. Promises I2, I23, I26."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

import pytest

from support.dict_store import DictStore
from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError, RefusedError
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore


@pytest.fixture(params=["local", "memory", "dict", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store("store", tmp_path)
    if request.param == "s3":
        return open_store(request.getfixturevalue("s3").address, tmp_path)
    if request.param == "dict":
        return DictStore()
    return open_store(f"memory://{uuid.uuid4().hex}", tmp_path)


def test_what_is_put_is_read_whole_or_in_part(store: Store) -> None:
    store.put_if_absent("a/b/c.bin", b"0123456789")
    assert store.read("a/b/c.bin") == b"0123456789"
    assert store.read("a/b/c.bin", 2, 3) == b"234"
    assert store.read("a/b/c.bin", 8, 9) == b"89"
    assert store.read("a/b/c.bin", 7) == b"789"
    assert store.read("a/b/c.bin", 10, 5) == store.read("a/b/c.bin", 3, 0) == b""
    with store.open("a/b/c.bin") as stream:
        stream.seek(-2, 2)
        assert stream.read() == b"89"


def test_an_empty_file_is_a_file(store: Store) -> None:
    store.put_if_absent("empty", b"")
    assert store.read("empty") == store.read("empty", 0, 4) == b""
    with store.open("empty") as stream:
        assert stream.read() == b""
    with pytest.raises(AlreadyExistsError), store.create("empty"):
        pass
    assert store.link("empty", "other") in ("link", "copy")
    assert [(e.path, e.bytes) for e in store.list("")] == [("empty", 0), ("other", 0)]


def test_a_stream_to_a_taken_name_is_refused_and_leaves_its_bytes(store: Store) -> None:
    store.put_if_absent("x", b"first")
    with pytest.raises(AlreadyExistsError), store.create("x") as stream:
        stream.write(b"second")
    assert store.read("x") == b"first"
    assert [e.path for e in store.list("", unfinished=True)] == ["x"]


def test_nothing_is_seen_of_a_stream_before_its_end(store: Store) -> None:
    with store.create("f/long") as stream:
        stream.write(b"first")
        stream.write(memoryview(b"second"))
        assert stream.tell() == 11
        assert store.list("f") == []
    assert store.read("f/long") == b"firstsecond"


def test_a_taken_name_is_refused_and_keeps_its_bytes(store: Store) -> None:
    store.put_if_absent("x", b"first")
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("x", b"second")
    assert store.read("x") == b"first"


def test_of_many_writers_of_a_name_exactly_one_wins(store: Store) -> None:
    won: list[int] = []

    def put(number: int) -> None:
        try:
            store.put_if_absent("race", str(number).encode())
        except AlreadyExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("race") == str(won[0]).encode()


def test_a_stream_that_fails_leaves_nothing(store: Store) -> None:
    def write() -> None:
        with store.create("half") as stream:
            stream.write(b"torn")
            raise RuntimeError("process trouble")

    with pytest.raises(RuntimeError):
        write()
    assert store.list("") == []


def test_absent_is_not_found(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.read("nothing")
    with pytest.raises(NotFoundError):
        store.link("nothing", "target")
    store.put_if_absent("folder/file", b"bytes")
    for path in ("nothing", "folder/nothing"):
        with pytest.raises(NotFoundError), store.open(path):
            pass
    assert store.list("nothing") == []


def test_a_link_holds_the_same_bytes_and_outlives_its_source(store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    assert store.link("one", "sub/two") in ("link", "copy")
    assert store.link("one", "sub/two") == "kept"
    store.delete(["one", "one"])
    assert store.read("sub/two") == b"bytes"


def test_a_link_over_other_bytes_is_refused(store: Store) -> None:
    store.put_if_absent("one", b"bytes")
    store.put_if_absent("two", b"other bytes")
    store.put_if_absent("three", b"BYTES")
    for other in ("two", "three"):
        with pytest.raises(AlreadyExistsError):
            store.link("one", other)
    assert store.read("three") == b"BYTES"


def test_replaced_names_hold_the_new_bytes_and_others_the_old(store: Store, request: pytest.FixtureRequest) -> None:
    """The one door for repair; S3 fills free names and refuses taken ones by name."""
    store.put_if_absent("d/one", b"old")
    store.link("d/one", "other")
    if request.node.callspec.params["store"] == "s3":
        with pytest.raises(RefusedError) as refused, store.replace(["d/two", "d/one"]):
            raise AssertionError("never begun")
        assert (refused.value.code, "aws s3 rm s3://" in refused.value.hint) == ("S3_NO_REPLACE", True)
        store.delete(["d/one"])
    with store.replace(["d/one", "e/f/two"]) as stream:
        stream.write(b"new ")
        stream.write(memoryview(b"bytes"))
        assert [e.path for e in store.list("e")] == []
    assert (store.read("d/one"), store.read("e/f/two"), store.read("other")) == (b"new bytes", b"new bytes", b"old")
    assert [e.path for e in store.list("", unfinished=True)] == ["d/one", "e/f/two", "other"]


def test_a_replacement_that_fails_changes_nothing(store: Store) -> None:
    store.put_if_absent("keep", b"old")

    def write() -> None:
        with store.replace(["a", "b"]) as stream:
            stream.write(b"torn")
            raise RuntimeError("process trouble")

    with pytest.raises(RuntimeError):
        write()
    assert [e.path for e in store.list("", unfinished=True)] == ["keep"]
    for path in ("../out", "/etc/passwd"):
        with pytest.raises(InvalidInputError), store.replace(["a", path]):
            raise AssertionError("never begun")


def test_names_of_one_copy_have_one_identity(tmp_path: Path) -> None:
    store = open_store("store", tmp_path)
    store.put_if_absent("one", b"bytes")
    store.put_if_absent("twin", b"bytes")
    assert store.link("one", "two") == "link"
    assert store.identity("one") == store.identity("two") != store.identity("twin")
    with pytest.raises(NotFoundError):
        store.identity("none")


def test_a_listing_is_deep_sorted_and_sized(store: Store) -> None:
    for path in ("f/b", "f/a/x", "g"):
        store.put_if_absent(path, path.encode())
    assert [(e.path, e.bytes) for e in store.list("f")] == [("f/a/x", 5), ("f/b", 3)]
    assert store.list("none") == []
    # A name that begins alike is another folder.
    store.put_if_absent("ff/c", b"")
    assert [e.path for e in store.list("f")] == ["f/a/x", "f/b"]


def test_many_are_deleted_at_once_and_absent_ones_are_no_error(store: Store) -> None:
    for path in ("f/a", "f/b", "keep"):
        store.put_if_absent(path, b"")
    store.delete(["f/a", "f/never", "f/b"])
    store.delete([])
    assert [e.path for e in store.list("")] == ["keep"]


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/passwd"])
def test_paths_outside_the_root_are_refused(store: Store, path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        store.read(path)
    assert refused.value.code == "PATH_OUTSIDE_ROOT"


@pytest.mark.parametrize("address", ["s3a://bucket/x", "gs://x", "file://host/x", "http://h/x"])
def test_other_schemes_are_refused_by_name(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        open_store(address, tmp_path)
    assert refused.value.code == "STORE_SCHEME"


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
