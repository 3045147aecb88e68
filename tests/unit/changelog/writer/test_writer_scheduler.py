"""Batches, thresholds, back-pressure and the end. Requirement C3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from support.writing import SHAPE, FakeTimer, InlineExecutor, ManualExecutor, rows
from tidefold.changelog.segment import WrittenChangeSet
from tidefold.changelog.writer.rows_to_arrow import change_table
from tidefold.changelog.writer.settings import Metrics, WriterSettings
from tidefold.changelog.writer.upload_scheduler import Uploaded, UploadPart, UploadScheduler, UploadTask
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSetLocation
from tidefold.errors import InvalidInputError, RefusedError, StorageError


class Probe:
    """An uploader that keeps what it is given. `before` runs in each upload."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.segments: list[list[tuple[str, int]]] = []
        self.discarded: list[Sequence[Uploaded]] = []
        self.before = before

    def upload(self, parts: Sequence[UploadPart]) -> list[Uploaded]:
        self.before()
        self.segments.append([(part.log, part.place) for part in parts])
        path = f"{len(self.segments)}.seg"
        return [
            Uploaded(WrittenChangeSet(p.log, ChangeSetLocation(path, i, 0, 1, "00"), 1, KeyGroups(0, 0)), p.place)
            for i, p in enumerate(parts)
        ]

    def discard(self, uploaded: Sequence[Uploaded]) -> None:
        self.discarded.append(uploaded)


class Asker:
    """Makes tasks and keeps their answers."""

    def __init__(self) -> None:
        self.done: list[list[tuple[str, int]]] = []
        self.failed: list[Exception] = []

    def task(self, log: str, *places: int, size: int = 10) -> UploadTask:
        parts = tuple(UploadPart(log, place, SHAPE, 0, change_table(rows(1), SHAPE, place, 0)) for place in places)
        return UploadTask(parts, size, self._done, self.failed.append)

    def _done(self, uploaded: Sequence[Uploaded]) -> None:
        self.done.append([(one.log, one.place) for one in uploaded])


@pytest.fixture
def timer() -> FakeTimer:
    return FakeTimer()


@pytest.fixture
def asker() -> Asker:
    return Asker()


def make(probe: Probe, timer: FakeTimer, executor: Executor | None = None, **settings: object) -> UploadScheduler:
    plain = {
        "persist_delay": 1.0,
        "batch_bytes": 100,
        "max_bytes_in_flight": 1000,
        "attempts": 1,
        "attempt_timeout": 0.0,
    }
    return UploadScheduler(
        probe,
        WriterSettings(**{**plain, **settings}),  # type: ignore[arg-type]
        executor or InlineExecutor(),
        timer,
        Metrics(),
    )


def test_without_a_delay_each_task_goes_at_once(timer: FakeTimer, asker: Asker) -> None:
    probe = Probe()
    scheduler = make(probe, timer, persist_delay=0.0)
    scheduler.submit(asker.task("a", 0))
    scheduler.submit(asker.task("a", 1))
    assert probe.segments == [[("a", 0)], [("a", 1)]]


def test_a_full_batch_goes_before_its_delay(timer: FakeTimer, asker: Asker) -> None:
    """C3: size threshold."""
    probe = Probe()
    scheduler = make(probe, timer)
    for place in range(9):
        scheduler.submit(asker.task("a", place))
    assert probe.segments == []
    scheduler.submit(asker.task("a", 9))
    assert len(probe.segments) == 1
    timer.move(10.0)
    assert len(probe.segments) == 1
    assert timer.calls == []


def test_a_batch_goes_after_the_delay_of_its_oldest_task(timer: FakeTimer, asker: Asker) -> None:
    """C3: persist delay."""
    probe = Probe()
    scheduler = make(probe, timer)
    scheduler.submit(asker.task("a", 0))
    timer.move(0.9)
    scheduler.submit(asker.task("a", 1))
    assert probe.segments == []
    timer.move(0.1)
    assert probe.segments == [[("a", 0), ("a", 1)]]
    scheduler.submit(asker.task("a", 2))
    timer.move(0.9)
    assert len(probe.segments) == 1
    timer.move(0.1)
    assert len(probe.segments) == 2


def test_one_segment_holds_many_logs_sorted_and_each_gets_its_own_answer(timer: FakeTimer, asker: Asker) -> None:
    """C2, C3."""
    probe = Probe()
    scheduler = make(probe, timer)
    scheduler.submit(asker.task("b", 5, 7))
    scheduler.submit(asker.task("a", 3))
    scheduler.submit(asker.task("b", 2))
    scheduler.hurry()
    assert probe.segments == [[("a", 3), ("b", 2), ("b", 5), ("b", 7)]]
    assert asker.done == [[("b", 5), ("b", 7)], [("a", 3)], [("b", 2)]]


def test_five_hundred_logs_share_few_segments(timer: FakeTimer, asker: Asker) -> None:
    probe = Probe()
    scheduler = make(probe, timer, batch_bytes=1000, max_bytes_in_flight=10_000)
    for number in range(500):
        scheduler.submit(asker.task(f"log_{number:03d}", 0))
    scheduler.hurry()
    assert len(probe.segments) == 5
    assert len(asker.done) == 500


def test_while_tasks_are_collected_no_delay_ends(timer: FakeTimer, asker: Asker) -> None:
    """C3: a flush of many logs makes few segments, however long it takes."""
    probe = Probe()
    scheduler = make(probe, timer)
    with scheduler.collecting():
        scheduler.submit(asker.task("a", 0))
        timer.move(5.0)
        scheduler.submit(asker.task("b", 0))
        assert probe.segments == []
        for place in range(1, 10):
            scheduler.submit(asker.task("b", place))
        assert len(probe.segments) == 1  # Size ends it all the same.
    assert [len(segment) for segment in probe.segments] == [10, 1]


def test_nothing_waits_nothing_goes(timer: FakeTimer) -> None:
    probe = Probe()
    make(probe, timer).hurry()
    assert probe.segments == []


def test_a_failed_upload_fails_all_its_tasks(timer: FakeTimer, asker: Asker) -> None:
    def fail() -> None:
        raise StorageError("STORAGE", "full")

    scheduler = make(Probe(fail), timer)
    scheduler.submit(asker.task("a", 0))
    scheduler.submit(asker.task("b", 0))
    timer.move(1.0)
    assert len(asker.failed) == 2
    assert asker.done == []


def test_one_log_that_breaks_does_not_take_the_answer_from_others(timer: FakeTimer, asker: Asker) -> None:
    scheduler = make(Probe(), timer)
    broken = asker.task("a", 0)

    def odd(_: object) -> None:
        raise KeyError("odd")

    scheduler.submit(UploadTask(broken.parts, 10, odd, odd))
    scheduler.submit(asker.task("b", 0))
    timer.move(1.0)
    assert asker.done == [[("b", 0)]]


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_back_pressure_ends_with_an_upload(timer: FakeTimer, ends: str) -> None:
    """C3: who brings too much is kept waiting, and woken when an upload ends, also when it fails."""
    gate, asker = threading.Event(), Asker()

    def wait() -> None:
        gate.wait(30)
        if ends == "badly":
            raise StorageError("STORAGE", "full")

    probe = Probe(wait)
    with ThreadPoolExecutor(1) as uploads, ThreadPoolExecutor(1) as appender:
        scheduler = make(probe, timer, uploads, persist_delay=0.0, max_bytes_in_flight=100)
        scheduler.submit(asker.task("a", 0, size=100))
        second = appender.submit(scheduler.submit, asker.task("a", 1, size=1))
        assert not second.done()
        assert scheduler._queue() == (0, 100)
        gate.set()
        second.result(30)
    assert len(asker.done if ends == "well" else asker.failed) == 2
    assert scheduler._queue() == (0, 0)


def test_who_waits_stays_out_while_nothing_ended(timer: FakeTimer, asker: Asker) -> None:
    """C3: the room is counted in bytes in memory; a task larger than all of it goes alone."""
    executor = ManualExecutor()
    scheduler = make(Probe(), timer, executor, persist_delay=0.0, max_bytes_in_flight=100)
    scheduler.submit(asker.task("a", 0, size=5000))
    waited = threading.Thread(target=scheduler.submit, args=[asker.task("a", 1)], daemon=True)
    waited.start()
    waited.join(0.0)
    assert scheduler._queue()[1] == 5000
    executor.run()  # The upload ends, and with it the wait.
    waited.join(30)
    assert not waited.is_alive()
    executor.run()
    assert asker.done == [[("a", 0)], [("a", 1)]]


def test_closing_wakes_who_waits_and_fails_his_task(timer: FakeTimer, asker: Asker) -> None:
    executor = ManualExecutor()
    scheduler = make(Probe(), timer, executor, persist_delay=0.0, max_bytes_in_flight=100, close_timeout=0.0)
    scheduler.submit(asker.task("a", 0, size=100))
    with ThreadPoolExecutor(1) as appender:
        second = appender.submit(scheduler.submit, asker.task("a", 1))
        scheduler.close()
        with pytest.raises(RefusedError):
            second.result(30)
    assert [type(error) for error in asker.failed] == [RefusedError]


def test_an_interrupted_wait_fails_the_task(timer: FakeTimer, asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make(Probe(), timer)

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler._changed, "wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        scheduler.submit(asker.task("a", 0))
    assert [error.code for error in asker.failed] == ["WRITER_INTERRUPTED"]  # type: ignore[attr-defined]
    assert scheduler._queue() == (0, 0)


def test_closing_fails_what_was_not_sent_and_takes_no_more(timer: FakeTimer, asker: Asker) -> None:
    probe = Probe()
    scheduler = make(probe, timer)
    scheduler.submit(asker.task("a", 0))
    scheduler.close()
    with pytest.raises(RefusedError):
        scheduler.submit(asker.task("a", 1))
    assert len(asker.failed) == 2
    assert (probe.segments, timer.calls) == ([], [])
    assert scheduler._queue() == (0, 0)


def test_closing_waits_for_running_uploads(timer: FakeTimer, asker: Asker) -> None:
    gate = threading.Event()
    with ThreadPoolExecutor(1) as uploads, ThreadPoolExecutor(1) as closer:
        scheduler = make(Probe(lambda: gate.wait(30) and None), timer, uploads, persist_delay=0.0)
        scheduler.submit(asker.task("a", 0))
        closing = closer.submit(scheduler.close)
        assert not closing.done()
        gate.set()
        closing.result(30)
    assert asker.done == [[("a", 0)]]


def test_an_executor_that_takes_no_more_work_fails_the_batch(timer: FakeTimer, asker: Asker) -> None:
    executor = ManualExecutor()
    executor.down = True
    scheduler = make(Probe(), timer, executor, persist_delay=0.0)
    scheduler.submit(asker.task("a", 0))
    assert len(asker.failed) == 1
    assert scheduler._queue() == (0, 0)


def test_a_late_attempt_is_discarded_and_its_tasks_answered_once(timer: FakeTimer, asker: Asker) -> None:
    """C3: a timed-out attempt's late success does not count twice."""
    waits = iter([lambda: timer.move(5.0), lambda: None])
    probe = Probe(lambda: next(waits)())
    scheduler = make(probe, timer, persist_delay=0.0, attempts=2, attempt_timeout=2.0)
    scheduler.submit(asker.task("a", 0))
    assert asker.done == [[("a", 0)]]
    assert len(probe.segments) == 2
    assert [one[0].place for one in probe.discarded] == [0]
    assert scheduler._queue() == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"},
        {"name": ""},
        {"attempts": 0},
        {"threads": 0},
        {"log_bytes": 0},
        {"persist_delay": -1.0},
        {"batch_bytes": 11, "max_bytes_in_flight": 10},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError) as error:
        WriterSettings(**wrong)  # type: ignore[arg-type]
    assert error.value.code == "WRITER_SETTING"
