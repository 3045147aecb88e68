"""A whole pipeline in memory for the crash simulator. Every call to the store can fail; tables and folds are plain
JSON.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import BinaryIO
from unittest import mock

import msgspec

from support.dict_store import DictStore
from support.faults import Killed
from tidefold.changelog.schema import DELETE
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import Runner, TaskAnswer, TaskWork, in_process
from tidefold.delta import publish as real
from tidefold.delta.publish import Publication
from tidefold.delta.published_table import Published
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    RefusedError,
    StorageError,
    UnknownOutcomeError,
)
from tidefold.fold.plan import Address, FoldResult, FoldTask, Input, Recipe, RewriteAction
from tidefold.fold.tasks import FoldWork
from tidefold.ledger.evidence import ATTEMPT_FACT, EPOCH_FACT, MANIFEST_FACT, SNAPSHOT_FACT
from tidefold.operations.ingest import parse as parse_module
from tidefold.operations.publish import publish_log
from tidefold.operations.snapshot import stage
from tidefold.storage import Store, StoredObject

Rows = dict[int, str | None]


class Fault(StrEnum):
    """What happens at the chosen call. A call that only reads has no effect, so it can only fail."""

    ERROR_BEFORE = "an error before anything happened"
    LOST_BEFORE = "an unknown outcome, and nothing happened"
    LOST_AFTER = "an unknown outcome after it took effect"
    TORN = "the process dies with half of the bytes written"
    KILLED_BEFORE = "the process dies before"
    KILLED_AFTER = "the process dies after"


@dataclass(frozen=True)
class CallKind:
    """changes: the store. can_tear: a process that dies in it may leave half of the bytes."""

    changes: bool
    can_tear: bool


# An error may come once or stay; a process dies once.
WAYS = [*((fault, False) for fault in Fault), (Fault.ERROR_BEFORE, True), (Fault.LOST_BEFORE, True)]


def list_different_ways(kinds: Sequence[CallKind], at: int) -> list[tuple[Fault, bool]]:
    """Returns the ways in which a call can fail, without those that leave what another one leaves, too.

    Nothing happens between two calls: a process that dies after one of them is one that dies before the next. A call
    that changes nothing is not torn, and its lost answer is the same before and after.
    """
    same: set[Fault] = set()
    if at + 1 < len(kinds):
        same.add(Fault.KILLED_AFTER)
    if not kinds[at].can_tear:
        same.add(Fault.TORN)
    if not kinds[at].changes:
        same.add(Fault.LOST_AFTER)
    return [(fault, for_ever) for fault, for_ever in WAYS if fault not in same]


class FaultyStore(DictStore):
    """Counts every call. The call with the number `at` fails as configured; with `for_ever` all later ones too."""

    at: int | None = None
    fault: Fault | None = None
    for_ever = False
    calls = 0

    def __init__(self, files: Mapping[str, bytes] | None = None, unfinished: Mapping[str, bytes] | None = None) -> None:
        super().__init__(files, unfinished)
        # What each call did so far.
        self.kinds: list[CallKind] = []

    def armed(self, at: int, fault: Fault, for_ever: bool = False) -> FaultyStore:
        self.at, self.fault, self.for_ever, self.calls = at, fault, for_ever, 0
        return self

    @contextmanager
    def _call(self, path: str, half: bytes | None = None, changes: bool = True) -> Iterator[None]:
        number, self.calls = self.calls, self.calls + 1
        # Another library commits to tables, each version as a whole.
        can_tear = half is not None and "/_delta_log/" not in path
        self.kinds.append(CallKind(changes, can_tear))
        hit = self.at is not None and (number == self.at or (self.for_ever and number > self.at))
        fault = self.fault if hit else None
        if fault is Fault.ERROR_BEFORE:
            raise StorageError("STORAGE", f"Call {number} failed.")
        if fault is Fault.LOST_BEFORE:
            raise UnknownOutcomeError("UNKNOWN_OUTCOME", f"The answer of call {number} was lost.")
        if fault is Fault.TORN and can_tear:
            assert half is not None
            self.unfinished[f"{path}.{uuid.uuid4().hex}.part"] = half
        if fault in (Fault.KILLED_BEFORE, Fault.TORN):
            raise Killed
        yield
        if fault is Fault.LOST_AFTER:
            raise UnknownOutcomeError("UNKNOWN_OUTCOME", f"The answer of call {number} was lost.")
        if fault is Fault.KILLED_AFTER:
            raise Killed

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self._call(path, changes=False):
            return super().read(path, start, length)

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._call(path, data[: len(data) // 2]):
            super().put_if_absent(path, data)

    def link(self, source: str, target: str, copy: bool = False) -> str:
        with self._call(target):
            return super().link(source, target, copy)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        with self._call(folder, changes=False):
            return super().list(folder, unfinished)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._call(path):
                super().delete([path])

    def sync(self, path: str) -> None:
        with self._call(path):
            super().sync(path)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        # Its end is one put, which counts, and which a torn write leaves half done.
        with super().create(path) as stream:
            yield stream


class Commit(msgspec.Struct, frozen=True):
    """One version of a simulated table."""

    manifest: str
    adds: list[str]
    removes: list[str]
    # As Delta has it.
    commitInfo: dict[str, str] = {}


def commits_of(store: Store, path: str) -> list[Commit]:
    entries = [entry for entry in store.list(f"{path}/_delta_log") if "/_tidefold/" not in entry.path]
    return [msgspec.json.decode(store.read(entry.path), type=Commit) for entry in entries]


def active(commits: Sequence[Commit]) -> set[str]:
    files: set[str] = set()
    for commit in commits:
        files = (files - set(commit.removes)) | set(commit.adds)
    return files


def _facts(manifest: Manifest, digest: str) -> dict[str, str]:
    """Returns the commit facts of `delta.commit_content`."""
    given = {SNAPSHOT_FACT: str(manifest.snapshot), EPOCH_FACT: str(manifest.epoch), MANIFEST_FACT: digest}
    return {**given, ATTEMPT_FACT: manifest.token}


def _commit(store: Store, path: str, version: int, commit: Commit) -> None:
    store.put_if_absent(f"{path}/_delta_log/{version:020d}.json", msgspec.json.encode(commit))


def create_snapshot_table(store: Store, manifest: Manifest) -> None:
    """Does what `delta.create_table.create_snapshot_table` does."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    if store.list(f"{path}/_delta_log"):
        raise AlreadyExistsError("NAME_TAKEN", f"`{path}` is a table already.")
    _commit(store, path, 0, Commit("", [f.name for f in manifest.files], [], _facts(manifest, "")))
    store.sync(f"{path}/_delta_log")


def publish(
    store: Store,
    manifest: Manifest,
    digest: str,
    previous: Published | None,
    how: Publication | None = None,
) -> int:
    """Does what `delta.publish.publish` does, which also provides the files."""
    real._provide_files(store, manifest, {})
    path, after = LogPaths(manifest.log).table, {f.name for f in manifest.files}
    facts = _facts(manifest, digest)
    for _ in range(5):
        commits = commits_of(store, path)
        found = next((number for number, one in enumerate(commits) if one.manifest == digest), None)
        if found is not None:
            return found
        before = active(commits)
        if previous is not None and not commits:
            raise CorruptError("TABLE_MISSING", f"The table of `{manifest.log}` is gone.")
        if before != {f.name for f in previous.manifest.files} if previous else bool(commits):
            raise RefusedError("FOREIGN_COMMIT", f"Other files in the table of `{manifest.log}`.")
        try:
            _commit(store, path, len(commits), Commit(digest, sorted(after - before), sorted(before - after), facts))
        except AlreadyExistsError:
            continue
        store.sync(f"{path}/_delta_log")
        return len(commits)
    raise ConflictError("TABLE_BUSY", f"Other writers committed to the table of `{manifest.log}`.")


@contextmanager
def simulated_tables() -> Iterator[None]:
    """Within this context the operations use these tables instead of Delta's."""
    with (
        mock.patch.object(stage, "create_snapshot_table", create_snapshot_table),
        mock.patch.object(publish_log, "publish", publish),
    ):
        yield


def runner(store: Store) -> Runner:
    """Returns a runner whose tasks use the driver's store. A fold is a dict; an ingest parses as always."""

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        chosen = (lambda text: _fold(store, work.task(text))) if isinstance(work, FoldWork) else work
        with mock.patch.object(parse_module, "open_store", return_value=store):
            return in_process(chosen, tasks)

    return run


def _fold(store: Store, task: FoldTask) -> str:
    recipe = task.recipes[0]
    changes = [row for c in task.change_sets(recipe) for row in read_change_set(store, c, task.bucket).to_pylist()]
    if not changes and recipe.unchanged.action is RewriteAction.LINK:
        return msgspec.json.encode(FoldResult(task.bucket, True, _take(store, task, recipe))).decode()
    rows: Rows = {}
    for one in recipe.base:
        rows.update(read_rows(store, _stored(store, one).path))
    for row in sorted(changes, key=lambda row: (row["_o0"], row["_o1"], row["_partition"], row["_offset"])):
        rows.pop(row["id"], None)
        if row["_op"] != DELETE:
            rows[row["id"]] = row["text"]
    file = _write(store, task, rows) if rows else None
    files = (file,) if file else ()
    return msgspec.json.encode(FoldResult(task.bucket, True, files, changes=len(changes))).decode()


def _take(store: Store, task: FoldTask, recipe: Recipe) -> tuple[DataFile, ...]:
    for one in recipe.base:
        source, target = _stored(store, one).path, data_path(task.plan.target.path, one.file.name)
        if source != target:
            store.link(source, target)
    return tuple(replace(one.file, carried=True) for one in recipe.base)


def _stored(store: Store, one: Input) -> Address:
    """Returns the address of a file in the store itself."""
    there = [a for a in one.addresses if a.where is StorageTier.STORE]
    return next(a for a in there if any(e.path == a.path for e in store.list(a.path.rpartition("/")[0])))


def _write(store: Store, task: FoldTask, rows: Rows) -> DataFile:
    name = str(DataFileName(task.bucket, task.plan.snapshot, task.plan.epoch, uuid.uuid4().hex, task.plan.token))
    data = msgspec.json.encode(rows)
    with store.create(data_path(LogPaths(task.plan.log).snapshot(task.plan.snapshot), name)) as stream:
        stream.write(data)
    return DataFile(name, len(data), len(rows), "00", task.bucket, "{}")


def read_rows(store: Store, path: str) -> Rows:
    return msgspec.json.decode(store.read(path), type=dict[int, str | None])


def rows_of_table(store: Store, path: str) -> Rows:
    """Returns what a reader of a simulated table sees."""
    rows: Rows = {}
    for name in active(commits_of(store, path)):
        rows.update(read_rows(store, data_path(path, name)))
    return rows
