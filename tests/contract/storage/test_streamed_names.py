"""No store must decide a race of two streams: a name that `Store.create` gets is never used twice. Promise I2."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from unittest import mock

from support.pipelines import ingest_and_publish, make_pipeline
from tidefold.compute.runners import in_threads
from tidefold.domain.snapshot.manifest import Layout
from tidefold.operations.restore.export import restore_to
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.storage.local_store import LocalStore

CONFIG = """\
version: 1
store: store
logs:
  items:
    key: [id]
    source: {format: csv, path: landing}
    order: [seq]
    columns: {id: int, text: string, seq: long}
"""


def live(folder: Path) -> set[str]:
    """Plays the same life each time. Returns the streamed names."""
    names: list[str] = []
    create, put, of_put = LocalStore.create, LocalStore.put_if_absent, threading.local()

    @contextmanager
    def record(store: LocalStore, path: str) -> Iterator[BinaryIO]:
        if not getattr(of_put, "is_running", False):
            names.append(path)
        with create(store, path) as stream:
            yield stream

    def leave_out(store: LocalStore, path: str, data: bytes) -> None:
        of_put.is_running = True
        try:
            put(store, path, data)
        finally:
            of_put.is_running = False

    (folder / "landing").mkdir(parents=True)
    watched = mock.patch.object(LocalStore, "create", record), mock.patch.object(LocalStore, "put_if_absent", leave_out)
    with watched[0], watched[1]:
        pipeline = make_pipeline(folder, CONFIG)
        for number in range(2):
            lines = [f"{i},{number},{number * 8 + i}" for i in range(8)]
            (folder / f"landing/{number}.csv").write_text("\n".join(["id,text,seq", *lines]))
            ingest_and_publish(pipeline, f"run-{number}")
        for layout in Layout:
            take_savepoint(pipeline, "items", SavepointRequest(str(folder / f"saved-{layout}"), layout=layout))
        restore_to(pipeline, "items", 1, str(folder / "exported"), None, in_threads())
    assert {Path(name).suffix for name in names} >= {".seg", ".parquet"}, names
    assert len(names) == len(set(names))
    return set(names)


def test_two_lives_with_the_same_input_stream_to_no_name_twice(tmp_path: Path) -> None:
    assert not live(tmp_path / "one") & live(tmp_path / "two")
