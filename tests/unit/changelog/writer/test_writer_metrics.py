"""The writer's numbers. Requirement C4."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.writing import SHAPE, BreakingStore, FakeTimer, InlineExecutor, make_changelog, rows
from tidefold.changelog.writer.settings import Histogram, SampleDistribution
from tidefold.errors import StorageError


def test_an_empty_histogram_is_all_zero() -> None:
    assert Histogram().read() == SampleDistribution()


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
def test_percentiles_are_values_that_so_many_do_not_exceed(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    read = histogram.read()
    assert (read.count, read.low, read.high) == (len(values), min(values), max(values))
    for share, value in ((0.5, read.p50), (0.95, read.p95), (0.99, read.p99)):
        assert sum(v <= value for v in values) >= share * len(values)
        assert sum(v < value for v in values) < share * len(values)


def test_old_values_leave_the_window_and_stay_counted() -> None:
    histogram = Histogram()
    for value in range(1500):
        histogram.add(value)
    read = histogram.read()
    assert (read.count, read.low, read.high) == (1500, 500, 1499)


def test_every_number_of_a_writer() -> None:
    """C4: uploads, failures, latency, size, attempts, total attempts, batch size, queue size."""
    store, timer = BreakingStore(below="changelog/"), FakeTimer()
    changelog = make_changelog(
        store, timer=timer, settings={"persist_delay": 1.0, "attempts": 3, "retry_delay": 2.0, "attempt_timeout": 0.0}
    )
    a, b = changelog.log("a", SHAPE), changelog.log("b", SHAPE)
    a.append(rows(1, 2))
    b.append(rows(3))
    futures = [a.persist(0), b.persist(0)]
    waiting = changelog.metrics
    assert (waiting.queue_size, waiting.uploads) == (2, 0)
    assert waiting.bytes_in_flight > 0
    store.breaks("write", times=1)
    timer.move(1.0)
    assert (changelog.metrics.uploads, changelog.metrics.failures) == (1, 1)
    timer.move(2.0)
    read = changelog.metrics
    assert (read.uploads, read.failures, read.queue_size, read.bytes_in_flight) == (2, 1, 0, 0)
    assert (read.batch_size.count, read.batch_size.high) == (1, 2)
    assert (read.attempts.high, read.total_attempts.high) == (2, 2)
    assert read.size.high == sum(f.result(0).bytes for f in futures)
    assert (read.latency.count, read.latency.high) == (1, 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.uploads = 7  # type: ignore[misc]


def test_the_latency_is_the_time_of_the_upload() -> None:
    """C4."""
    timer = FakeTimer()

    class Slow(BreakingStore):
        def hit(self, at: str, path: str = "") -> bool:
            if at == "close" and path.startswith("changelog/"):
                timer.move(4.0)
            return super().hit(at, path)

    changelog = make_changelog(Slow(), timer=timer)
    changelog.log("a", SHAPE).append(rows(1))
    changelog.flush()
    assert changelog.metrics.latency.high == 4.0


def test_failures_are_counted_for_each_attempt() -> None:
    store = BreakingStore(below="changelog/")
    store.breaks("open")
    changelog = make_changelog(store, settings={"attempts": 4, "retry_delay": 0.0}, executor=InlineExecutor())
    log = changelog.log("a", SHAPE)
    log.append(rows(1))
    with pytest.raises(StorageError):
        log.flush()
    assert (changelog.metrics.uploads, changelog.metrics.failures) == (4, 4)
    assert changelog.metrics.attempts.count == 0
