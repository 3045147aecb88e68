"""A scrub's rounds: over enough runs every file is read, each run within its bound."""

from __future__ import annotations

import math
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidefold.domain.verify.proof_record import (
    ProofRecord,
    ScrubBudget,
    choose_files,
    is_old,
    place_on_ring,
    record_scrub,
    record_verify,
)
from tidefold.errors import InvalidInputError
from tidefold.operations.verify.scrub import parse_budget

SIZES = st.dictionaries(st.text("abcdef", min_size=1, max_size=6), st.integers(0, 1000), max_size=40)
SHARES = st.floats(0.01, 1)


def run(
    record: ProofRecord, sizes: dict[str, int], budget: int, damaged: Collection[str] = ()
) -> tuple[ProofRecord, frozenset[str]]:
    choice = choose_files(sizes, record.position, budget, record.damaged)
    return record_scrub(record, choice, sizes, damaged, "2026-11-22T00:00:00+00:00"), choice.names


@given(SIZES, SHARES)
def test_every_file_is_read_in_a_round_of_as_many_runs_as_the_share_says(sizes: dict[str, int], share: float) -> None:
    budget = ScrubBudget(share).of(sum(sizes.values()))
    record, read, runs = ProofRecord(), [], 0
    while not record.proved:
        record, names = run(record, sizes, budget)
        read += sorted(names)
        runs += 1
    assert sorted(read) == sorted(sizes)  # Each once.
    assert runs <= max(math.ceil(1 / share), 1) + len([s for s in sizes.values() if not s])
    assert (record.share, record.read_files, record.read_bytes) == (1.0, len(sizes), sum(sizes.values()))


@given(SIZES, st.integers(0, 2000), st.integers(0, 50))
def test_a_run_reads_less_than_its_budget_and_one_file(sizes: dict[str, int], budget: int, runs: int) -> None:
    record = ProofRecord()
    for _ in range(runs % 5 + 1):
        record, names = run(record, sizes, budget)
        assert bool(names) == bool(sizes)
        assert sum(sizes[n] for n in names) < max(budget, 1) + max((sizes[n] for n in names), default=0)


@given(SIZES, SHARES, st.lists(SIZES, min_size=1, max_size=30), st.data())
def test_a_file_that_is_there_for_a_whole_round_is_read_in_it_whatever_comes_and_goes(
    stays: dict[str, int], share: float, others: list[dict[str, int]], data: st.DataObject
) -> None:
    """Files of others are added and removed between any two runs, also just behind the position."""
    record, read = ProofRecord(), set()
    for number in range(400):
        sizes = {**others[number % len(others)], **stays}
        record, names = run(record, sizes, ScrubBudget(share).of(sum(sizes.values())))
        read |= names
        if not record.position:
            break
    assert not record.position
    assert set(stays) <= read


@given(SIZES.filter(bool), SHARES, st.data())
def test_damaged_files_are_read_again_in_each_run_and_hold_the_proof_back(
    sizes: dict[str, int], share: float, data: st.DataObject
) -> None:
    bad = data.draw(st.sampled_from(sorted(sizes)))
    record = ProofRecord(damaged=(bad,))
    for _ in range(60):
        record, names = run(record, sizes, ScrubBudget(share).of(sum(sizes.values())), {bad})
        assert bad in names
        assert not record.proved
    mended, _ = run(record, sizes, sum(sizes.values()) + 1)
    assert mended.damaged == ()
    assert mended.proved


def test_a_verification_proves_everything_and_the_next_scrub_begins_a_round() -> None:
    sizes = {"a": 10, "b": 20}
    first, _ = run(ProofRecord(), sizes, 1)
    assert 0 < first.share < 1
    done = record_verify(first, sizes, (), "2026-11-23T00:00:00+00:00")
    assert (done.number, done.by, done.position, done.proved, done.share) == (2, "verify", "", done.instant, 1.0)
    assert record_verify(first, sizes, ("a",), "2026-11-23T00:00:00+00:00").proved == ""


def test_positions_are_spread_so_new_files_do_not_hold_the_round_in_one_place() -> None:
    """Names of new snapshots sort behind those of old ones of the same bucket: the ring does not follow that order."""
    names = [f"k00000-00015.s{i:010d}" for i in range(100)]
    assert sorted(names, key=place_on_ring) != names


def test_what_is_old_is_told_by_the_instants_alone() -> None:
    assert not is_old("2026-10-20T00:00:00+00:00", "2026-11-22T00:00:00+00:00")
    assert is_old("2026-10-10T00:00:00+00:00", "2026-11-22T00:00:00+00:00")


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), (" 100% ", 1.0), ("0.25", 0.25), ("12.5%", 0.125)])
def test_shares_are_read(text: str, share: float) -> None:
    assert parse_budget(text) == ScrubBudget(share)


@pytest.mark.parametrize(("text", "size"), [("500MB", 500_000_000), (" 2 GiB ", 2 << 30), ("1B", 1)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_budget(text) == ScrubBudget(bytes=size)


@pytest.mark.parametrize("text", ["0B", "", "%", "0%", "101%", "-5%", "1.1", "nan", "inf%", "five"])
def test_a_text_that_is_no_share_and_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="SCRUB_SHARE_INVALID"):
        parse_budget(text)
