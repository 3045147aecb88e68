"""A power cut leaves the name of a table's first commit without its bytes: the next run publishes. Promise I21."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.old_ledgers import CONFIG, LOG, PATHS, fold, land, opened, publish, published, take
from support.pipelines import judge_all
from tidefold.errors import CorruptError
from tidefold.operations.snapshot.confirm import confirm


def begin(root: Path) -> Path:
    (root / "landing" / LOG).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(CONFIG.format(kind="incremental"))
    land(root, 0)
    take(root)
    fold(root, "first")
    return root / "store" / PATHS.table_log


def test_an_empty_first_commit_is_made_again(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").touch()
    publish(tmp_path, "first")
    assert len(published(tmp_path)) == 3


def test_a_first_commit_with_bytes_is_left_alone(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{}\n")
    judge_all(opened(tmp_path))
    with pytest.raises(CorruptError, match="cannot use"):
        confirm(opened(tmp_path), LOG)
    assert (log / f"{0:020d}.json").read_text() == "{}\n"
