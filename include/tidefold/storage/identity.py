"""The identity of a store: an object in its root distinguishes it from empty folders and other stores (I33)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError, RefusedError
from tidefold.storage.store import Store
from tidefold.typed_json import convert_value, decode_json

IDENTITY = "store.json"
FORMAT = 1


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
                "STORE_NEWER",
                f"`{IDENTITY}` has format {document['format']}; this version reads up to {FORMAT}.",
                hint="Update tidefold.",
            )
        return convert_value(document, StoreIdentity).id
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = f'Put `{IDENTITY}` back from a backup. It is one line: `{{"format": 1, "id": "STORE_ID"}}`.'
        raise CorruptError("STORE_IDENTITY", f"`{IDENTITY}` cannot be read: {error}.", hint=hint) from error


def ensure_identity(store: Store) -> tuple[str, bool]:
    """Returns the id of a store, and whether this call gave it the id."""
    found = read_identity(store)
    if found is not None:
        return found, False
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
    found = read_identity(store)
    if found == wanted:
        return
    where = store.address
    if found is not None:
        raise RefusedError(
            "STORE_UNKNOWN",
            f"The store at {where} has the id {found}, but `store_id` is {wanted}.",
            hint="Correct `store` in the configuration. If this is the right store, set `store_id` to its id.",
        )
    raise RefusedError(
        "STORE_UNKNOWN",
        f"There is no store at {where} (`{IDENTITY}` is missing), but `store_id` is {wanted}.",
        hint="Mount the disk or correct `store`. To start an empty store here on purpose, remove the line `store_id`. "
        "The next run makes the store and prints the new line.",
    )


class IdentityGuard:
    """Checks that a process works on the right store. It reads the identity at most once."""

    def __init__(self, store: Store, wanted: str | None, announce: Callable[[str], None]) -> None:
        """Sets up the guard.

        wanted: the configured id.
        announce: gets a sentence when the store was given its id.
        """
        self._store = store
        self._announce = announce
        self._known = wanted is not None
        if wanted is not None:
            require_identity(store, wanted)

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
