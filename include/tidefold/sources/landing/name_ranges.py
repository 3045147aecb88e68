"""Lists a long prefix of an object store in several ranges of names at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Page: TypeAlias = Sequence[tuple[str, T]]
# The pages of all names after a name; after the empty name: all.
ReadPages: TypeAlias = Callable[[str], Iterable[Page[T]]]

# So many chains at once, each of at least so many names.
MOST, EACH = 8, 4000


class UnsortedListingError(Exception):
    """The store does not list names in order, or not from a given name on."""


def split_names(known: Collection[str], each: int = EACH, most: int = MOST) -> list[tuple[str, str]]:
    """Returns ranges of names, each after its first and up to its second name. An empty second name: no end."""
    parts = min(most, len(known) // each)
    if parts < 2:
        return [("", "")]
    ordered = sorted(known)
    ends = sorted({ordered[len(ordered) * part // parts] for part in range(1, parts)} - {""})
    return list(zip(["", *ends], [*ends, ""], strict=True))


def list_names(pages: ReadPages[T], ranges: Sequence[tuple[str, str]]) -> Iterator[tuple[str, T]]:
    """Yields every name once, in order. A store that does not list in order is listed in one chain."""
    if len(ranges) > 1:
        try:
            with ThreadPoolExecutor(len(ranges)) as pool:
                found = list(pool.map(lambda one: _list_range(pages, *one), ranges))
        except UnsortedListingError:
            pass
        else:
            yield from (entry for part in found for entry in part)
            return
    for page in pages(""):
        yield from page


def _list_range(pages: ReadPages[T], after: str, upto: str) -> list[tuple[str, T]]:
    found: list[tuple[str, T]] = []
    last = after
    for page in pages(after):
        for name, entry in page:
            # The empty name is the object that stands for the folder itself.
            if name <= last and (name or last):
                raise UnsortedListingError
            if upto and name > upto:
                return found
            found.append((name, entry))
            last = name
    return found
