"""Finds landed files without offsets whose bytes another file brought, and refused records that counted there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tidefold.domain.ingest.quarantine_retry import quarantine_files
from tidefold.domain.log_state import LandedFileRecord, LogState
from tidefold.domain.source_progress import NameReading
from tidefold.sources.feed import Feed
from tidefold.sources.landing.folders import read_folders
from tidefold.sources.landing.name_times import find_time
from tidefold.sources.quarantine.reparse import Refused, read_refused
from tidefold.sources.records.accounting import COUNTING
from tidefold.storage import Store


def read_name(feed: Feed | None, names: NameReading | None, name: str) -> tuple[int | None, tuple[str | None, ...]]:
    """Returns what tells equal bytes apart: the time in a name, if it orders rows, and columns in names of folders."""
    options = feed.options if feed else {}
    time = find_time(name, options.get("time_zone")) if names is NameReading.DATED else None
    folders = read_folders(name) if options.get("folder_columns") else {}
    return time, tuple(folders.get(column) for column in options.get("folder_columns", ()))


def find_used_up(state: LogState) -> Iterator[LandedFileRecord]:
    """Yields the records of files whose bytes bring nothing when they land again."""
    sums: dict[str, tuple[int, int]] = {}
    for entry in state.landed:
        refused, brought = sums.get(entry.name, (0, 0))
        sums[entry.name] = refused + entry.refused, brought + entry.brought
    return (e for e in state.landed if not (e.is_copy or may_come_again(state, *sums[e.name])))


def may_come_again(state: LogState, refused: int, brought: int) -> bool:
    """Whether the bytes of a file with these counts may land again and are no copy."""
    return refused > 0 and not (brought and state.shape.merge.engine in COUNTING)


def decide_copies(
    store: Store, state: LogState, feed: Feed | None, records: Sequence[Refused]
) -> Iterator[tuple[Refused, str | Refused | None]]:
    """Yields each record with None: it is to be read again; or with its result, or the record that has its result.

    In a log that counts every record, the same line of a file with the same bytes counts once.
    """
    counts = state.shape.merge.engine in COUNTING and state.names is not None and not state.names.has_offsets
    of_name, names = dict[str, list[LandedFileRecord]](), dict[object, set[str]]()
    read = partial(read_name, feed, state.names)
    for entry in state.landed if counts else ():
        of_name.setdefault(entry.name, []).append(entry)
        names.setdefault((entry.checksum, entry.length, read(entry.name)), set()).add(entry.name)
    paths = quarantine_files(state) if any(len(same) > 1 for same in names.values()) else ()
    waiting = {r.landed_line for path in paths for r in read_refused(store, state, path)}
    first: dict[tuple[str, int], Refused] = {}
    for one in sorted(records, key=lambda record: record.landed.number):
        mine, line = one.landed.name, one.entry.line
        # A file that grew has a record for each part, and all of them begin with the same lines.
        parts = (e for e in of_name.get(mine, ()) if e.length >= one.landed.length)
        twins = set().union(*(names[e.checksum, e.length, read(mine)] for e in parts)) - {mine}
        counted = [e for name in twins if (name, line) not in waiting for e in of_name[name] if e.brought]
        former = next((first[name, line] for name in twins if (name, line) in first), None)
        first.setdefault((mine, line), one)
        # What a person settled counted nowhere, and nobody knows which lines that were.
        yield one, ("unproved" if all(e.settled for e in counted) else "repeated") if counted else former
