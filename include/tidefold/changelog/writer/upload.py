"""Uploads change sets of many logs as one segment, to the primary store and optionally to a local one (C2, C6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.errors import InvalidInputError
from tidefold.storage import Store
from tidefold.storage.mirrored_stream import create_duplicating


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A change set that was uploaded.

    written: the change set and its location in the primary store.
    place: its first offset in the stream of its writer.
    local: path of the local copy of the segment, which has the same offsets; None: there is none.
    failures, seconds: how many attempts failed before, and how long this one took.
    """

    written: WrittenChangeSet
    place: int
    local: str | None = None
    failures: int = 0
    seconds: float = 0.0

    @property
    def log(self) -> str:
        return self.written.log

    @property
    def path(self) -> str:
        """Returns the path of its segment."""
        return self.written.location.segment

    @property
    def bytes(self) -> int:
        """Returns its size in the segment."""
        return self.written.location.length


def upload(
    primary: Store, local: Store | None, path: str, parts: Iterable[tuple[str, pa.Table]], *, compress: bool = True
) -> list[Uploaded]:
    """Writes a new segment and returns the location of each part, in the given order.

    The parts must be sorted by log, then by `_offset`, and have at least one row. Raises InvalidInputError if they are
    not, and the errors of the primary store. Then no file is left. Errors of the local store are never raised.
    """
    places: list[int] = []
    with create_duplicating(primary, local, path) as stream:
        written = write_parts(stream, path, _in_order(parts, places), compress=compress)
        if not written:
            raise InvalidInputError("SEGMENT_EMPTY", "A segment must have at least one change set.")
    return [Uploaded(w, place, stream.local_path) for w, place in zip(written, places, strict=True)]


def _in_order(parts: Iterable[tuple[str, pa.Table]], places: list[int]) -> Iterator[tuple[str, pa.Table]]:
    """Passes the parts on, and records the first offset of each."""
    before: tuple[str, int] | None = None
    for log, table in parts:
        if table.num_rows == 0:
            raise InvalidInputError("PART_EMPTY", f"A part of log `{log}` has no change.")
        span = pc.min_max(table.column("_offset"))
        first, last = span["min"].as_py(), span["max"].as_py()
        if before is not None and (log, first) <= before:
            raise InvalidInputError(
                "PARTS_UNSORTED",
                f"Log `{log}` from offset {first} comes after log `{before[0]}` up to offset {before[1]}.",
                hint="Sort the parts by log, then by `_offset`.",
            )
        before = (log, last)
        places.append(first)
        yield log, table
