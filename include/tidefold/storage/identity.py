"""The identity of a store (I33), and a check that it does what a pipeline relies on."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from tidefold.errors import (
    AlreadyExistsError,
    CorruptError,
    NotFoundError,
    RefusedError,
    StoreRefusedError,
    StoreWrongError,
    TidefoldError,
)
from tidefold.storage.cloud_address import SCHEMES, CloudAddress
from tidefold.storage.store import MarkedStore, Store
from tidefold.typed_json import convert_value, decode_json

IDENTITY = "store.json"
FORMAT = 1
_FOLDER = "probes"
_Step = tuple[str, Callable[[], None]]


class StoreIdentity(msgspec.Struct, frozen=True):
    """The content of the object.

    format: version of the layout of the store.
    id: 32 hexadecimal digits that no other store has.
    """

    format: int
    id: str


def read_identity(store: Store) -> str | None:
    """Returns the id of a store; None if it has none. Raises CorruptError."""
    try:
        data = store.read(IDENTITY)
    except NotFoundError:
        return None
    try:
        document = decode_json(data, dict[str, Any])
        if isinstance(document.get("format"), int) and document["format"] > FORMAT:
            raise CorruptError(
                "STORE_NEWER", f"`{IDENTITY}` has format {document['format']}; this version reads up to {FORMAT}."
            )
        return convert_value(document, StoreIdentity).id
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if data.lstrip().startswith(b"<"):
            message = f"What answers for {store.address} is no store: it sends a web page as `{IDENTITY}`."
            raise StoreWrongError("STORE_FOREIGN", message, hint=_find_way(store.address)) from error
        hint = f'Put `{IDENTITY}` back from a backup. It is one line: `{{"format": 1, "id": "STORE_ID"}}`.'
        raise CorruptError("STORE_IDENTITY", f"`{IDENTITY}` cannot be read: {error}.", hint=hint) from error


def ensure_identity(store: Store) -> tuple[str, bool]:
    """Returns the id of a store, and whether this call gave it the id."""
    identity = read_identity(store)
    if identity is not None:
        return identity, False
    made = _new_id()
    try:
        store.put_if_absent(IDENTITY, msgspec.json.encode(StoreIdentity(FORMAT, made)))
    except AlreadyExistsError:
        # Another process was faster: the store has its id.
        return read_identity(store) or made, False
    return made, True


def _new_id() -> str:
    """Returns a new id. It starts with a letter, because YAML reads digits alone as a number."""
    return random.choice("abcdef") + uuid.uuid4().hex[1:]


def require_identity(store: Store, wanted: str) -> None:
    """Raises RefusedError unless the store is the one that the configuration names."""
    identity = read_identity(store)
    if identity == wanted:
        return
    where = store.address
    if identity is not None:
        raise RefusedError(
            "STORE_UNKNOWN",
            f"The store at {where} has the id {identity}, but `store_id` is {wanted}.",
            hint="Correct `store` in the configuration. If this is the right store, set `store_id` to its id.",
        )
    raise RefusedError(
        "STORE_UNKNOWN",
        f"There is no store at {where} (`{IDENTITY}` is missing), but `store_id` is {wanted}.",
        hint=f"{_find_way(where)} To start an empty store here on purpose, remove the line `store_id`. The next run "
        "makes the store and prints the new line.",
    )


def _find_way(address: str) -> str:
    """Returns how to reach the right store, if there is none at this address."""
    if address.partition("://")[0] not in SCHEMES:
        return "Mount the disk or correct `store`."
    place = CloudAddress.parse(address)[0]
    return f"Correct `store`, or the host ({place.service.host}).{place.doubt}"


class IdentityGuard:
    """Checks that a process works on the right store. It reads the identity at most once."""

    def __init__(self, store: Store, wanted: str | None, announce: Callable[[str], None]) -> None:
        """Sets up the guard.

        wanted: the configured id.
        announce: gets a sentence when the store was given its id.
        """
        self._store = store
        self._announce = announce
        self._is_read = self._known = wanted is not None
        if wanted is not None:
            require_identity(store, wanted)

    def before_read(self) -> None:
        """Refuses a store of a newer layout before anything else of it is read. Raises CorruptError."""
        if not self._is_read:
            self._known, self._is_read = read_identity(self._store) is not None, True

    def before_write(self) -> None:
        """Gives the store its id before its first change, if it has none."""
        if self._known:
            return
        store_id, made = ensure_identity(self._store)
        self._known = True
        if made:
            self._announce(
                f"The store at {self._store.address} now has an id. Add this line to the configuration, so that an "
                f"empty or another store is refused: `store_id: {store_id}`"
            )


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
        written = read_instant(store, path)
        ended = time.time()
    finally:
        with suppress(TidefoldError):
            store.delete([path])
    if written is None:
        return None
    # Instants of a store may lack their fraction of a second, and it was written at some time in between.
    return max(written - ended, 0.0) if written > begun else min(written + 1 - begun, 0.0)


def read_instant(store: Store, path: str) -> float | None:
    """Returns when the store wrote a file, in seconds since 1970; None: it does not say, or there is no file."""
    try:
        return store.read_instant(path) if isinstance(store, MarkedStore) else os.stat(store.uri(path)).st_mtime
    except (NotFoundError, OSError):
        return None


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
        raise StoreRefusedError(
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
