"""Reads and writes stored JSON documents. Damaged, missing and newer documents are different errors, never "absent".

A savepoint has one description, which any program can read; its checksum reveals edits. The manifest of a snapshot is
stored once under its id, and the ledger names it by its sha256.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec

from tidefold.domain.log_state import Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.snapshot.savepoint import DESCRIPTION, Savepoint, check_savepoint
from tidefold.domain.state_validation import check_manifest
from tidefold.errors import CorruptError, MissingFileError, NotFoundError
from tidefold.ledger.stored_form import decode_stored, encode
from tidefold.storage import Store

# 2: kinds of snapshots and facts about them that a program of format 1 would lose when it writes the next version.
# 3: tokens of attempts, which a program of format 2 would lose: it removes files by the id of a snapshot alone.
FORMAT = 4
T = TypeVar("T")


class LedgerHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the ledger.

    state: contains the newest items of each paged list.
    pages: the sha256 of the pages with older items.
    skipped: how many items of a list's first page the list no longer has.
    previous: the sha256 of the version before. Versions form a chain, which shows which of them count.
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
    skipped: dict[str, int] = {}


def decode_head(path: str, data: bytes) -> LedgerHead:
    """Raises CorruptError."""
    format_ = decode(path, data, dict[str, Any]).get("format")
    if isinstance(format_, int) and format_ > FORMAT:
        raise CorruptError(
            "LEDGER_NEWER",
            f"`{path}` has format {format_}; this version reads up to {FORMAT}.",
            hint="Update tidefold.",
        )
    head = decode(path, data, LedgerHead)
    require_checksum(path, bytes(head.state), head.checksum)
    return head


def read_named(store: Store, path: str) -> bytes:
    """Reads a file that the ledger names. If it is missing, it was lost: CorruptError, not "not found"."""
    try:
        return store.read(path)
    except NotFoundError as error:
        raise MissingFileError(
            "FILE_MISSING", f"`{path}` is missing, and the ledger needs it.", hint="Restore the file from a backup."
        ) from error


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def require_checksum(path: str, data: bytes, digest: str) -> bytes:
    """Returns the bytes. Raises CorruptError if their sha256 differs."""
    if digest_of(data) != digest:
        raise CorruptError(
            "CHECKSUM", f"`{path}` does not match its recorded checksum.", hint="Restore the file from a backup."
        )
    return data


def decode(path: str, data: bytes, kind: type[T]) -> T:
    """Decodes a document. Raises CorruptError if the bytes are not such a document."""
    try:
        return decode_stored(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(
            "UNREADABLE", f"`{path}` cannot be read: {error}.", hint="Restore the file from a backup."
        ) from error


_SAVEPOINT_FORMAT = "tidefold-savepoint"
VERSION = 1


def write_description(store: Store, savepoint: Savepoint) -> str:
    """Stores the description, once. From now on there is a savepoint. Returns the sha256 of the document."""
    fields = msgspec.to_builtins(savepoint)
    document = {"format": _SAVEPOINT_FORMAT, "version": VERSION, **fields}
    data = msgspec.json.format(msgspec.json.encode({**document, "checksum": _checksum(document)}), indent=2)
    store.put_if_absent(DESCRIPTION, data)
    return digest_of(data)


def read_description(store: Store) -> tuple[Savepoint, str]:
    """Returns a savepoint and the sha256 of its description.

    Raises NotFoundError if there is none, CorruptError if it is damaged, edited, or newer than this program.
    """
    try:
        data = store.read(DESCRIPTION)
    except NotFoundError as error:
        message = f"There is no savepoint at this address: `{DESCRIPTION}` is missing."
        hint = "Give the address of a finished savepoint. An unfinished one has no such file."
        raise NotFoundError("SAVEPOINT_UNKNOWN", message, hint=hint) from error
    document = decode(DESCRIPTION, data, dict[str, Any])
    _check_format(document)
    given = document.pop("checksum", None)
    if given != _checksum(document):
        raise CorruptError(
            "SAVEPOINT_EDITED",
            f"`{DESCRIPTION}` does not match its recorded checksum.",
            hint="Nothing was changed. Put the original description back.",
        )
    return check_savepoint(decode(DESCRIPTION, data, Savepoint)), digest_of(data)


def _check_format(document: dict[str, Any]) -> None:
    version = document.get("version")
    if document.get("format") != _SAVEPOINT_FORMAT or type(version) is not int:
        raise CorruptError(
            "SAVEPOINT_FORMAT",
            f"`{DESCRIPTION}` is not a description of a tidefold savepoint.",
            hint="Nothing was changed. Give the address of a savepoint.",
        )
    if version > VERSION:
        raise CorruptError(
            "SAVEPOINT_NEWER",
            f"The savepoint has version {version}; this program reads up to {VERSION}.",
            hint="Update tidefold.",
        )


def _checksum(document: dict[str, Any]) -> str:
    """Returns the checksum of the content: spaces and the order of fields do not matter."""
    return digest_of(msgspec.json.encode(document, order="sorted"))


def read_manifest(store: Store, log: str, snapshot: Snapshot) -> Manifest:
    """Returns the manifest that the ledger names. Raises CorruptError if its bytes are not those that were staged."""
    return read_manifest_at(store, LogPaths(log).manifest(snapshot.id), snapshot)


def read_manifest_at(store: Store, path: str, snapshot: Snapshot) -> Manifest:
    """Returns a manifest from another path, such as a local copy."""
    return check_manifest(
        decode(path, require_checksum(path, read_named(store, path), snapshot.manifest or ""), Manifest), snapshot
    )


def decode_manifest(path: str, data: bytes) -> Manifest:
    """Decodes a stored manifest, whichever snapshot it belongs to. Raises CorruptError."""
    return decode(path, data, Manifest)


def write_manifest(store: Store, manifest: Manifest) -> str:
    """Stores a manifest under its snapshot's id, once, and returns its sha256."""
    data = encode(manifest)
    store.put_if_absent(LogPaths(manifest.log).manifest(manifest.snapshot), data)
    return digest_of(data)
