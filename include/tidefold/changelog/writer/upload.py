"""One upload: change sets of many logs into one segment, in the primary store and perhaps a local one (C2, C6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.domain.commit_times import CommitTimeRange
from tidefold.domain.key_groups import KeyGroups
from tidefold.errors import InvalidInputError
from tidefold.storage import Store
from tidefold.storage.mirrored_stream import create_duplicating


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Where one change set is: the primary handle (`path`, `offset`) and the local one, if there is a copy.

    `place` is its first offset in its writer's stream; `bytes` is what it takes in the segment.
    """

    log: str
    place: int
    rows: int
    bytes: int
    path: str
    ordinal: int
    offset: int
    checksum: str
    key_groups: KeyGroups
    local: str | None = None
    local_offset: int | None = None
    times: CommitTimeRange | None = None


def upload(
    primary: Store, local: Store | None, path: str, parts: Iterable[tuple[str, pa.Table]], *, compress: bool = True
) -> list[Uploaded]:
    """Writes a new segment and answers where each part ended up, in the order given.

    Parts come sorted by log, then by place (`_offset`), and hold at least one row. Raises InvalidInputError when they
    do not, and what the primary store raises; no file is left then. A failing local store raises nothing.
    """
    places: list[int] = []
    with create_duplicating(primary, local, path) as stream:
        written = write_parts(stream, _in_order(parts, places), compress=compress)
        if not written:
            raise InvalidInputError("SEGMENT_EMPTY", "A segment holds at least one change set.")
    return [_uploaded(w, place, path, stream.local_path) for w, place in zip(written, places, strict=True)]


def _in_order(parts: Iterable[tuple[str, pa.Table]], places: list[int]) -> Iterator[tuple[str, pa.Table]]:
    """Passes the parts on, and notes the place of each."""
    before: tuple[str, int] | None = None
    for log, table in parts:
        if table.num_rows == 0:
            raise InvalidInputError("PART_EMPTY", f"A part of log `{log}` holds no change.")
        span = pc.min_max(table.column("_offset"))
        first, last = span["min"].as_py(), span["max"].as_py()
        if before is not None and (log, first) <= before:
            raise InvalidInputError(
                "PARTS_UNSORTED",
                f"Log `{log}` from place {first} comes after log `{before[0]}` up to place {before[1]}.",
                hint="Sort the parts by log, then by place.",
            )
        before = (log, last)
        places.append(first)
        yield log, table


def _uploaded(written: WrittenChangeSet, place: int, path: str, local: str | None) -> Uploaded:
    return Uploaded(
        log=written.log,
        place=place,
        rows=written.rows,
        bytes=written.length,
        path=path,
        ordinal=written.ordinal,
        offset=written.offset,
        checksum=written.checksum,
        key_groups=written.key_groups,
        local=local,
        local_offset=None if local is None else written.offset,
        times=written.times,
    )
