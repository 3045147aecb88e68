"""The numbers of threads that transfer files are settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.pipelines import CONFIG, judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.delta import publish
from tidefold.operations.requests import Fold
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot import stage as stage_module
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import store
from tidefold.storage.local_copies import copies


def test_numbers_of_threads_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, set[int]] = {}

    def note(name: str) -> Any:
        def open_pool(threads: int) -> ThreadPoolExecutor:
            begun.setdefault(name, set()).add(threads)
            return ThreadPoolExecutor(threads)

        return open_pool

    for module in (stage_module, copies, publish, store):
        monkeypatch.setattr(module, "ThreadPoolExecutor", note(module.__name__.rsplit(".", 1)[1]))
    given = "store: store\nlocal: {mode: files, path: disk, threads: 3}\nsnapshots: {threads: 5}\n"
    given += "retention: {snapshots: 1, grace_versions: 1, threads: 6}\n"
    pipeline = make_pipeline(tmp_path, CONFIG.replace("store: store\n", given))
    for run in ("run-1", "run-2", "run-3"):
        put(pipeline, [{"id": i if run == "run-1" else 1, "text": run} for i in range(20)])
        materialize(pipeline, ["accounts"], Fold(run), in_process)
        judge_all(pipeline)
        confirm(pipeline, "accounts")
    subsume(pipeline, "accounts")
    truncate(pipeline, "accounts")
    assert begun["store"] == {6}
    assert begun["stage"] == {5}
    assert begun["copies"] == {3}
    assert 5 in begun["publish"]
