"""The one door to deltalake: it opens tables, and converts the library's errors to tidefold's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidefold.errors import CorruptError, NotFoundError, StorageError, TidefoldError
from tidefold.storage.store import Store

T = TypeVar("T")
# A store that answers between them is no outage: deltalake sends each request up to 11 times itself.
_TRIES = 5
_ARROW, _SHOWN = "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}", 200
_CODE = re.compile(r"<Code>(\w+)")
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
    return outlast(store, path, lambda: _StoredTable(store, path, version), TableNotFoundError)


class _StoredTable(DeltaTable):
    """A table whose requests outlast an outage of its store. What is not here sends none."""

    def __init__(self, store: Store, path: str, version: int | None) -> None:
        super().__init__(store.uri(path), version=version, storage_options=store.options() or None)
        self._place = (store, path)

    def create_checkpoint(self) -> None:
        outlast(*self._place, super().create_checkpoint)

    def deletion_vectors(self) -> Any:
        return outlast(*self._place, super().deletion_vectors)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        return outlast(*self._place, lambda: super(_StoredTable, self).history(limit))

    def transaction_version(self, app_id: str) -> int | None:
        return outlast(*self._place, lambda: super(_StoredTable, self).transaction_version(app_id))

    def update_incremental(self) -> None:
        outlast(*self._place, super().update_incremental)


def outlast(store: Store, path: str, act: Callable[[], T], *kept: type[Exception]) -> T:
    """Returns what deltalake answers. It gives up after seconds: a request of the store's own waits, and says so.

    Raises as `convert_errors`, and the store's own error if the outage does not end.
    """
    for _ in range(_TRIES - 1):
        try:
            with convert_errors(path, *kept):
                return act()
        except StorageError:
            with suppress(NotFoundError):
                store.read(f"{path}/_delta_log/_last_checkpoint")
    with convert_errors(path, *kept):
        return act()


@contextmanager
def convert_errors(path: str, *kept: type[Exception]) -> Iterator[None]:
    """Converts errors of deltalake and of the system: callers handle only tidefold's errors, and those of `kept`."""
    as_they_are: tuple[type[Exception], ...] = (TidefoldError, *kept)
    try:
        yield
    except as_they_are:
        raise
    except (DeltaError, OSError) as error:
        # deltalake draws its chain of causes with colours and arrows, over many lines. The last one began it.
        links = [" ".join(link.split()) for link in _COLOUR.sub("", str(error)).split(_ARROW)]
        text = ": ".join(links).rstrip(".")
        if isinstance(error, OSError) or _UNREACHABLE.search(text):
            code = _CODE.search(links[-1])
            why = code[1] if code else links[-1][:_SHOWN].rstrip(".")
            message = f"deltalake cannot reach the Delta table `{path}` ({why})."
            raise StorageError("STORAGE", message, hint="Call again when the store answers.") from error
        raise CorruptError(
            "DELTA_TABLE",
            f"deltalake cannot use the Delta table `{path}`: {text}",
            hint=f"Restore `{path}/_delta_log` from a backup.",
        ) from error
