"""Commits of a Delta table as values: which files say what changed, and which halves of updates count."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tidefold.sources.delta.log import first_readable, has_feed, is_mapped, read_commit, versions
from tidefold.sources.delta.rows import AFTER, BEFORE, CHANGE, DELETE, INSERT, without_unchanged_keys
from tidefold.storage.local_store import LocalStore


def commit(folder: Path, version: int, *actions: dict[str, object]) -> LocalStore:
    path = folder / f"_delta_log/{version:020d}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps(action) for action in actions))
    return LocalStore(folder)


def test_files_of_changes_say_all(tmp_path: Path) -> None:
    files = {
        kind: {kind: {"path": f"{kind}%20a", "size": 5, "dataChange": kind != "cdc"}}
        for kind in ("add", "remove", "cdc")
    }
    store = commit(tmp_path, 0, *files.values(), {"commitInfo": {"timestamp": 7, "inCommitTimestamp": 9}})
    found = read_commit(store, 0)
    assert (found.files, found.bytes, found.time, found.has_vectors) == (("cdc a",), 5, 9000, False)


def test_what_changes_no_data_is_left_out(tmp_path: Path) -> None:
    """OPTIMIZE moves rows between files."""
    moved = [{kind: {"path": kind, "size": 5, "dataChange": False}} for kind in ("add", "remove")]
    found = read_commit(commit(tmp_path, 3, *moved), 3)
    assert (found.files, found.bytes, found.time) == ((), 1, None)


def test_the_first_version_that_can_be_read(tmp_path: Path) -> None:
    for version in (2, 3, 5, 6, 7):
        store = commit(tmp_path, version, {"add": {"path": f"{version}.parquet", "dataChange": True}})
    assert versions(store) == (2, 3, 5, 6, 7)
    for version in (2, 3, 5, 7):
        (tmp_path / f"{version}.parquet").touch()
    assert first_readable(store, versions(store)) == 7, "the file of 6 is gone"
    (tmp_path / "6.parquet").touch()
    assert first_readable(store, versions(store)) == 5, "4 is gone"
    assert first_readable(store, ()) == 0


@pytest.mark.parametrize(("value", "feed"), [("true", True), ("TRUE", True), ("false", False), (None, False)])
def test_properties(value: str | None, feed: bool) -> None:
    assert has_feed({"delta.enableChangeDataFeed": value} if value else {}) == feed
    assert is_mapped({"delta.columnMapping.mode": "name"})
    assert not is_mapped({"delta.columnMapping.mode": "none"})


def test_the_old_half_of_an_update_counts_only_where_its_key_is_gone() -> None:
    changes = [(BEFORE, 1), (AFTER, 1), (BEFORE, 2), (AFTER, 3), (BEFORE, 3), (AFTER, 4), (DELETE, 5), (INSERT, 2)]
    rows = pa.table({CHANGE: [kind for kind, _ in changes], "id": [item for _, item in changes]})
    found, ignored = without_unchanged_keys(rows, ["id"])
    kept = [(r[CHANGE], r["id"]) for r in found.to_pylist()]
    assert (kept, ignored) == ([changes[1], changes[2], changes[3], *changes[5:]], 2)
