"""A cancelled run closes the files that it was writing, and says so, as Flink does for a cancelled snapshot. N6."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.pipelines import make_pipeline, put
from tidefold.compute.runners import in_process, in_threads
from tidefold.delta.data_files import write_data_file
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import cancellation, open_store

SCHEMA = pa.schema([pa.field("id", pa.int64())])
BATCH = pa.record_batch([pa.array(range(262_144), pa.int64())], schema=SCHEMA)


def test_a_cancelled_run_closes_and_deletes_the_files_of_its_other_threads(tmp_path: Path) -> None:
    """N6: at once, not when their rows end. The next write of the process works."""
    store, half_written = open_store("store", tmp_path), threading.Event()

    def rows() -> Iterator[pa.RecordBatch]:
        yield BATCH
        assert store.list("", unfinished=True), "the file is open"
        half_written.set()
        while not cancellation._cancelled.wait(0.01):
            pass
        for _ in range(3):
            yield BATCH

    def work(task: str) -> str:
        if task == "interrupted":
            half_written.wait()
            raise KeyboardInterrupt
        write_data_file(store, "t", DataFileName(KeyGroups(0, 3), 1, 1, "0" * 32, "aa"), rows(), SCHEMA)
        return ""

    with pytest.raises(KeyboardInterrupt):
        in_threads()(work, ["interrupted", "writes"])
    assert store.list("", unfinished=True) == []
    name = DataFileName(KeyGroups(0, 3), 1, 1, "1" * 32, "aa")
    assert write_data_file(store, "t", name, [BATCH], SCHEMA)


def test_a_cancelled_snapshot_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = make_pipeline(tmp_path)
    put(pipeline, [{"id": 1, "text": "a"}])

    def interrupt(work: Any, tasks: Any) -> Any:
        raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        materialize(pipeline, ["accounts"], Fold("run-1"), interrupt)
    assert "accounts: snapshot 1 was cancelled." in caplog.text
    # The run may be repeated.
    [again] = materialize(pipeline, ["accounts"], Fold("run-1"), in_process)
    assert again.status == "staged"
