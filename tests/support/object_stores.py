"""What is asked of each object store in the same way: reads in any order, and writers in several processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.builders import SHAPE
from tidefold.delta.publish import create_snapshot_table
from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.source_progress import NO_PROGRESS
from tidefold.errors import AlreadyExistsError, StorageError
from tidefold.storage import Store, open_store
from tidefold.storage.range_reader import READ


def write_name(address: str, path: str, number: int) -> bool:
    """Streams a number to a name. Returns whether this writer was the first."""
    try:
        with open_store(address, Path("/")).create(path) as stream:
            stream.write(str(number).encode())
    except AlreadyExistsError:
        return False
    return True


def race_processes(address: str, method: str) -> None:
    """Checks that one of several processes wins each name, while the parent uses the connections that it had."""
    store = open_store(address, Path("/"))
    store.put_if_absent("before", b"parent")
    context: Any = multiprocessing.get_context(method)
    won, wanted = context.Queue(), [f"race/{n}" for n in range(10)]
    workers = [context.Process(target=_write_names, args=(address, wanted, n, won)) for n in range(3)]
    for worker in workers:
        worker.start()
    assert all(store.read("before") == b"parent" for _ in range(20))
    found = sorted(won.get(timeout=60) for _ in wanted)
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 3
    assert [name for name, _ in found] == wanted
    assert {name: store.read(name) for name in wanted} == {name: str(number).encode() for name, number in found}


def refuse_fork(address: str) -> None:
    """Checks that a fork of a process that used a store gets an error by name, and that its parent goes on."""
    store = open_store(address, Path("/"))
    store.put_if_absent("before", b"parent")
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    child = context.Process(target=_name_refusal, args=(address, found))
    child.start()
    assert [found.get(timeout=60) for _ in range(3)] == ["STORE_FORKED"] * 3
    child.join(60)
    assert child.exitcode == 0
    assert store.read("before") == b"parent"


def _name_refusal(address: str, found: Any) -> None:
    store = open_store(address, Path("/"))
    for act in (lambda: store.read("before"), lambda: store.put_if_absent("after", b""), lambda: store.list("")):
        try:
            act()
        except StorageError as error:
            found.put(error.code)


def run_apart(check: Callable[..., None], *arguments: Any) -> None:
    """Runs a check in a process of its own: a fork of this one would inherit locks that other tests' threads hold."""
    process = multiprocessing.get_context("spawn").Process(target=check, args=arguments)
    process.start()
    process.join(180)
    assert process.exitcode == 0


def _write_names(address: str, names: list[str], number: int, won: Any) -> None:
    for name in names:
        if write_name(address, name, number):
            won.put((name, number))


def read_in_any_order(store: Store) -> None:
    """Checks reads of parts of a large file, also across the end of what was read ahead, and behind the last byte."""
    data = os.urandom(3 * READ + 5)
    store.put_if_absent("big", data)
    with store.open("big") as stream:
        for start, length in ((5, 10), (2 * READ - 3, 9), (0, 1), (len(data) - 4, 9), (len(data) + 9, 1)):
            stream.seek(start)
            assert stream.read(length) == data[start : start + length]
    assert store.read("big") == data


def require_named_at_once(store: Store, requests: list[tuple[str, str]]) -> None:
    """A write that the service does not know (501) is sent once, and the error names what the store lacks."""
    requests.clear()
    with pytest.raises(StorageError) as refused:
        store.put_if_absent("mine", b"bytes")
    assert refused.value.code == "STORE_UNFIT"
    assert len([1 for method, _ in requests if method in ("PUT", "POST")]) == 1


def require_made(store: Store) -> None:
    """The table of a snapshot is made, although the answer to its one commit is lost."""
    manifest = Manifest("accounts", 1, 1, SnapshotKind.FULL, None, 0, 1, SHAPE, (), NO_PROGRESS, token="mine")
    create_snapshot_table(store, manifest)
    with pytest.raises(AlreadyExistsError):
        create_snapshot_table(store, manifest)
