"""What a gate takes over from stored counts, and what it reads. Promise I8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidefold.delta.deletion_vectors import deletions
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Column, SnapshotKind, TableSpec
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import SourceProgress
from tidefold.quality.run import count_memory
from tidefold.quality.run.count_memory import (
    Counts,
    CountsDifferError,
    FileWork,
    ShareAnswer,
    ShareCounts,
    ShareWork,
    StoredCount,
    StoredCounts,
    Turn,
    add_counts,
    combine,
    identify,
    imply_count,
    key_of,
    measure_reuse,
    plan_counts,
)
from tidefold.quality.run.counts import ALL, Count

SHAPE = TableSpec(("id",), (Column("id", "long"),), "arrival", 16, 4)
BAD = Count("bad", columns=frozenset({"b"}))
COUNTS = (ALL, BAD)


def data_file(name: str, first: int = 0, gone: Sequence[int] = (), rows: int = 10) -> DataFile:
    vector = deletions(np.array(gone, np.uint64))
    return DataFile(name, 1, rows - len(gone), name * 8, KeyGroups(first, first + 3), "{}", deletions=vector)


def plan(before: Sequence[DataFile], now: Sequence[DataFile], duplicates: int = 0) -> ShareWork:
    """Plans one share whose former files had 10 rows, 3 of them bad."""
    counts: Counts = (10, 3)
    stored = StoredCounts("k", 1, Turn(), (ShareCounts(tuple((identify(f), counts) for f in before), (duplicates,)),))
    base = Manifest("t", 1, 1, SnapshotKind.INCREMENTAL, None, 0, 1, SHAPE, tuple(before), SourceProgress())
    [work], _ = plan_counts([tuple(now)], (stored, base), COUNTS)
    return work


find_turns = count_memory._find_turns


@pytest.fixture(autouse=True)
def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_memory, "_find_turns", lambda *_: (set(), Turn()))


def test_the_key_names_conditions_values_and_shape() -> None:
    count = Count("id = ?", (1,))
    keys = {
        key_of([count], SHAPE),
        *(key_of([Count("id = ?", (value,))], SHAPE) for value in (2, "1", 1.0, True)),
        key_of([replace(count, where="id > ?")], SHAPE),
        key_of([replace(count, same=("id",))], SHAPE),
        key_of([count, count], SHAPE),
        key_of([count], replace(SHAPE, columns=(Column("id", "int"),))),
    }
    assert len(keys) == 9
    assert key_of([count], SHAPE) in keys


def test_what_was_counted_comes_back_with_its_types() -> None:
    values = (
        1,
        -(2**63),
        1.5,
        float("inf"),
        "x",
        "",
        True,
        False,
        date(2026, 1, 31),
        datetime(2026, 1, 31, 5, 6, 7, 8),
    )
    count = Count("a IN (?)", values, frozenset({"a", "b"}), ("a",))
    stored = msgspec.json.decode(msgspec.json.encode(StoredCount.of(count)), type=StoredCount)
    assert repr(stored.count.values) == repr(values)
    assert key_of([stored.count], SHAPE) == key_of([count], SHAPE)
    assert stored.count == count


def test_a_new_version_of_a_library_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of([], SHAPE)
    monkeypatch.setattr(count_memory, "version", lambda name: f"{name} 99")
    assert key_of([], SHAPE) != before


def test_equal_files_are_not_read() -> None:
    files = [data_file("a"), data_file("b")]
    work = plan(files, files)
    assert work.is_idle
    assert combine(work, None).files == tuple((identify(file), (10, 3)) for file in files)
    assert measure_reuse([work], None).taken == 20


def test_rows_that_left_are_subtracted() -> None:
    work = plan([data_file("a")], [data_file("a", gone=[4, 7])])
    [one] = work.files
    assert (one.whole, one.gone.tolist(), one.implied, one.unknown) == (False, [4, 7], (2, None), (1,))
    # Without new rows no key is read.
    assert not work.reads_keys
    [(_, counts)] = combine(work, ShareAnswer((None,), ((1,),), None, (0,))).files
    assert counts == (8, 2)
    reuse = measure_reuse([work], None)
    assert (reuse.read, reuse.taken, reuse.read_keys, reuse.taken_keys) == (2, 8, 0, 8)


@pytest.mark.parametrize(
    ("count", "before", "implied"),
    # A count of all rows that is 0 cannot be right: the rows that left are counted.
    [(ALL, 10, 2), (ALL, 0, None), (BAD, 0, 0), (BAD, 10, 2), (BAD, 9, None)],
)
def test_if_none_or_all_of_the_rows_count_so_do_those_that_left(count: Count, before: int, implied: int | None) -> None:
    assert imply_count(count, before, 10, 2) == implied


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([data_file("a", gone=[1])], [data_file("a")]),
        ([data_file("a", gone=[1])], [data_file("a", gone=[2, 3])]),
        ([data_file("a")], [data_file("b")]),
        ([data_file("a")], [replace(data_file("a"), key_groups=KeyGroups(0, 7))]),
        ([data_file("a")], [data_file("a"), replace(data_file("a"), name="again")]),
        ([replace(data_file("a"), sha256="")], [replace(data_file("a"), sha256="")]),
    ],
    ids=["fewer deleted", "others deleted", "other bytes", "other key groups", "twice", "no checksum"],
)
def test_what_is_read_in_full(before: list[DataFile], now: list[DataFile]) -> None:
    work = plan(before, now)
    assert all(one.whole and one.before is None for one in work.files)
    assert work.clean is None


def test_files_that_stayed_have_keys_of_new_rows_only_if_they_had_no_duplicate() -> None:
    now = [data_file("a"), data_file("b")]
    assert plan([data_file("a")], now).clean == (0,)
    dirty = plan([data_file("a")], now, duplicates=2)
    assert dirty.clean is None
    assert dirty.reads_keys


def test_files_of_two_shares_may_have_keys_in_common() -> None:
    before = [data_file("a"), data_file("b", 4)]
    stored = StoredCounts("k", 1, Turn(), tuple(ShareCounts(((identify(file), (10, 3)),), (0,)) for file in before))
    base = Manifest("t", 1, 1, SnapshotKind.INCREMENTAL, None, 0, 1, SHAPE, tuple(before), SourceProgress())
    [work], _ = plan_counts([tuple(before)], (stored, base), COUNTS)
    assert work.clean is None
    assert [one.whole for one in work.files] == [False, False]


def test_equal_bytes_with_other_vectors_are_read() -> None:
    """Random lives found this: both would be taken for the same former file."""
    twins = [data_file("a"), data_file("a", gone=[1])]
    assert all(one.before is None for one in plan(twins, twins).files)


WRONG = [
    (ShareAnswer(((9, 3),), (None,), (0,), (0,)), "rows of `a`"),
    (ShareAnswer(((10, 3),), (None,), (2,), (0,)), "duplicates in the files of `a`"),
]


@pytest.mark.parametrize(("answer", "text"), WRONG)
def test_a_wrong_count_is_refused(answer: ShareAnswer, text: str) -> None:
    file = FileWork(data_file("a"), True, (10, 3), implied=(0, 0))
    work = ShareWork((file,), (0,), again=True)
    with pytest.raises(CountsDifferError, match=text):
        combine(work, answer)


def test_more_rows_left_than_were_counted() -> None:
    work = plan([data_file("a")], [data_file("a", gone=[1])])
    with pytest.raises(CountsDifferError, match="rows of `a`"):
        combine(work, ShareAnswer((None,), ((4,),), None, (0,)))


def test_counts_are_added() -> None:
    assert add_counts([(1, 0), (2, 5)]) == (3, 5)


def test_a_file_that_was_there_twice_and_is_once() -> None:
    twins = [data_file("a"), replace(data_file("a"), name="again")]
    work = plan(twins, twins[:1], duplicates=20)
    assert work.clean is None
    assert work.reads_keys


@given(
    sizes=st.lists(st.integers(1, 3_000_000), min_size=1, max_size=40),
    growth=st.sampled_from([0.9, 1.0, 1.3]),
    changed=st.integers(0, 400_000),
)
def test_each_bucket_has_its_turn_as_soon_as_its_rows_are_allowed(
    sizes: list[int], growth: float, changed: int
) -> None:
    """Whole buckets, in the order of key groups; also while the table grows or shrinks."""
    turn, had, allowed, read = Turn(), list[int](), 0, 0
    while set(had) < set(range(len(sizes))):
        shares = [[data_file(str(n), 4 * n, rows=size)] for n, size in enumerate(sizes)][::-1]
        work = ShareWork((FileWork(data_file("new", rows=changed)),))
        rows = count_memory._allow_rows([work, *(ShareWork((FileWork(f[0], False, (1,)),)) for f in shares)])
        assert rows == min(-(-(sum(sizes) + changed) // 20), max(200_000, changed))
        turns, turn = find_turns(shares, turn, rows)
        here = [len(sizes) - 1 - number for number in turns]
        had += here
        allowed, read = allowed + rows, read + sum(sizes[number] for number in here)
        times = [had.count(number) for number in range(len(sizes))]
        assert max(times) - min(times) <= 1
        assert allowed >= read
        assert allowed - read < 3_000_000
        sizes = [max(1, min(int(size * growth), 3_000_000)) for size in sizes]


def test_a_small_table_is_counted_again_in_twenty_judgements() -> None:
    shares, turn, had = [[data_file(str(n), 4 * n)] for n in range(4)], Turn(), set[int]()
    for _ in range(20):
        turns, turn = find_turns(shares, turn, count_memory._allow_rows([ShareWork((FileWork(shares[0][0]),))] * 4))
        had |= turns
    assert had == {0, 1, 2, 3}
