"""Tests what tidefold relies on in a store, with a few small files."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tidefold.errors import AlreadyExistsError, NotFoundError, StorageError, TidefoldError
from tidefold.storage.store import MarkedStore, Store

_FOLDER = "probes"


def probe(store: Store) -> tuple[str, ...]:
    """Returns what the store did, in order. Raises a TidefoldError that names the failure. Leaves no file if it can."""
    folder = f"{_FOLDER}/{uuid.uuid4().hex}"
    done = []
    try:
        for step, act in _steps(store, folder):
            with _name_step(step):
                act()
            done.append(step)
    finally:
        with suppress(TidefoldError):
            store.delete(entry.path for entry in store.list(folder, unfinished=True))
    return tuple(done)


def measure_skew(store: Store) -> float | None:
    """Returns how many seconds the clock of the store is certainly ahead of this machine's.

    None if the store does not report when it wrote an object. Leaves no file if it can. Raises TidefoldError.
    """
    path = f"{_FOLDER}/{uuid.uuid4().hex}/clock"
    begun = time.time()
    store.put_if_absent(path, b"clock")
    try:
        written = _read_instant(store, path)
        ended = time.time()
    finally:
        with suppress(TidefoldError):
            store.delete([path])
    if written is None:
        return None
    # Instants of a store may lack their fraction of a second, and it was written at some time in between.
    return max(written - ended, 0.0) if written > begun else min(written + 1 - begun, 0.0)


def _read_instant(store: Store, path: str) -> float | None:
    if isinstance(store, MarkedStore):
        return store.read_instant(path)
    try:
        return os.stat(store.uri(path)).st_mtime
    except OSError:
        return None


_Step = tuple[str, Callable[[], None]]


def _steps(store: Store, folder: str) -> Iterator[_Step]:
    one, other = f"{folder}/one", f"{folder}/other"

    def expect_list(*paths: str) -> Callable[[], None]:
        return lambda: _require([e.path for e in store.list(folder)] == [*paths], "a listing is not what was written")

    yield "list", expect_list()
    yield "put", lambda: store.put_if_absent(one, b"first")
    yield "refuse a second put", lambda: _require_refused(lambda: store.put_if_absent(one, b"second"))
    yield "read back", lambda: _require(store.read(one) == b"first", "other bytes were read than were written")
    yield "tell its own put", lambda: _require(_is_marked(store, one), "it does not keep the metadata of objects")
    yield "copy", lambda: _require(store.link(one, other) in ("link", "copy"), "the copy was there before")
    yield "list what is there", expect_list(one, other)
    third = f"{folder}/third"
    yield "put another", lambda: store.put_if_absent(third, b"third")
    yield "refuse to copy over it", lambda: _require_refused(lambda: _copy(store, one, third))
    yield "delete", lambda: store.delete([one, other, third])
    yield "list nothing", expect_list()
    yield "tell what is absent", lambda: _absent(store, one)


def _is_marked(store: Store, path: str) -> bool:
    return not isinstance(store, MarkedStore) or store.keeps_marks(path)


def _copy(store: Store, source: str, target: str) -> None:
    store.link(source, target)


def _require_refused(act: Callable[[], None]) -> None:
    try:
        act()
    except AlreadyExistsError:
        return
    _require(False, "a taken name was overwritten")


def _absent(store: Store, path: str) -> None:
    try:
        store.read(path)
    except NotFoundError:
        return
    _require(False, "a deleted file is still read")


def _require(right: bool, wrong: str) -> None:
    if not right:
        raise StorageError(
            "STORE_UNFIT",
            f"{wrong}.",
            hint="Do not use this store: without these promises, two runs at once can lose each other's data.",
        )


@contextmanager
def _name_step(step: str) -> Iterator[None]:
    try:
        yield
    except TidefoldError as error:
        message = f"The store failed at `{step}`: {error.message}"
        raise type(error)(error.code, message, hint=error.hint) from error
