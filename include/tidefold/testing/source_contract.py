"""One behaviour suite for every source of one's own. Each test is a promise by which wrong rows cannot come unseen."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidefold.changelog.reader import ChangelogReader
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import Runner, in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quarantine.retry import retry
from tidefold.sources import api
from tidefold.testing.storage_contracts import read_orders, run_orders
from tidefold.wiring import open_pipeline

Begin = Callable[..., Pipeline]


class SourceContract:
    """What every source promises. A subclass says what it reads, and what must come of it.

    source: the class; None: tidefold brings the format that `lines` names.
    lines: those under `source` in a configuration, without `path`.
    log: the other lines of the log, such as `{"key": ["id"], "columns": {"id": "long"}}`.
    files: a feed, as files by name in the order in which they land; some record deletes a row.
    rows: those of the table.
    bad: the name and the content of one more file, whose records cannot be read.
    runner: runs the tasks.
    """

    source: type[Any] | None = None
    lines: Mapping[str, Any] = {"format": "custom", "name": "own"}
    log: Mapping[str, Any]
    files: Mapping[str, bytes]
    rows: Sequence[Mapping[str, Any]]
    bad: tuple[str, bytes]
    runner: Runner = staticmethod(in_process)

    @pytest.fixture
    def begin(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
        """Makes a pipeline with the log `orders` and an empty folder. Takes other lines of the log by name."""
        if self.source:
            point = SimpleNamespace(name="own", load=lambda: self.source)
            monkeypatch.setattr(api, "entry_points", lambda group: [point])

        def begin(**lines: Any) -> Pipeline:
            config = Path(tempfile.mkdtemp(dir=tmp_path)) / "tidefold.yaml"
            log = {**self.log, "quality": {"max_refused": 1}, "source": {**self.lines, "path": "landing"}, **lines}
            config.write_text(json.dumps({"version": 1, "store": "store", "logs": {"orders": log}}))
            return open_pipeline(config)

        return begin

    def take(self, pipeline: Pipeline, files: Mapping[str, bytes]) -> Outcome:
        """Lands files, and ingests what landed."""
        for name, content in files.items():
            path = Path(pipeline.log("orders").address, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return ingest(pipeline, ["orders"], self.runner)[0]

    def test_the_same_bytes_make_the_same_changes_and_rows(self, begin: Begin) -> None:
        one, other = begin(), begin()
        self.take(one, self.files), self.take(other, self.files)
        assert _read(one) == _read(other)
        self.check_rows(one)

    @pytest.mark.parametrize("parts", [1, 3])
    def test_files_that_grow_and_come_twice_make_the_same_rows(self, begin: Begin, parts: int) -> None:
        pipeline = begin()
        for name, content in self.files.items():
            for part in range(1, parts + 1):
                self.take(pipeline, {name: content[: len(content) * part // parts - (part < parts)]})
        self.take(pipeline, {f"again/{name}": content for name, content in self.files.items()})
        self.check_rows(pipeline)

    def test_a_record_that_cannot_be_read_is_refused_and_stays_so(self, begin: Begin) -> None:
        pipeline = begin()
        self.take(pipeline, self.files)
        before = _read(pipeline)
        assert self.take(pipeline, dict([self.bad])).facts["refused"]
        assert retry(pipeline, "orders").error is None
        assert _read(pipeline) == before

    @pytest.mark.parametrize(("deletes", "counts"), [("ignore", "ignored"), ("quarantine", "quarantined")])
    def test_deletes_follow_the_log(self, begin: Begin, deletes: str, counts: str) -> None:
        usual, pipeline = begin(), begin(merge={"engine": "last", "deletes": deletes})
        self.take(usual, self.files), self.take(pipeline, self.files)
        gone = [change for change in _read(usual) if change["_op"] == DELETE]
        assert gone, "No record of `files` deletes a row."
        assert all(change["_op"] != DELETE for change in _read(pipeline))
        assert sum(getattr(file, counts) for file in pipeline.ledger("orders").read().landed) >= len(gone)

    def check_rows(self, pipeline: Pipeline) -> None:
        """Publishes the log, and compares the rows of the table."""
        run_orders(pipeline, "run-1")
        rows = [{name: row[name] for name in self.log["columns"]} for row in read_orders(pipeline)]
        assert sorted(rows, key=repr) == sorted(self.rows, key=repr)


def _read(pipeline: Pipeline) -> list[dict[str, Any]]:
    return [change for table in ChangelogReader(pipeline.store, "orders").tables() for change in table.to_pylist()]
