"""How long a client of S3 waits during an outage. The clock and the random numbers are given: nobody sleeps."""

from __future__ import annotations

import logging

import pytest

from tidefold import interruption
from tidefold.storage import outage as outages
from tidefold.storage.outage import FIRST_PATIENCE, PATIENCE, TEST_PATIENCE, Outage, find_patience, trying_addresses


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def outlast(outage: Outage, clock: Clock, seconds: float = float("inf")) -> list[float]:
    """Fails one request again and again. Returns the pauses until the patience ends, or so many seconds passed."""
    pauses: list[float] = []
    began = outage.begin_request()
    while clock.now - began < seconds:
        pause = outage.choose_pause(began, len(pauses) + 1, "SlowDown")
        if pause is None:
            break
        pauses.append(pause)
        clock.now += max(pause, 0.001)
    return pauses


def test_an_outage_of_minutes_is_outlasted_with_pauses_that_grow_to_a_bound() -> None:
    clock = Clock()
    outage = Outage(PATIENCE, clock, draw=lambda: 1.0)
    outage.end()
    pauses = outlast(outage, clock)
    assert pauses[:7] == [0.5, 1, 2, 4, 8, 16, 20]
    assert max(pauses) == 20
    assert sum(pauses) == PATIENCE


def test_pauses_are_random_so_that_clients_do_not_come_back_together() -> None:
    clock, drawn = Clock(), iter([0.0, 0.5, 0.25, 1.0])
    outage = Outage(PATIENCE, clock, draw=lambda: next(drawn))
    outage.end()
    began = outage.begin_request()
    assert [outage.choose_pause(began, tries, "") for tries in (1, 2, 3, 4)] == [0, 0.5, 0.5, 4]


def test_an_address_that_never_answered_is_given_up_earlier() -> None:
    clock = Clock()
    assert sum(outlast(Outage(PATIENCE, clock, draw=lambda: 1.0), clock)) == FIRST_PATIENCE


def test_a_test_of_an_address_gives_up_much_earlier_but_not_on_a_store_that_answered() -> None:
    clock = Clock()
    with trying_addresses():
        assert sum(outlast(Outage(PATIENCE, clock, draw=lambda: 1.0), clock)) == TEST_PATIENCE
        outage = Outage(PATIENCE, clock, draw=lambda: 1.0)
        outage.end()
        assert sum(outlast(outage, clock)) == PATIENCE
    assert sum(outlast(Outage(PATIENCE, clock, draw=lambda: 1.0), clock)) == FIRST_PATIENCE


def test_who_interrupts_the_process_ends_the_waits_of_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "_interruption", interruption._Interruption())
    assert not outages.wait(0)
    interruption.interrupt()
    assert outages.wait(3600)


def test_an_answer_to_any_request_ends_the_outage() -> None:
    clock = Clock()
    outage = Outage(PATIENCE, clock, draw=lambda: 1.0)
    outage.end()
    outlast(outage, clock, PATIENCE - 10)
    outage.end()
    assert sum(outlast(outage, clock)) == PATIENCE


def test_one_request_that_always_fails_ends_although_others_succeed() -> None:
    clock = Clock()
    outage = Outage(PATIENCE, clock, draw=lambda: 1.0)
    began, tries = outage.begin_request(), 0
    while outage.choose_pause(began, tries := tries + 1, "InternalError") is not None:
        clock.now += 10
        outage.end()
    assert clock.now - began == PATIENCE


def test_after_an_outage_that_was_too_long_the_next_request_does_not_wait_again() -> None:
    clock = Clock()
    outage = Outage(PATIENCE, clock, draw=lambda: 1.0)
    outage.end()
    outlast(outage, clock)
    assert outlast(outage, clock) == []


def test_an_outage_is_reported_after_seconds_and_then_a_few_times_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(PATIENCE, clock, draw=lambda: 1.0)
    outage.end()
    with caplog.at_level(logging.WARNING):
        outlast(outage, clock, 3)
        assert caplog.messages == []
        outlast(outage, clock, 5)
        assert caplog.messages == ["S3 has failed for 4 s (SlowDown). The request is sent again for 296 s more."]
        outlast(outage, clock, 60)
        assert 3 <= len(caplog.messages) <= 6
        outage.end()
        clock.now += 60
        caplog.clear()
        outlast(outage, clock, 5)
    assert len(caplog.messages) == 1, "of the next outage"


def test_many_requests_of_which_some_succeed_are_no_line_each(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(PATIENCE, clock, draw=lambda: 1.0)
    began = outage.begin_request()
    for tries in range(1, 60):
        clock.now += 1
        outage.end()
        outage.choose_pause(began, tries, "SlowDown")
    assert 3 <= len(caplog.messages) <= 5


def test_a_request_that_waited_long_for_its_answer_is_reported_when_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(PATIENCE, clock, draw=lambda: 0.0)
    outage.end()
    began = outage.begin_request()
    clock.now += 60
    with caplog.at_level(logging.WARNING):
        outage.choose_pause(began, 1, "no answer")
    assert caplog.messages == ["S3 has failed for 60 s (no answer). The request is sent again for 240 s more."]


def test_a_first_request_that_gets_no_answer_is_reported_while_it_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: a server that accepts and never answers led to a silence of a minute."""
    monkeypatch.setattr(outages, "_FIRST_LINE_SECONDS", 0.02)
    outage = Outage()
    for _ in range(2):
        with outage.tell_silence():
            outages.wait(0.2)
    assert caplog.messages == ["S3 has not answered for 0 s. The request waits."]
    caplog.clear()
    outage.end()
    with outage.tell_silence():
        outages.wait(0.2)
    assert caplog.messages == []


def test_a_number_of_attempts_replaces_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    assert find_patience() == 0
    clock = Clock()
    assert outlast(Outage(find_patience(), clock), clock) == []
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    assert find_patience() == PATIENCE
