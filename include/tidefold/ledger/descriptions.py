"""Descriptions of savepoints: one JSON document each, which any program can read and which shows when it was edited."""

from __future__ import annotations

from typing import Any

import msgspec

from tidefold.ledger.documents import decode, digest_of
from tidefold.lifecycle.errors import CorruptError, NotFoundError
from tidefold.lifecycle.savepoint import DESCRIPTION, Savepoint, check_savepoint
from tidefold.storage import Store

FORMAT = "tidefold-savepoint"
VERSION = 1


def write_description(store: Store, savepoint: Savepoint) -> str:
    """Stores the description, once: from now on there is a savepoint. Answers the sha256 of the document."""
    fields = msgspec.to_builtins(savepoint)
    document = {"format": FORMAT, "version": VERSION, **fields}
    data = msgspec.json.format(msgspec.json.encode({**document, "checksum": _checksum(document)}), indent=2)
    store.put_if_absent(DESCRIPTION, data)
    return digest_of(data)


def read_description(store: Store) -> tuple[Savepoint, str]:
    """A savepoint and the sha256 of its description.

    Raises NotFoundError when there is none, CorruptError when it is damaged, edited, or newer than this program.
    """
    try:
        data = store.read(DESCRIPTION)
    except NotFoundError as error:
        message = f"There is no savepoint: no `{DESCRIPTION}` at this address."
        hint = "Give the address that `tidefold savepoint` was given; half a savepoint has none."
        raise NotFoundError("SAVEPOINT_UNKNOWN", message, hint=hint) from error
    document = decode(DESCRIPTION, data, dict[str, Any])
    _check_format(document)
    given = document.pop("checksum", None)
    if given != _checksum(document):
        raise CorruptError(
            "SAVEPOINT_EDITED",
            f"`{DESCRIPTION}` does not hold what was written to it: its checksum is another.",
            hint="Nothing was changed. Put the original description back.",
        )
    return check_savepoint(decode(DESCRIPTION, data, Savepoint)), digest_of(data)


def _check_format(document: dict[str, Any]) -> None:
    version = document.get("version")
    if document.get("format") != FORMAT or type(version) is not int:
        raise CorruptError(
            "SAVEPOINT_FORMAT",
            f"`{DESCRIPTION}` is no description of a savepoint of tidefold.",
            hint="Nothing was changed. Give the address of a savepoint.",
        )
    if version > VERSION:
        raise CorruptError(
            "SAVEPOINT_NEWER",
            f"The savepoint has version {version}; this program reads up to {VERSION}.",
            hint="Update tidefold.",
        )


def _checksum(document: dict[str, Any]) -> str:
    """Of the content alone: spaces and the order of fields do not matter."""
    return digest_of(msgspec.json.encode(document, order="sorted"))
