"""A pipeline of two small logs with local copies, a local disk that fails on request, and the checks of its copies."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from support.faults import FaultyStore
from support.landing import record
from support.pipelines import judge_all, rows_of, snapshot_rows
from tidefold.changelog.segment import read_index
from tidefold.compute.runners import in_process
from tidefold.domain.retention.local_copies import CopyName, segment_of
from tidefold.errors import NotFoundError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest import parse
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.local_copies.manage import snapshots_here
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import StoredObject
from tidefold.storage.local_copies.roots import LocalRoots
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline

PAIR = ["items", "orders"]
_HEAD = "version: 1\nstore: store\nlocal: {mode: files, path: local}\nretention: {snapshots: 2}\nlogs:"
_LOG = """
  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 2
"""


def make(root: Path) -> Pipeline:
    for log in PAIR:
        (root / "landing" / log).mkdir(parents=True, exist_ok=True)
    (root / "tidefold.yaml").write_text(_HEAD + "".join(_LOG.format(log=log) for log in PAIR))
    return open_pipeline(root / "tidefold.yaml")


def land(pipeline: Pipeline, start: int, count: int = 1, logs: Iterable[str] = PAIR) -> None:
    for log in logs:
        lines = [record(start + i, item=start + i, topic=log) for i in range(count)]
        path = pipeline.config.path.parent / "landing" / log / f"{log}+0+{start:010d}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def take(pipeline: Pipeline, logs: list[str] = PAIR) -> list[Outcome]:
    return ingest(pipeline, logs, in_process)


def stage(pipeline: Pipeline, run: str, log: str = "items") -> Outcome:
    [outcome] = materialize(pipeline, [log], Fold(run), in_process)
    return outcome


def cycle(pipeline: Pipeline, run: str, logs: list[str] = PAIR) -> list[Outcome]:
    """Runs what the DAG does up to confirm. Returns the outcomes of the steps that write local copies."""
    outcomes = take(pipeline, logs)
    for log in logs:
        outcomes.append(stage(pipeline, run, log))
        judge_all(pipeline, log)
        confirm(pipeline, log, Confirmation(run=run))
    return outcomes


def grown(pipeline: Pipeline, cycles: int, logs: list[str] = PAIR) -> Pipeline:
    for number in range(1, cycles + 1):
        land(pipeline, number * 10, 5, logs)
        cycle(pipeline, f"run-{number}", logs)
    return pipeline


def disk(pipeline: Pipeline) -> LocalStore:
    """Returns the first root of the pipeline's local copies."""
    assert pipeline.local
    return pipeline.local.roots[0]


def roots(pipeline: Pipeline) -> LocalRoots:
    assert pipeline.local
    return pipeline.local


def copied_files(pipeline: Pipeline) -> list[str]:
    return [entry.path for entry in roots(pipeline).list("", unfinished=True)]


def copies_of(pipeline: Pipeline, log: str = "items") -> list[str]:
    names = {CopyName.of(path) for path in copied_files(pipeline)}
    return sorted(str(name) for name in names if name and name.log == log)


def segments_here(pipeline: Pipeline) -> list[str]:
    return [path for path in copied_files(pipeline) if segment_of(path)]


def offered(pipeline: Pipeline, log: str = "items") -> tuple[int, ...]:
    state = pipeline.ledger(log).find()
    return snapshots_here(pipeline, state) if state else ()


def check_whole(pipeline: Pipeline) -> None:
    """Checks that every usable copy equals the primary, and every local segment has the primary's bytes."""
    for log in PAIR:
        for snapshot in offered(pipeline, log):
            assert rows_of(roots(pipeline).uri(f"{log}/{snapshot:010d}")) == snapshot_rows(pipeline, snapshot, log)
    for path in segments_here(pipeline):
        if path.endswith(".seg"):
            assert read_index(roots(pipeline), path)
            try:
                assert roots(pipeline).read(path) == pipeline.store.read(path)
            except NotFoundError:
                continue


class FailingDisk(FaultyStore):
    """A local disk on which any call may fail, including reads."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self._call():
            return super().read(path, start, length)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        with self._call():
            return super().list(folder, unfinished)

    def rename_folder(self, source: str, target: str) -> None:
        with self._call():
            super().rename_folder(source, target)


class FullDisk(LocalStore):
    """A disk that accepts the first bytes of a file and then no more."""

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        with super().create(path) as stream:
            yield cast(BinaryIO, _Full(stream))


class TidiedDisk(LocalStore):
    """A disk on which another process deletes a file of each copy, just before it gets its final name."""

    def rename_folder(self, source: str, target: str) -> None:
        self.delete([next(entry.path for entry in self.list(source) if entry.path.endswith(".parquet"))])
        super().rename_folder(source, target)


class _Full:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        self._stream.write(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def on(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, local: LocalStore) -> Pipeline:
    """Returns the pipeline with its local copies on that disk, also in the tasks of an ingest."""
    monkeypatch.setattr(parse, "LocalStore", lambda root, private: local)
    return replace(pipeline, local=LocalRoots([local]))


class RottenStore(LocalStore):
    """A primary store whose data files of snapshots change after they were written."""

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        if path.startswith("snapshots/") and path.endswith(".parquet"):
            self._spoil(path)
        with super().open(path) as stream:
            yield stream

    def _spoil(self, path: str) -> None:
        full = Path(self.uri(path))
        data = full.read_bytes()
        full.unlink()
        full.write_bytes(data[:-1] + b"?")
