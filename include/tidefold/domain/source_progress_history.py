"""Finds the source positions at an earlier sqn from the records of landed files. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import IMPORTED, LandedFileRecord, Position


def positions_at(state: LogState, sqn: int) -> tuple[Position, ...]:
    """Returns the position of each partition when the log ended with this sqn, never a later one.

    If no record and no change set has the highest order any more (logs of an older version), it is an order that was
    certainly seen. Records that the source sends a second time may then be folded a second time.
    """
    found: dict[tuple[str, int], Position] = {}
    behind: set[tuple[str, int]] = set()
    highs = {c.sqn: c.high for c in state.change_sets}
    for entry in state.landed:
        place = (entry.topic, entry.partition)
        if entry.sqn is not None and entry.sqn > sqn:
            behind.add(place)
        if place not in behind:
            found[place] = _after(found.get(place), entry, highs.get(entry.sqn or 0, ()))
    # A partition that has not moved since then is known exactly.
    now = {(p.topic, p.partition): p for p in state.positions}
    return tuple(now[place] if place not in behind else found[place] for place in sorted(found))


def _after(before: Position | None, entry: LandedFileRecord, high: tuple[int, ...]) -> Position:
    stood = before or Position(entry.topic, entry.partition, 0, ())
    reached = max(stood.next_offset, entry.next_offset)
    if entry.high:
        return stood.advance(reached, entry.stream._replace(max_order=max(stood.high, entry.high)))
    return replace(stood, next_offset=reached, high=max(stood.high, high))


def accounts_of(positions: Iterable[Position]) -> tuple[LandedFileRecord, ...]:
    """Returns records that make a log which begins at these positions ingest nothing before them."""
    return tuple(
        LandedFileRecord(
            number=number,
            name=f"{p.topic}+{p.partition}{IMPORTED}",
            length=0,
            checksum="",
            topic=p.topic,
            partition=p.partition,
            first_offset=0,
            next_offset=p.next_offset,
            records=0,
            changes=0,
            tombstones=0,
            repeated=0,
            quarantined=0,
            ignored=0,
            sqn=None,
        ).with_stream(p.stream)
        for number, p in enumerate(positions, 1)
    )
