"""Prints what a restore read, or what it would read, in a limited number of lines. The JSON output has everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tidefold.cli.terminal import Terminal
from tidefold.domain.wording import count_noun

if TYPE_CHECKING:
    from tidefold.operations.outcome import Details, Outcome
    from tidefold.operations.restore.explain import BucketPlan, RestorePlanDetails, WayPlan

_LINES = 20


def read_lines(details: Details) -> Iterator[str]:
    """Yields a line for each source with its number of bytes, and a line for each source that failed."""
    from tidefold.operations.snapshot.details import ReadDetails

    read = details.read if isinstance(details, ReadDetails) else None
    if not isinstance(details, ReadDetails) or read is None:
        return
    places = {"local copies": read.local, "the store": read.store, "outside of the store": read.external}
    parts = [
        f"{count_noun(part.files, 'file')} ({_units(part.bytes)}) from {place}"
        for place, part in places.items()
        if part.files
    ]
    if read.older:
        parts.append(f"{count_noun(len(read.older), 'bucket')} made from {_older_names(read.older)}")
    yield f"read: {', '.join(parts) or 'nothing'}"
    failed = [*(details.manifests or ()), *read.failed]
    yield from _limit_lines(f"not usable: {one.place}: {one.why} ({one.seconds:.2f} s)" for one in failed)


def print_reads(terminal: Terminal, outcomes: Iterable[Outcome]) -> None:
    """Prints what each operation read."""
    for outcome in outcomes:
        for line in read_lines(outcome.details):
            terminal.line(f"  {outcome.log}: {line}")


def _older_names(older: Mapping[str, int | None]) -> str:
    ids = sorted({one for one in older.values() if one is not None})
    names = [f"snapshot {one}" for one in ids] + (["the log alone"] if None in older.values() else [])
    return f"{' and '.join(names)}{' and the log after it' if ids else ''}"


def plan_lines(plan: RestorePlanDetails) -> Iterator[str]:
    """Yields the lines of each bucket: its files, their places in the order of the tries, then older snapshots."""
    for one in plan.manifests:
        yield f"not usable: {one.place}: {one.why}"
    for bucket in plan.buckets:
        yield from _bucket_lines(bucket)


def _bucket_lines(bucket: BucketPlan) -> Iterator[str]:
    first, last = bucket.key_groups
    yield f"key groups {first} to {last}:"
    for number, way in enumerate(bucket.ways):
        base = "nothing" if way.snapshot is None else f"snapshot {way.snapshot}"
        if number:
            size = sum(one.bytes for one in way.files) + way.change_bytes
            yield f"  else {base}{_changes(way)}, {_units(size)}"
            continue
        for one in way.files:
            yield f"  {one.file}, {_units(one.bytes)}, {one.rows:,} rows"
            for place in one.places:
                length = "" if place.bytes is None else f", {_units(place.bytes)}"
                yield f"    {place.place}: {place.found}{length}"
        if not way.files or way.change_sets:
            yield f"  {base}{_changes(way)}"


def _changes(way: WayPlan) -> str:
    spans = [f"{first}" if first == last else f"{first} to {last}" for first, last in way.change_sets]
    return f" and the change sets {', '.join(spans)}" if spans else ""


def _limit_lines(lines: Iterable[str]) -> Iterator[str]:
    listed = list(lines)
    yield from listed[:_LINES]
    if len(listed) > _LINES:
        yield f"and {len(listed) - _LINES:,} more; --format json lists them all"


def _units(size: int) -> str:
    from tidefold.domain.wording import in_units

    return in_units(size)
