"""A listing in ranges has every name once, in order, whatever was known before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tidefold.sources.landing.cloud_folder import ReadPages, list_names, split_names

# Few letters, so that known and listed names meet; some beyond ASCII, which S3 orders by their UTF-8.
_NAMES = st.lists(st.text("ab/é\U0001f600", max_size=4), unique=True, max_size=40)


def pages_of(names: list[str], size: int, asked: list[str] | None = None) -> ReadPages[int]:
    """A store with these names. `asked`: collects where each listing begins."""
    ordered = sorted(names, key=str.encode)

    def read(after: str) -> Iterator[list[tuple[str, int]]]:
        if asked is not None:
            asked.append(after)
        found = [(name, len(name)) for name in ordered if not after or name.encode() > after.encode()]
        for begin in range(0, len(found), size):
            yield found[begin : begin + size]

    return read


@given(_NAMES, _NAMES, st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_it_has_every_name_once_and_in_order(
    names: list[str], known: list[str], size: int, each: int, most: int
) -> None:
    found = list(list_names(pages_of(names, size), split_names(known, each, most)))
    assert found == [(name, len(name)) for name in sorted(names, key=str.encode)]


def test_a_long_listing_is_cut_where_names_are_known() -> None:
    names = [f"{number:04d}" for number in range(100)]
    asked: list[str] = []
    assert len(list(list_names(pages_of(names, 10, asked), split_names(names[:80], 20, 8)))) == 100
    assert sorted(asked) == ["", "0020", "0040", "0060"]


def test_parts_are_listed_at_once() -> None:
    """Each part waits until all have begun."""
    names = [f"{number:04d}" for number in range(8)]
    ranges = split_names(names, 2, 4)
    together = threading.Barrier(len(ranges), timeout=30)

    def read(after: str) -> Iterator[list[tuple[str, int]]]:
        together.wait()
        yield from pages_of(names, 3)(after)

    assert [name for name, _ in list_names(read, ranges)] == names


def test_few_names_are_listed_in_one_chain() -> None:
    assert split_names(["a", "b"]) == [("", "")]


def test_a_store_that_lists_from_the_beginning_each_time_is_listed_in_one_chain() -> None:
    names = [f"{number:04d}" for number in range(50)]
    everything = pages_of(names, 10)
    assert [n for n, _ in list_names(lambda after: everything(""), split_names(names, 10, 4))] == names


def test_a_store_that_lists_in_no_order_is_listed_in_one_chain() -> None:
    names = [f"{number:04d}" for number in range(50)]

    def read(after: str) -> Iterator[list[tuple[str, int]]]:
        yield [(name, 0) for name in reversed(names) if name > after]

    assert [name for name, _ in list_names(read, split_names(names, 10, 4))] == names[::-1]
