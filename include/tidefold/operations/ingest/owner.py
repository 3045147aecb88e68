"""The owner of a log is the landing folder that its files come from: another one is refused by name (decision 0073)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tidefold.domain.landing_problems import NO_PROBLEMS
from tidefold.domain.log_state import LandedFileRecord, LogState
from tidefold.errors import RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.sources.landing.listing import LandedFile, open_landed


def accept_folder(pipeline: Pipeline, state: LogState, files: Sequence[LandedFile], *, is_needed: bool) -> LogState:
    """Returns the state of a log that accepts files of the configured folder, if it may.

    A folder that moved, or is mounted elsewhere, has the newest file that the log ingested.

    is_needed: raises RefusedError (LOG_OWNED) if it may not. Else what the owner's folder has is no matter here.
    """
    folder = _find_folder(pipeline, state.log)
    if not folder or folder in state.folders:
        return state
    if not is_needed:
        return replace(state, landing=NO_PROBLEMS) if state.folders else state
    newest = next((entry for entry in reversed(state.landed) if entry.length), None)
    if not state.folders or (newest and any(file.name == newest.name and _is_same(file, newest) for file in files)):
        return replace(state, folders=(*state.folders, folder))
    lacks = f", which lacks `{newest.name}`, the newest file of the log" if newest else ""
    raise RefusedError(
        "LOG_OWNED",
        f"Log `{state.log}` of this store takes its files from `{_show(pipeline, state.folders[-1])}`. This "
        f"configuration names `{_show(pipeline, folder)}`{lacks}. The run ingested nothing.",
        hint="If another configuration owns the log, give this one another name. If its files come from here now: "
        f"`tidefold step ingest {state.log} --own`.",
    )


def _find_folder(pipeline: Pipeline, log: str) -> str:
    """Returns the landing folder of a log without links; empty: it has none.

    It is relative to a store on the same disk, because both may move together.
    """
    folder, root = pipeline.log(log).landing or "", pipeline.store.address
    if not folder or "://" in folder:
        return folder
    folder = os.path.realpath(folder)
    return folder if "://" in root else os.path.relpath(folder, os.path.realpath(root))


def _show(pipeline: Pipeline, folder: str) -> str:
    return folder if "://" in folder else os.path.normpath(os.path.join(pipeline.store.address, folder))


def _is_same(file: LandedFile, entry: LandedFileRecord) -> bool:
    with suppress(OSError), open_landed(file) as stream:
        return hashlib.sha256(stream.read(entry.length)).hexdigest() == entry.checksum
    return False


def take_over(pipeline: Pipeline, log: str) -> None:
    """Makes the configured landing folder of a log its only one. Raises NotFoundError."""
    folder = _find_folder(pipeline, log)
    pipeline.ledger(log).commit(lambda state: replace(state, folders=(folder,)))
