"""Finds what a store shows of a log besides its ledger: the published table, manifests and folders of snapshots."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tidefold.domain.ledger_evidence import Evidence, ShownSnapshot, find_published_version, newest_id
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError, NotFoundError, TidefoldError
from tidefold.ledger.serialization import decode
from tidefold.storage import Store, StoredObject

# Facts in a commit of a Delta table, for people and to be known by again.
SNAPSHOT_FACT = "tidefold.snapshot"
# The sha256 of the manifest of the snapshot that a table version shows. Ids begin again with a log; a manifest names
# files with random names, so no other one has its digest.
MANIFEST_FACT = "tidefold.manifest"
EPOCH_FACT = "tidefold.epoch"
ATTEMPT_FACT = "tidefold.attempt"
# Up to this many foreign commits are read one by one. For more, or if some are missing, deltalake reads the table.
_READ_AT_MOST = 8
# A transaction's version is a signed number of 64 bits: this many hexadecimal digits of a sha256 fit.
_DIGITS = 15
_MARK = re.compile(r"/_tidefold/ledger-(\d{10})$")
# This many older marks stay before one request deletes them.
_OLD_MARKS = 16
_log = logging.getLogger(__name__)


def transactions_of(log: str, snapshot: int, epoch: int, manifest: str) -> dict[str, int]:
    """Returns Delta's `txn` actions of a commit. Neither foreign commits nor a clean-up of the Delta log hide them."""
    digest = int(manifest[:_DIGITS], 16) if manifest else 0
    return {app_of(log): snapshot, f"{app_of(log)}/epoch": epoch, f"{app_of(log)}/manifest": digest}


def app_of(log: str) -> str:
    """Returns the application id under which a log's table stores the id of its snapshot."""
    return f"tidefold/{log}"


def find_evidence(store: Store, state: LogState) -> Evidence:
    """Checks the table and the snapshots of a log: two requests, and one more for a log without any snapshot."""
    paths = LogPaths(state.log)
    table_log = store.list(paths.table_log)
    version = max(_versions(table_log), default=None)
    below = store.list(paths.manifests)
    known = find_published_version(state)
    shown = None if version is None or version <= known else find_shown(store, state.log, known, version)
    return Evidence(
        table_version=version,
        shown=shown,
        manifests=_ids(below, "manifest"),
        completed=_ids(below, "completed"),
        folders=frozenset() if newest_id(state) else _folders(store, paths),
        is_as_known=version is None or version == known or (shown is not None and shown.version == version),
        high_water_marks=_high_water_marks(table_log),
    )


def _versions(entries: Iterable[StoredObject]) -> list[int]:
    """Returns the versions of the commits and checkpoints of a Delta log."""
    numbers = (entry.path.rsplit("/", 1)[1].partition(".")[0] for entry in entries)
    return [int(number) for number in numbers if number.isdecimal()]


def _high_water_marks(entries: Iterable[StoredObject]) -> tuple[int, ...]:
    found = (_MARK.search(entry.path) for entry in entries)
    return tuple(sorted(int(mark[1]) for mark in found if mark))


def record_high_water_mark(store: Store, log: str, version: int, older: Sequence[int]) -> tuple[int, ...]:
    """Records that the ledger has reached a version, and deletes older marks when there are many.

    Returns the existing marks. If the mark cannot be written, the ledger is still right.
    """
    paths = LogPaths(log)
    try:
        with suppress(AlreadyExistsError):
            store.put_if_absent(paths.high_water_mark(version), b"")
        if len(older) < _OLD_MARKS:
            return (*older, version)
        store.delete([paths.high_water_mark(mark) for mark in older if mark != version])
    except TidefoldError as error:
        _log.warning("%s: it is not recorded that the ledger has reached version %d: %s", log, version, error)
        return tuple(older)
    return (version,)


def delete_high_water_marks(store: Store, log: str, above: int) -> None:
    """Deletes the marks of lost versions, after the ledger was rebuilt without them."""
    marks = _high_water_marks(store.list(LogPaths(log).high_water_marks))
    store.delete([LogPaths(log).high_water_mark(mark) for mark in marks if mark > above])


def list_manifests(store: Store, log: str) -> frozenset[int]:
    """Returns the ids of the snapshots that have a manifest."""
    return _ids(store.list(LogPaths(log).manifests), "manifest")


def _ids(entries: Iterable[StoredObject], name: str) -> frozenset[int]:
    """Returns the ids of the snapshots that have a file of this name beside their manifest."""
    found = (entry.path.rsplit("/", 2)[1:] for entry in entries)
    return frozenset(int(snapshot) for snapshot, file in found if file == name and snapshot.isdecimal())


def _folders(store: Store, paths: LogPaths) -> frozenset[int]:
    names = (e.path.removeprefix(f"{paths.snapshots}/").partition("/")[0] for e in store.list(paths.snapshots))
    return frozenset(int(name) for name in names if name.isdecimal())


def find_shown(store: Store, log: str, after: int, newest: int) -> ShownSnapshot | None:
    """Returns what the newest commit of tidefold after a version shows; None if all of them are foreign."""
    if newest - after > _READ_AT_MOST:
        return _ask_table(store, log)
    try:
        found = (_read_commit(store, log, version) for version in range(newest, after, -1))
        return next((shown for shown in found if shown), None)
    except NotFoundError:
        return _ask_table(store, log)


def _read_commit(store: Store, log: str, version: int) -> ShownSnapshot | None:
    facts = read_commit_facts(store, LogPaths(log).table, version)
    if MANIFEST_FACT not in facts:
        return None
    return ShownSnapshot(int(facts.get(SNAPSHOT_FACT, 0)), str(facts[MANIFEST_FACT]), version)


def read_commit_facts(store: Store, table: str, version: int) -> dict[str, Any]:
    """Returns the facts in the commit of a Delta table version. Raises NotFoundError, CorruptError."""
    path = f"{table}/_delta_log/{version:020d}.json"
    for line in store.read(path).splitlines():
        action = decode(path, line, dict[str, msgspec.Raw])
        if "commitInfo" in action:
            return decode(path, bytes(action["commitInfo"]), dict[str, Any])
    return {}


def _ask_table(store: Store, log: str) -> ShownSnapshot | None:
    # deltalake is loaded only here, because it is rarely needed.
    from deltalake import DeltaTable

    table = DeltaTable(store.uri(LogPaths(log).table), storage_options=store.options())
    snapshot = table.transaction_version(app_of(log))
    if snapshot is not None:
        digest = table.transaction_version(f"{app_of(log)}/manifest")
        return ShownSnapshot(snapshot, f"{digest or 0:0{_DIGITS}x}" if digest else "")
    # A table of an older program.
    ours = next((c for c in table.history() if c.get(MANIFEST_FACT)), None)
    return ShownSnapshot(int(ours.get(SNAPSHOT_FACT, 0)), ours[MANIFEST_FACT]) if ours else None
