"""Commit times: how they are told and named, and what is known of several together."""

from __future__ import annotations

import pytest

from tidefold.domain.commit_times import (
    NEVER,
    CommitTimeRange,
    format_instant,
    latest_commit_time,
    merge_ranges,
    micros,
    next_second,
    tag_of,
)

MIDNIGHT = micros("2026-11-05T00:00:00Z")


@pytest.mark.parametrize(
    ("at", "text", "tag"),
    [
        (MIDNIGHT, "2026-11-05T00:00:00Z", "as-of-2026-11-05"),
        (MIDNIGHT + 23_400_000_000, "2026-11-05T06:30:00Z", "as-of-2026-11-05T06-30-00"),
        (MIDNIGHT + 1, "2026-11-05T00:00:00.000001Z", "as-of-2026-11-05T00-00-00.000001"),
    ],
)
def test_an_instant_has_one_text_and_one_tag(at: int, text: str, tag: str) -> None:
    assert (format_instant(at), tag_of(at), micros(text)) == (text, tag, at)


@pytest.mark.parametrize("text", ["", "soon", "2026-11-05", "2026-11-05T00:00:00"])
def test_without_a_zone_it_is_no_instant(text: str) -> None:
    assert micros(text) == NEVER


def test_seconds_are_rounded_up() -> None:
    assert [next_second(at) for at in (0, 1, 1_000_000, 1_000_001)] == [0, 1_000_000, 1_000_000, 2_000_000]


def test_what_is_not_known_of_one_is_not_known_of_all() -> None:
    assert merge_ranges(
        [CommitTimeRange(3, 5), CommitTimeRange(1, 2, 1), CommitTimeRange(None, None, 2)]
    ) == CommitTimeRange(1, 5, 3)
    assert merge_ranges([CommitTimeRange(3, 5), None]) is None
    assert latest_commit_time([7], [CommitTimeRange(3, 5)]) == 7
    assert latest_commit_time([], [CommitTimeRange(3, 5)]) == 5
    assert latest_commit_time([None], [CommitTimeRange(3, 5)]) is None
    assert latest_commit_time([7], [None]) is None
    assert latest_commit_time([7], [CommitTimeRange(3, 5, 1)]) == NEVER
    assert latest_commit_time([], []) is None
