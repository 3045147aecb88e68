"""One uploader for both ways in: attempts, limits and metrics of landed files and of programs that write (C3, C4)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from deltalake import DeltaTable

from support.landing import fold_waiting, land, make_landing, record, take
from support.pipelines import judge_all
from tidefold.changelog.writer.retry import run_attempts
from tidefold.changelog.writer.settings import Metrics
from tidefold.compute.runners import in_process
from tidefold.domain.paths import LogPaths
from tidefold.domain.uploads import NO_UPLOADS, RetryPolicy, UploadTotals
from tidefold.errors import RefusedError, StorageError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest import parse
from tidefold.operations.ingest.parse import _limit_in_flight
from tidefold.operations.ingest.write_changes import configure_writer, write_changes
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline
from tidefold_airflow.observability.metrics import of_outcomes, of_status

ROOT = Path(__file__).parents[4]
LOG = "items"
WRITTEN = """
version: 1
store: store
uploads: {uploads}
logs:
  orders: {{order: arrival, key: [id], columns: {{id: long, item: string, amount: long}}}}
"""


class Breaking(LocalStore):
    """Fails the next `left` new files."""

    def __init__(self, root: Path, left: list[int]) -> None:
        super().__init__(root)
        self._left = left

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        if self._left[0]:
            self._left[0] -= 1
            raise StorageError("STORAGE", "the store is busy")
        with super().create(path) as stream:
            yield stream


def configure(folder: Path, uploads: str) -> None:
    config = folder / "tidefold.yaml"
    config.write_text(config.read_text() + f"uploads: {uploads}\n")


def break_tasks(monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, times: int) -> list[int]:
    left = [times]
    monkeypatch.setattr(parse, "open_store", lambda address, base: Breaking(Path(address), left))
    return left


@pytest.fixture
def landed(tmp_path: Path) -> Pipeline:
    make_landing(tmp_path)
    configure(tmp_path, "{attempts: 3, retry_delay: 0}")
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    land(tmp_path, 0, [record(offset, offset) for offset in range(20)])
    return pipeline


def test_an_ingest_tries_an_upload_again(landed: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    left = break_tasks(monkeypatch, landed, 2)
    outcome = take(landed)
    assert (outcome.status, outcome.facts["changes"], left) == ("taken", 20, [0])
    uploads = status(landed, [LOG])[0].uploads
    assert uploads is not None
    assert (uploads.segments, uploads.failures) == (1, 2)
    assert uploads.bytes > 0
    assert outcome.facts["uploads"]["failures"] == 2
    assert (dict(uploads.attempts), dict(uploads.batch), dict(uploads.queue)) == ({"3": 1}, {"1": 1}, {"0": 1})
    assert sum(uploads.latency_ms.values()) == 1
    assert dict(uploads.size) == {"65536" if uploads.bytes > 4096 else "4096": 1}
    segments = [e.path for e in landed.store.list("changelog", unfinished=True)]
    assert len(segments) == 1


def test_an_ingest_gives_up_after_the_last_attempt(landed: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    left = break_tasks(monkeypatch, landed, 3)
    outcome = take(landed)
    assert (outcome.error_code, left) == ("STORAGE", [0])
    assert landed.store.list("changelog", unfinished=True) == []
    assert take(landed).facts["changes"] == 20


def pipeline_bytes(pipeline: Pipeline) -> int:
    return sum(change_set.location.length for change_set in pipeline.ledger(LOG).read().change_sets)


def test_totals_add_up_over_runs_and_reach_airflow(landed: Pipeline, tmp_path: Path) -> None:
    first = take(landed)
    land(tmp_path, 20, [record(offset, offset) for offset in range(20, 40)])
    second = take(landed)
    [found] = status(landed, [LOG])
    assert found.uploads is not None
    assert found.uploads.segments == 2
    sent = {g.name: g.value for g in of_status([found], datetime(2026, 1, 1, tzinfo=UTC))}
    assert sent["uploads.segments"] == 2
    assert (sent["uploads.attempts.1"], sent["uploads.batch.1"], sent["uploads.queue.0"]) == (2, 2, 2)
    waiting = pipeline_bytes(landed)
    assert (found.change_bytes, sent["lag.bytes"]) == (waiting, waiting)
    assert sent["uploads.bytes"] == waiting
    assert sent["uploads.bytes"] == sum(one.facts["uploads"]["bytes"] for one in (first, second))
    assert {g.name for g in of_outcomes("ingest", [second])} >= {"ingest.uploads.segments", "ingest.uploads.seconds"}


def test_what_is_in_flight_is_limited() -> None:
    """Back-pressure: the tasks are read and uploaded in groups, one after the other; a larger task goes alone."""
    tasks: Any = [SimpleNamespace(weight=weight) for weight in (5, 4, 3, 9, 1)]
    groups = [[task.weight for task in group] for group in _limit_in_flight(tasks, 9)]
    assert groups == [[5, 4], [3], [9], [1]]
    assert [len(group) for group in _limit_in_flight(tasks, None)] == [5]


def test_an_attempt_that_takes_too_long_gets_another_beside_it_and_is_discarded() -> None:
    """The executor of the writer, with time-outs, for an upload that somebody waits for."""
    first, late, lock = threading.Event(), threading.Event(), threading.Lock()
    begun: list[int] = []
    discarded: list[int] = []

    def act() -> int:
        with lock:
            begun.append(len(begun) + 1)
            number = begun[-1]
        if number == 1:
            first.wait(20)
        return number

    def discard(result: int) -> None:
        discarded.append(result)
        late.set()

    assert run_attempts(RetryPolicy(2, 0.05, 0.0), act, discard, Metrics()) == 2
    first.set()
    assert late.wait(20)
    assert discarded == [1]


def test_an_error_that_will_not_pass_is_raised_at_once() -> None:
    metrics = Metrics()

    def act() -> int:
        raise RefusedError("NO", "never")

    with pytest.raises(RefusedError):
        run_attempts(RetryPolicy(5, 0.0, 0.0), act, print, metrics)
    assert (metrics.read().uploads, metrics.read().failures) == (1, 1)


# Programs that write


def make_written(folder: Path, uploads: str = "{}") -> Pipeline:
    (folder / "tidefold.yaml").write_text(WRITTEN.format(uploads=uploads))
    return open_pipeline(folder / "tidefold.yaml")


def orders(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "item": "tea", "amount": i} for i in range(count)]


def test_a_writer_has_the_limits_of_the_configuration(tmp_path: Path) -> None:
    given = "{batch: 1kB, delay: 2, attempts: 7, retry_delay: 3, attempt_timeout: 4, in_flight: 9kB, threads: 5, "
    given += "early: 1MB, compress: false}"
    found = configure_writer(make_written(tmp_path, given), "shop")
    assert (found.name, found.batch_bytes, found.persist_delay, found.attempts) == ("shop", 1000, 2, 7)
    assert (found.log_bytes, found.compress) == (1_000_000, False)
    assert (found.retry_delay, found.attempt_timeout, found.max_bytes_in_flight, found.threads) == (3, 4, 9000, 5)


def test_a_write_that_is_repeated_continues_where_the_log_is(tmp_path: Path) -> None:
    pipeline = make_written(tmp_path)
    asked: list[int] = []

    def read(offset: int) -> Iterator[Any]:
        asked.append(offset)
        yield from orders(50)[offset:]

    first = write_changes(pipeline, "orders", read)
    again = write_changes(pipeline, "orders", read)
    assert (first.status, first.facts["changes"], first.facts["uploads"]["segments"]) == ("taken", 50, 1)
    assert (again.status, again.facts["offset"], asked) == ("nothing", 50, [0, 50])
    [found] = status(pipeline, ["orders"])
    assert found.changes == 50
    assert found.uploads
    assert found.uploads.segments == 1
    assert (dict(found.uploads.attempts), dict(found.uploads.batch)) == ({"1": 1}, {"1": 1})
    assert first.facts["uploads"]["attempts"] == {"1": 1}, "the part of this call"
    assert again.facts["uploads"]["attempts"] == {}


def test_an_error_of_the_function_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    pipeline = make_written(tmp_path)

    def read(offset: int) -> Iterator[Any]:
        yield orders(10)
        raise ConnectionError("the database went away")

    with pytest.raises(ConnectionError):
        write_changes(pipeline, "orders", read)
    assert pipeline.ledger("orders").find() is None
    assert [e.path for e in pipeline.store.list("changelog") if e.path.endswith(".seg")] == []


def test_a_failed_attempt_of_a_writer_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_written(tmp_path, "{retry_delay: 0}")
    left, create = [1], LocalStore.create

    def create_segment(self: LocalStore, path: str) -> Any:
        if path.endswith(".seg") and left[0]:
            left[0] -= 1
            raise StorageError("STORAGE", "the store is busy")
        return create(self, path)

    monkeypatch.setattr(LocalStore, "create", create_segment)
    outcome = write_changes(pipeline, "orders", lambda offset: orders(10)[offset:])
    assert (outcome.facts["uploads"]["segments"], outcome.facts["uploads"]["failures"], left) == (1, 1, [0])
    assert outcome.facts["uploads"]["attempts"] == {"2": 1}


def test_histograms_add_up_and_are_taken_apart() -> None:
    """C4: fixed buckets, so that the uploads of all processes are one distribution."""
    made = [UploadTotals.of_upload(size, size % 4, size / 7, size % 9, size % 70) for size in range(0, 1 << 16, 999)]
    total = sum(made, NO_UPLOADS)
    for name in ("latency_ms", "size", "attempts", "batch", "queue"):
        assert sum(getattr(total, name).values()) == len(made)
    assert total - sum(made[5:], NO_UPLOADS) == sum(made[:5], NO_UPLOADS)
    for attempts, bucket in ((1, "1"), (2, "2"), (4, "5"), (10, "10"), (11, "more")):
        assert UploadTotals.of_upload(1, attempts - 1, 0.0, 1, 0).attempts == {bucket: 1}


def test_materializations_are_counted_with_their_duration(landed: Pipeline, tmp_path: Path) -> None:
    """C4: Flink's started, completed and failed materializations, and the duration of the last."""
    take(landed)
    fold_waiting(landed, "one")
    land(tmp_path, 20, [record(20, 20)])
    take(landed)
    assert materialize(landed, [LOG], Fold("two"), in_process)[0].status == "staged"
    abort(landed, LOG, "not wanted")
    fold_waiting(landed, "three")
    land(tmp_path, 21, [record(21, 21)])
    take(landed)
    materialize(landed, [LOG], Fold("four"), in_process)
    [found] = status(landed, [LOG])
    made = found.materializations
    assert (made.started, made.completed, made.failed) == (4, 2, 1)
    sent = {g.name: g.value for g in of_status([found], datetime(2026, 1, 1, tzinfo=UTC))}
    assert sent["materializations.failed"] == 1
    assert sent["materializations.seconds"] == made.seconds >= 0


def test_a_log_of_landed_files_is_not_for_programs(landed: Pipeline) -> None:
    with pytest.raises(RefusedError) as refused:
        write_changes(landed, LOG, lambda offset: [])
    assert refused.value.code == "LOG_HAS_SOURCE"


def test_the_example_program_writes_and_its_log_is_published(tmp_path: Path) -> None:
    pipeline = make_written(tmp_path)
    program = ROOT / "docs/examples/write_orders.py"
    call = [sys.executable, str(program), str(tmp_path / "tidefold.yaml")]
    done = subprocess.run(call, env={"PYTHONPATH": str(ROOT / "include")}, capture_output=True, text=True, check=True)
    assert done.stdout == "5 changes in 1 upload; shop continues at 5\n"
    materialize(pipeline, ["orders"], Fold("run-1"), in_process)
    judge_all(pipeline, "orders")
    confirm(pipeline, "orders")
    table = DeltaTable(pipeline.store.uri(LogPaths("orders").table)).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in table) == [1, 3]
    assert sum(row["amount"] for row in table) == 8
