"""A bucket larger than the memory that its merge may take spills to disk, and gives the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from support import workloads
from support.workloads import LOG, cycle, opened
from tidefold.changelog.writer import Changelog
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.fold import fold_bucket
from tidefold.storage.local_store import LocalStore

ROWS = 400_000


def append(root: Path, ids: range, number: int) -> None:
    """Values of about 100 bytes: all of them are more than the merge may hold."""
    texts = [f"{number} {i * 2654435761 % 2**32:08x} {'y' * 80}" for i in ids]
    with Changelog(opened(root).store) as changelog:
        changelog.log(LOG, opened(root).log(LOG).shape).append(pa.table({"id": pa.array(ids), "text": texts}))


def test_a_bucket_larger_than_its_memory_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(fold_bucket, "MERGE_MEMORY", 30_000_000)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    spilled, real = [], LocalStore.create

    @contextmanager
    def create(self: LocalStore, path: str) -> Iterator[BinaryIO]:
        with real(self, path) as stream:
            yield stream
            spilled.append(sum(file.stat().st_size for file in scratch.rglob("duckdb_temp*")))

    workloads.configured(root, workloads.CONFIG.replace("buckets: 16", "buckets: 1"))
    append(root, range(ROWS), 1)
    cycle(root, "first", KindPolicy.FULL)
    append(root, range(0, ROWS, 2), 2)
    monkeypatch.setattr(LocalStore, "create", create)
    cycle(root, "second")
    assert max(spilled) > 10_000_000
    assert list(scratch.iterdir()) == []
    found = DeltaTable(opened(root).store.uri(LogPaths(LOG).table)).to_pyarrow_table().sort_by("id")
    assert found.column("id").to_pylist() == list(range(ROWS))
    assert {text[0] for text in found.column("text").to_pylist()[::2]} == {"2"}
    assert {text[0] for text in found.column("text").to_pylist()[1::2]} == {"1"}
