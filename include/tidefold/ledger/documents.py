"""Stored JSON documents: what is damaged, missing or newer than this program is told apart, never taken for absent."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec

from tidefold.lifecycle.errors import CorruptError, NotFoundError
from tidefold.storage import Store

# 2: kinds of snapshots and facts about them that a program of format 1 would lose when it writes the next version.
FORMAT = 2
T = TypeVar("T")


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the ledger. `state` holds each paged list's newest items, `pages` the older ones' sha256.

    `previous` is the sha256 of the version before: versions form a chain, so a stray one is told from those that count.
    """

    format: int
    log: str
    version: int
    writer: str
    checksum: str
    pages: dict[str, list[str]]
    state: msgspec.Raw
    previous: str = ""
    life: int = 0


def decode_head(path: str, data: bytes) -> Head:
    """Raises CorruptError."""
    format_ = decode(path, data, dict[str, Any]).get("format")
    if isinstance(format_, int) and format_ > FORMAT:
        raise CorruptError(
            "LEDGER_NEWER",
            f"`{path}` has format {format_}; this version reads up to {FORMAT}.",
            hint="Update tidefold.",
        )
    head = decode(path, data, Head)
    checked(path, bytes(head.state), head.checksum)
    return head


def read_named(store: Store, path: str) -> bytes:
    """A file that the ledger names: if it is not there, it was lost, which is more than "not found"."""
    try:
        return store.read(path)
    except NotFoundError as error:
        raise CorruptError("FILE_MISSING", f"`{path}` is gone, and the ledger needs it.", hint="Restore it.") from error


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def checked(path: str, data: bytes, digest: str) -> bytes:
    """The bytes, or CorruptError when their sha256 is another."""
    if digest_of(data) != digest:
        raise CorruptError("CHECKSUM", f"`{path}` does not hold what was written to it.", hint="Restore the file.")
    return data


def decode(path: str, data: bytes, kind: type[T]) -> T:
    """Raises CorruptError when the bytes are no such document."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError("UNREADABLE", f"`{path}` cannot be read: {error}.", hint="Restore the file.") from error
