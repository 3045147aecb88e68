"""The one door to deltalake: it opens tables, and converts the library's errors to tidefold's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidefold.errors import CorruptError, StorageError, TidefoldError
from tidefold.storage.store import Store

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# deltalake has one class of errors for a damaged log and for a store that lost or cut its answer: the text differs.
_UNREACHABLE = re.compile(
    "interacting with object store|Generic [A-Za-z0-9]+ error|Failed to commit transaction|error sending request"
    "|error decoding response body|end of file before message|timed out|connection (reset|closed|refused)",
    re.IGNORECASE,
)


def open_table(store: Store, path: str, version: int | None = None) -> DeltaTable:
    """Returns the newest version of a Delta table, or this one.

    Raises TableNotFoundError if there is none, CorruptError if its log cannot be read, StorageError.
    """
    with convert_errors(path, TableNotFoundError):
        return DeltaTable(store.uri(path), version=version, storage_options=store.options() or None)


@contextmanager
def convert_errors(path: str, *kept: type[Exception]) -> Iterator[None]:
    """Converts errors of deltalake and of the system: callers handle only tidefold's errors, and those of `kept`."""
    as_they_are: tuple[type[Exception], ...] = (TidefoldError, *kept)
    try:
        yield
    except as_they_are:
        raise
    except (DeltaError, OSError) as error:
        # deltalake draws its chain of causes with colours and arrows, over many lines.
        text = " ".join(_COLOUR.sub("", str(error)).replace("\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}", ":").split())
        if isinstance(error, OSError) or _UNREACHABLE.search(text):
            hint = "Call again when the store answers."
            raise StorageError("STORAGE", f"The Delta table `{path}`: {text}", hint=hint) from error
        raise CorruptError(
            "DELTA_TABLE",
            f"deltalake cannot use the Delta table `{path}`: {text}",
            hint=f"Restore `{path}/_delta_log` from a backup.",
        ) from error
