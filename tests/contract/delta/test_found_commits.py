"""Commits that a publication finds: its own of a process that was killed, and a foreign first one. Promise I21."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.old_ledgers import CONFIG, LOG, PATHS, fold, land, opened, publish, published, take
from support.pipelines import judge_all
from tidefold.errors import CorruptError
from tidefold.operations.snapshot.confirm import confirm
from tidefold.storage.local_store import LocalStore


def begin(root: Path) -> Path:
    (root / "landing" / LOG).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(CONFIG.format(kind="incremental"))
    land(root, 0)
    take(root)
    fold(root, "first")
    return root / "store" / PATHS.table_log


def test_a_commit_of_a_killed_process_is_synced_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was killed after the commit had its name, and before the folder was synced."""
    begin(tmp_path)
    publish(tmp_path, "first")
    ledger = tmp_path / "store" / PATHS.ledger
    max(ledger.glob("*.json")).unlink()  # The ledger does not know of it yet.
    synced = []
    monkeypatch.setattr(LocalStore, "sync", lambda _, path: synced.append(path))
    confirm(opened(tmp_path), LOG)
    assert f"{PATHS.table_log}/{0:020d}.json" in synced
    assert len(published(tmp_path)) == 3


def test_a_first_commit_with_bytes_is_left_alone(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{}\n")
    judge_all(opened(tmp_path))
    with pytest.raises(CorruptError, match="cannot use"):
        confirm(opened(tmp_path), LOG)
    assert (log / f"{0:020d}.json").read_text() == "{}\n"
