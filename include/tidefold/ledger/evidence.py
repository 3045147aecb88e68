"""Finds what a store shows of a log or a set besides its ledger: published tables, manifests, folders of snapshots."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from tidefold.domain.ledger_evidence import Evidence, ShownSnapshot, find_published_version, newest_id
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths, SetPaths
from tidefold.domain.sets.set_state import SetEvidence, SetMark, SetState, SetVersion
from tidefold.domain.table.types import TableColumns
from tidefold.errors import AlreadyExistsError, NotFoundError, RefusedError, TidefoldError
from tidefold.storage import Store, StoredObject
from tidefold.stored_forms import decode, decode_form

# Facts in a commit of a Delta table, for people and to be known by again.
SNAPSHOT_FACT = "tidefold.snapshot"
# The sha256 of the manifest of the snapshot that a table version shows. Ids begin again with a log; a manifest names
# files with random names, so no other one has its digest.
MANIFEST_FACT = "tidefold.manifest"
EPOCH_FACT = "tidefold.epoch"
ATTEMPT_FACT = "tidefold.attempt"
# The set of a log, and the whole decision that published the snapshot.
SET_FACT = "tidefold.set"
DECISION_FACT = "tidefold.set.decision"
# Features of tables whose newest commits may be in their catalog alone. Delta refuses to clean them up by address.
_OF_CATALOG = (b"catalogManaged", b"catalogOwned-preview")
# Up to this many foreign commits are read one by one. For more, or if some are missing, deltalake reads the table.
_READ_AT_MOST = 8
# A transaction's version is a signed number of 64 bits: this many hexadecimal digits of a sha256 fit.
_DIGITS = 15
_MARK = re.compile(r"/_tidefold/ledger-(\d{10})$")
_SET_MARK = re.compile(r"/_tidefold/set-([a-z0-9_]+)-(\d{10})-(\d{10})$")
# This many older marks stay before one request deletes them.
_OLD_MARKS = 16
_log = logging.getLogger(__name__)
M = TypeVar("M")


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
    version = max(list_versions(table_log), default=None)
    below = store.list(paths.manifests)
    published = find_published_version(state)
    shown = None if version is None or version <= published else find_shown(store, state.log, published, version)
    return Evidence(
        table_version=version,
        shown=shown,
        manifests=_ids(below, "manifest"),
        completed=_ids(below, "completed"),
        folders=frozenset() if newest_id(state) else find_folders(store, state.log),
        is_as_known=version is None or version == published or (shown is not None and shown.version == version),
        high_water_marks=_high_water_marks(table_log),
    )


def list_versions(entries: Iterable[StoredObject]) -> list[int]:
    """Returns the versions of the commits and checkpoints of a Delta log."""
    numbers = (entry.path.rsplit("/", 1)[1].partition(".")[0] for entry in entries)
    return [int(number) for number in numbers if number.isdecimal()]


def _high_water_marks(entries: Iterable[StoredObject]) -> tuple[int, ...]:
    matches = (_MARK.search(entry.path) for entry in entries)
    return tuple(sorted(int(mark[1]) for mark in matches if mark))


def record_high_water_mark(
    store: Store, path: Callable[[M], str], mark: M, older: Sequence[M], content: bytes = b""
) -> tuple[M, ...]:
    """Records that a ledger has reached a version, and deletes older marks when there are many.

    Returns the existing marks. If the mark cannot be written, the ledger is still right.
    """
    try:
        with suppress(AlreadyExistsError):
            store.put_if_absent(path(mark), content)
        if len(older) < _OLD_MARKS:
            return (*older, mark)
        store.delete([path(one) for one in older if one != mark])
    except TidefoldError as error:
        _log.warning("%s: it is not recorded that the ledger has reached this version: %s", path(mark), error)
        return tuple(older)
    return (mark,)


def read_mark(store: Store, log: str) -> TableColumns | None:
    """Returns the columns that the newest mark has; None: a snapshot has them. Raises CorruptError."""
    marks = _high_water_marks(store.list(LogPaths(log).high_water_marks))
    path = LogPaths(log).high_water_mark(max(marks)) if marks else ""
    data = store.read(path) if path else b""
    return decode_form(path, data, TableColumns) if data else None


def delete_high_water_marks(store: Store, log: str, above: int) -> None:
    """Deletes the marks of lost versions, after the ledger was rebuilt without them."""
    marks = _high_water_marks(store.list(LogPaths(log).high_water_marks))
    store.delete([LogPaths(log).high_water_mark(mark) for mark in marks if mark > above])


def list_manifests(store: Store, log: str) -> frozenset[int]:
    """Returns the ids of the snapshots that have a manifest."""
    return _ids(store.list(LogPaths(log).manifests), "manifest")


def _ids(entries: Iterable[StoredObject], name: str) -> frozenset[int]:
    """Returns the ids of the snapshots that have a file of this name beside their manifest."""
    parts = (entry.path.rsplit("/", 2)[1:] for entry in entries)
    return frozenset(int(snapshot) for snapshot, file in parts if file == name and snapshot.isdecimal())


def find_folders(store: Store, log: str) -> frozenset[int]:
    """Returns the ids of the snapshots that have a folder of their own."""
    paths = LogPaths(log)
    names = (e.path.removeprefix(f"{paths.snapshots}/").partition("/")[0] for e in store.list(paths.snapshots))
    return frozenset(int(name) for name in names if name.isdecimal())


def find_shown(store: Store, log: str, after: int, newest: int) -> ShownSnapshot | None:
    """Returns what the newest commit of tidefold after a version shows; None if all of them are foreign."""
    if newest - after > _READ_AT_MOST:
        return _ask_table(store, log)
    try:
        commits = (_read_commit(store, log, version) for version in range(newest, after, -1))
        return next((shown for shown in commits if shown), None)
    except NotFoundError:
        return _ask_table(store, log)


def _read_commit(store: Store, log: str, version: int) -> ShownSnapshot | None:
    facts = read_commit_facts(store, LogPaths(log).table, version)
    if MANIFEST_FACT not in facts:
        return None
    return ShownSnapshot(int(facts.get(SNAPSHOT_FACT, 0)), str(facts[MANIFEST_FACT]), version)


def read_commit_facts(store: Store, table: str, version: int) -> dict[str, Any]:
    """Returns the facts in the commit of a Delta table version. Raises NotFoundError, CorruptError.

    Raises RefusedError if a catalog manages the commits: then the folder does not show what readers see.
    """
    path = f"{table}/_delta_log/{version:020d}.json"
    lines = store.read(path).splitlines()
    for line in lines if any(feature in line for line in lines for feature in _OF_CATALOG) else ():
        protocol = decode(path, line, dict[str, Any]).get("protocol") or {}
        if {feature.decode() for feature in _OF_CATALOG}.intersection(protocol.get("writerFeatures") or ()):
            message = f"A catalog manages the commits of `{table}`, so its folder does not show what readers see."
            hint = "Undo it with Delta's RESTORE, or drop the feature `catalogManaged`. Nothing was deleted."
            raise RefusedError("TABLE_CATALOG_MANAGED", message, hint=hint)
    for line in lines:
        action = decode(path, line, dict[str, msgspec.Raw])
        if "commitInfo" in action:
            return decode(path, bytes(action["commitInfo"]), dict[str, Any])
    return {}


def _ask_table(store: Store, log: str) -> ShownSnapshot | None:
    # deltalake is loaded only here, because it is rarely needed.
    from tidefold.storage.delta_tables import convert_errors, open_table

    with convert_errors(LogPaths(log).table):
        table = open_table(store, LogPaths(log).table)
        snapshot = table.transaction_version(app_of(log))
        digest = table.transaction_version(f"{app_of(log)}/manifest")
    return None if snapshot is None else ShownSnapshot(snapshot, f"{digest or 0:0{_DIGITS}x}" if digest else "")


def find_set_evidence(store: Store, state: SetState, logs: Iterable[str]) -> SetEvidence:
    """Checks the tables of a set: one request for each, and the newest commit of one that is newer than known.

    logs: those of the configured set.
    """
    versions = {one.log: one.version for one in state.published.members} if state.published else {}
    decisions: list[SetVersion] = []
    marks: list[SetMark] = []
    for log in sorted({*logs, *versions}):
        entries = store.list(LogPaths(log).table_log)
        marks += _set_marks(entries, log, state.name)
        newest, version = max(list_versions(entries), default=-1), versions.get(log)
        decision = _find_decision(store, log, state.name, -1 if version is None else version, newest)
        decisions += [decision] if decision else []
    newest_one = max(decisions, key=lambda one: one.number, default=None)
    return SetEvidence(newest_one, tuple(sorted(marks)))


def _set_marks(entries: Iterable[StoredObject], log: str, name: str) -> list[SetMark]:
    matches = (_SET_MARK.search(entry.path) for entry in entries)
    return [SetMark(int(mark[2]), int(mark[3]), log) for mark in matches if mark and mark[1] == name]


def delete_set_marks(store: Store, name: str, logs: Iterable[str], above: int) -> None:
    """Deletes the marks of lost versions of a set's ledger, after it was rebuilt without them."""
    marks = [one for log in logs for one in _set_marks(store.list(LogPaths(log).high_water_marks), log, name)]
    store.delete([SetPaths(name).high_water_mark(m.log, m.version, m.number) for m in marks if m.version > above])


def list_decisions(store: Store, log: str, name: str) -> list[SetVersion]:
    """Returns the decisions of a set in all commits that the Delta log of a table still has."""
    versions = sorted(set(list_versions(store.list(LogPaths(log).table_log))))
    return [one for version in versions if (one := _read_decision(store, log, name, version))]


def _find_decision(store: Store, log: str, name: str, after: int, newest: int) -> SetVersion | None:
    """Returns the decision in the newest commit of the set after a version; None: there is none."""
    versions = range(newest, max(after, newest - _READ_AT_MOST), -1)
    return next((one for version in versions if (one := _read_decision(store, log, name, version))), None)


def _read_decision(store: Store, log: str, name: str, version: int) -> SetVersion | None:
    table = LogPaths(log).table
    try:
        facts = read_commit_facts(store, table, version)
    except NotFoundError:
        return None  # A clean-up of the Delta log deleted it: a high-water mark shows what is lost.
    if facts.get(SET_FACT) != name or DECISION_FACT not in facts:
        return None
    return decode_form(f"{table}/_delta_log", str(facts[DECISION_FACT]).encode(), SetVersion)
