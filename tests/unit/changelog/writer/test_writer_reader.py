"""Reading a log back: since, key groups, cuts, squashes. Requirement L8; promises I23, I28."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.dict_store import DictStore
from support.writing import SHAPE, make_changelog, paths, rows
from tidefold.changelog.reader import ChangelogReader
from tidefold.domain.key_groups import bucket_ranges
from tidefold.domain.log_state import LogState
from tidefold.errors import CorruptError, NotFoundError, RefusedError
from tidefold.ledger import Ledger
from tidefold.storage import Store


@pytest.fixture
def store() -> Store:
    """A log of five change sets of ten changes."""
    store = DictStore()
    writer = make_changelog(store).log("a", SHAPE)
    for number in range(5):
        writer.append(rows(*range(number * 10, number * 10 + 10)))
        writer.flush()
    return store


def cut(state: LogState) -> LogState:
    return replace(state, truncated_to=3, change_sets=state.change_sets[3:])


def test_change_sets_come_in_order(store: Store) -> None:
    read = [(change_set.sqn, table["id"].to_pylist()) for change_set, table in ChangelogReader(store, "a")]
    assert [sqn for sqn, _ in read] == [1, 2, 3, 4, 5]
    assert [sorted(ids) for _, ids in read] == [list(range(n, n + 10)) for n in range(0, 50, 10)]


def test_reading_again_reads_again(store: Store) -> None:
    reader = ChangelogReader(store, "a", since=5)
    assert list(reader) == []
    writer = make_changelog(store).log("a")
    writer.append(rows(99))
    writer.flush()
    assert [table["id"].to_pylist() for table in reader.tables()] == [[99]]


@pytest.mark.parametrize("since", [0, 1, 4, 5, 9])
def test_since(store: Store, since: int) -> None:
    assert [c.sqn for c, _ in ChangelogReader(store, "a", since=since)] == list(range(since + 1, 6))


def test_key_groups_share_the_changes(store: Store) -> None:
    """L8: each reader gets its own, none is left out."""
    ids: list[int] = []
    for bucket in bucket_ranges(16, 4):
        for table in ChangelogReader(store, "a", key_groups=bucket).tables():
            assert all(bucket.first <= group <= bucket.last for group in table["_kg"].to_pylist())
            ids += table["id"].to_pylist()
    assert sorted(ids) == list(range(50))


def test_an_unknown_log(store: Store) -> None:
    with pytest.raises(NotFoundError) as unknown:
        list(ChangelogReader(store, "b"))
    assert unknown.value.code == "LOG_UNKNOWN"
    assert "writer" in unknown.value.hint
    assert "tidefold step ingest" not in unknown.value.hint


def test_what_was_cut_off_is_said_and_what_is_there(store: Store) -> None:
    Ledger(store, "a").commit(cut)
    with pytest.raises(RefusedError) as refused:
        list(ChangelogReader(store, "a", since=2))
    assert refused.value.code == "LOG_CUT"
    assert "the first one left is 4" in refused.value.message
    assert [c.sqn for c, _ in ChangelogReader(store, "a", since=3)] == [4, 5]


def test_a_log_that_was_cut_to_its_end_says_so(store: Store) -> None:
    Ledger(store, "a").commit(lambda state: replace(state, truncated_to=5, change_sets=()))
    with pytest.raises(RefusedError) as refused:
        list(ChangelogReader(store, "a"))
    assert "no change set is left" in refused.value.message
    assert list(ChangelogReader(store, "a", since=5)) == []


def test_a_cut_during_the_reading_is_a_cut_and_no_damage(store: Store) -> None:
    reading = iter(ChangelogReader(store, "a"))
    first, _ = next(reading)
    Ledger(store, "a").commit(cut)
    store.delete(path for path in paths(store) if path != first.location.segment)
    with pytest.raises(RefusedError) as refused:
        next(reading)
    assert refused.value.code == "LOG_CUT"


def test_a_lost_segment_is_damage(store: Store) -> None:
    """I23."""
    reading = iter(ChangelogReader(store, "a"))
    next(reading)
    store.delete(paths(store))
    with pytest.raises(CorruptError):
        next(reading)


def test_it_is_not_read_from_the_middle_of_squashed_change_sets(store: Store) -> None:
    def squash(state: LogState) -> LogState:
        return replace(
            state, change_sets=(*state.change_sets[:1], replace(state.change_sets[3], first=2), state.change_sets[4])
        )

    Ledger(store, "a").commit(squash)
    for since in (2, 3):
        with pytest.raises(RefusedError) as refused:
            list(ChangelogReader(store, "a", since=since))
        assert refused.value.code == "LOG_COMPACTED"
    assert [c.sqn for c, _ in ChangelogReader(store, "a", since=1)] == [4, 5]
    assert [c.sqn for c, _ in ChangelogReader(store, "a", since=4)] == [5]


def test_a_squash_during_the_reading_says_to_read_again(store: Store) -> None:
    reading = iter(ChangelogReader(store, "a"))
    next(reading)
    new = replace(Ledger(store, "a").read().change_sets[3], first=1)
    Ledger(store, "a").commit(lambda state: replace(state, change_sets=(new, state.change_sets[4])))
    store.delete(
        path for path in paths(store) if path not in {c.location.segment for c in Ledger(store, "a").read().change_sets}
    )
    with pytest.raises(RefusedError) as refused:
        next(reading)
    assert refused.value.code == "LOG_COMPACTED"
