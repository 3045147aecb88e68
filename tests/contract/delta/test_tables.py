"""One behaviour suite for the tables of Delta and for those that the crash simulator puts in their place.

Promises I1, I4, I20.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from deltalake import DeltaTable

import tidefold
from support import simulated
from support.builders import SHAPE
from support.dict_store import DictStore
from tidefold.delta.publish import Publication, create_snapshot_table, provide_new_files, publish
from tidefold.delta.published_table import Published
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import NO_PROGRESS
from tidefold.errors import AlreadyExistsError, CorruptError, RefusedError
from tidefold.storage import Store
from tidefold.storage.local_store import LocalStore

Tables = ModuleType | SimpleNamespace
STATS = '{"numRecords":1,"minValues":{},"maxValues":{},"nullCount":{}}'


# Digests of manifests.
ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64


DELTA = SimpleNamespace(publish=publish, create_snapshot_table=create_snapshot_table)


@pytest.fixture(params=["delta", "simulated"])
def tables(request: pytest.FixtureRequest) -> Tables:
    return DELTA if request.param == "delta" else simulated


@pytest.fixture
def store(tables: Tables, tmp_path: Path) -> Store:
    return LocalStore(tmp_path) if tables is DELTA else DictStore()


def staged(store: Store, snapshot: int, below: Manifest | None = None, files: int = 1) -> Manifest:
    """A snapshot with new files and those of the one below, all in its folder."""
    folder = LogPaths("accounts").snapshot(snapshot)
    new = []
    for _ in range(files):
        name = str(DataFileName(KeyGroups(0, 15), snapshot, snapshot, uuid.uuid4().hex, ""))
        store.put_if_absent(data_path(folder, name), b"rows")
        new.append(DataFile(name, 4, 1, "00", KeyGroups(0, 15), STATS))
    carried = [replace(f, carried=True) for f in below.files] if below else []
    for file in carried:
        store.put_if_absent(data_path(folder, file.name), b"rows")
    base = below.snapshot if below else None
    manifest = Manifest(
        "accounts", snapshot, snapshot, SnapshotKind.FULL, base, 0, snapshot, SHAPE, (*carried, *new), NO_PROGRESS
    )
    provide_new_files(store, manifest)
    return manifest


def test_a_snapshot_is_a_table_once(tables: Tables, store: Store) -> None:
    manifest = staged(store, 1)
    tables.create_snapshot_table(store, manifest)
    with pytest.raises(AlreadyExistsError):
        tables.create_snapshot_table(store, manifest)


def test_each_version_has_the_facts_of_its_publication(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    one = staged(store, 1)
    publish(store, one, ONE, None, how=Publication(facts={"tidefold.set": "first"}))
    publish(store, staged(store, 2, one), TWO, Published(one, 0), how=Publication(facts={"tidefold.set": "second"}))
    history = DeltaTable(store.uri(LogPaths("accounts").table)).history()
    assert [commit["tidefold.set"] for commit in history] == ["second", "first"]
    assert {commit["engineInfo"] for commit in history} == {f"tidefold/{tidefold.__version__}"}


def test_each_snapshot_is_one_version_and_again_the_same(tables: Tables, store: Store) -> None:
    one = staged(store, 1)
    assert tables.publish(store, one, ONE, None) == 0
    assert tables.publish(store, one, ONE, None) == 0
    two = staged(store, 2, one)
    assert tables.publish(store, two, TWO, Published(one, 0)) == 1
    # Somebody who slept since before it was published.
    assert tables.publish(store, two, TWO, Published(one, 0)) == 1
    three = staged(store, 3)
    assert tables.publish(store, three, THREE, Published(two, 1)) == 2


def test_over_what_is_not_the_last_publication_nothing_is_published(tables: Tables, store: Store) -> None:
    one, two = staged(store, 1), staged(store, 2)
    tables.publish(store, one, ONE, None)
    tables.publish(store, two, TWO, Published(one, 0))
    with pytest.raises(RefusedError) as refused:
        tables.publish(store, staged(store, 3), THREE, Published(one, 0))
    assert refused.value.code == "FOREIGN_COMMIT"


def test_a_missing_file_or_table_is_an_error(tables: Tables, store: Store) -> None:
    one = staged(store, 1)
    paths, name = LogPaths("accounts"), one.files[0].name
    with pytest.raises(CorruptError) as gone:
        tables.publish(store, one, ONE, Published(one, 0))
    assert gone.value.code == "TABLE_MISSING"
    store.delete([data_path(paths.table, name), data_path(paths.snapshot(1), name)])
    with pytest.raises(CorruptError) as missing:
        tables.publish(store, one, ONE, None)
    assert missing.value.code == "DATA_FILE_MISSING"


def test_a_snapshot_without_rows_is_published_too(tables: Tables, store: Store) -> None:
    one = staged(store, 1)
    tables.publish(store, one, ONE, None)
    assert tables.publish(store, staged(store, 2, files=0), TWO, Published(one, 0)) == 1
