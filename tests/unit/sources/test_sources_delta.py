"""Commits of a Delta table as values: which files say what changed, and which halves of updates count."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tidefold.sources.delta.log import DeltaLog
from tidefold.sources.delta.rows import AFTER, BEFORE, CHANGE, DELETE, INSERT, without_unchanged_keys
from tidefold.sources.delta.source_version import find_first_readable, read_version
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
    found = DeltaLog(store).read_commit(0)
    assert (found.files, found.bytes, found.time) == (("cdc a",), 5, 9000)


def test_what_changes_no_data_is_left_out(tmp_path: Path) -> None:
    """OPTIMIZE moves rows between files."""
    moved = [{kind: {"path": kind, "size": 5, "dataChange": False}} for kind in ("add", "remove")]
    found = DeltaLog(commit(tmp_path, 3, *moved)).read_commit(3)
    assert (found.files, found.bytes, found.time) == ((), 1, None)


def test_the_first_version_that_can_be_read(tmp_path: Path) -> None:
    meta = {"metaData": {"id": "a"}, "protocol": {"minReaderVersion": 1}}
    for version in (2, 3, 5, 6, 7):
        more = [meta] if version == 5 else []
        store = commit(tmp_path, version, {"add": {"path": f"{version}.parquet", "dataChange": True}}, *more)
    log = DeltaLog(store)
    assert log.versions == (2, 3, 5, 6, 7)
    for version in (2, 3, 5, 7):
        (tmp_path / f"{version}.parquet").touch()
    assert find_first_readable(log) == 7, "the file of 6 is gone"
    (tmp_path / "6.parquet").touch()
    assert find_first_readable(log) == 5, "4 is gone"
    commit(tmp_path, 5, {"add": {"path": "5.parquet"}})
    assert find_first_readable(log) is None, "nothing says what columns the table has"
    assert find_first_readable(DeltaLog(LocalStore(tmp_path / "none"))) is None


@pytest.mark.parametrize(("value", "feed"), [("true", True), ("TRUE", True), ("false", False), (None, False)])
def test_properties(value: str | None, feed: bool, tmp_path: Path) -> None:
    properties = {"delta.enableChangeDataFeed": value} if value else {}
    store = commit(tmp_path, 0, {"metaData": {"id": "a", "configuration": properties}, "protocol": {}})
    assert read_version(DeltaLog(store), 0).has_feed == feed


def test_the_old_half_of_an_update_counts_only_where_its_key_is_gone() -> None:
    changes = [(BEFORE, 1), (AFTER, 1), (BEFORE, 2), (AFTER, 3), (BEFORE, 3), (AFTER, 4), (DELETE, 5), (INSERT, 2)]
    rows = pa.table({CHANGE: [kind for kind, _ in changes], "id": [item for _, item in changes]})
    found, ignored = without_unchanged_keys(rows, ["id"])
    kept = [(r[CHANGE], r["id"]) for r in found.to_pylist()]
    assert (kept, ignored) == ([changes[1], changes[2], changes[3], *changes[5:]], 2)
