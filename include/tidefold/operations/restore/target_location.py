"""A folder outside the store that a whole table is written to.

It is empty at first. A marker claims it during the write. After an error it is empty again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidefold.errors import AlreadyExistsError, InvalidInputError, RefusedError, TidefoldError
from tidefold.operations.ground.originals import open_address, require_target
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage import Store
from tidefold.storage.addresses import require_apart

_log = logging.getLogger(__name__)
DESCRIPTION = "tidefold-restore.json"
# Readers of Delta and of Parquet folders ignore names that begin with an underscore.
_MARKER = "_tidefold-restoring"


def open_place(pipeline: Pipeline, address: str) -> Store:
    """Opens the target folder, which must be apart from this pipeline's folders and its landing folders.

    Raises InvalidInputError, RefusedError.
    """
    store = open_address(address)
    require_target(pipeline, store)
    place = store.address
    if "://" not in place and Path(place).exists() and not Path(place).is_dir():
        raise InvalidInputError("ADDRESS_IS_FILE", f"`{place}` is a file.")
    others = {"store": pipeline.store.address}
    for log in pipeline.config.logs.values():
        if log.source:
            address = log.address
            folder = address if "://" in address else str(Path(address).resolve())
            others[f"{'landing folder' if log.landing else 'source'} of `{log.id}`"] = folder
    for number, folder in enumerate(pipeline.config.local.folders, 1):
        others |= {f"folder {number} of local copies": str((pipeline.config.path.parent / folder).resolve())}
    require_apart(place, others)
    return store


@contextmanager
def claim_location(store: Store, why: str) -> Iterator[None]:
    """Claims an empty folder, and leaves nothing there after an error. What a kill leaves is not a table."""
    address = store.address
    existed = "://" in address or Path(address).is_dir()
    objects = store.list("", unfinished=True)
    if objects:
        raise _build_taken_error(objects[0].path)
    try:
        store.put_if_absent(_MARKER, f"{why}\n".encode())
    except AlreadyExistsError as error:
        raise _build_taken_error() from error
    _require_still_empty(store)
    try:
        yield
    except (Exception, KeyboardInterrupt):
        with suppress(Exception):
            clear(store, existed)
        raise
    try:
        store.delete([_MARKER])
    except TidefoldError as error:
        _log.warning("`%s` is left beside the restored table: %s", _MARKER, error)


def _require_still_empty(store: Store) -> None:
    """Checks again: another restore may have finished before the marker was written, and its table must stay."""
    try:
        paths = [entry.path for entry in store.list("", unfinished=True) if entry.path != _MARKER]
        if paths:
            raise _build_taken_error(paths[0])
    except TidefoldError:
        with suppress(TidefoldError):
            store.delete([_MARKER])
        raise


def _build_taken_error(path: str = _MARKER) -> RefusedError:
    return RefusedError(
        "PLACE_TAKEN",
        f"The target folder is not empty: it contains `{path}`.",
        hint=f"Give another folder. If a killed export left `{_MARKER}` and data files there, remove them.",
    )


def clear(store: Store, keep: bool = True) -> None:
    """Deletes a restored or unfinished table, the Delta log first. Without `keep`, also deletes the empty folder."""
    paths = [entry.path for entry in store.list("", unfinished=True)]
    ours = [path for path in paths if path.startswith(("_delta_log/", "_data/", DESCRIPTION, _MARKER))]
    store.delete([path for path in ours if path.startswith("_delta_log/")])
    # The marker is deleted last. Until then no other restore begins here.
    store.delete([path for path in ours if not path.startswith((_MARKER, "_delta_log/"))])
    store.delete([path for path in ours if path.startswith(_MARKER)])
    if not keep:
        with suppress(OSError):
            Path(store.address).rmdir()
