"""Rows of a table as it was at one position of its source, which were loaded into the store: the first of a log.

A load is a folder of Parquet files below the landing place of the log in the store, and a mark, written last: without
its mark a load does not exist. Its rows are in a partition of their own, and older than all that the source streams
after their position (decision 0096).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec
import pyarrow as pa

from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import LOADED, NameReading
from tidefold.errors import NotFoundError
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.landing_place import Stamp
from tidefold.sources.landing.listing import LandedFile
from tidefold.stored_forms import decode_form

FOLDER, _MARK, _BEGUN = "_load", ".json", "begun-"
ABOUT = b"tidefold.load"
# The position before all that the stream brings.
FIRST = "0"


class AboutRows(msgspec.Struct, frozen=True):
    """What each file of a load says of its rows.

    order: their place in the source, as the order of the log has it; all zero: before all that is known.
    time: when they were read, in microseconds since 1970.
    clears: whether they replace what the log had; said once, by the first file.
    since: as in StreamPosition.
    """

    order: tuple[int, ...]
    time: int
    clears: bool
    since: int = 0


class LoadMark(msgspec.Struct, frozen=True):
    """A load that is complete.

    folder: of its files. files: how many rows each has, in the order of their names. start: the offset of the first.
    position: as the source writes it. slot, connection: empty: the rows came from files.
    """

    folder: str
    files: tuple[int, ...]
    start: int
    position: str
    table: str
    by: str
    at: str
    slot: str = ""
    connection: str = ""

    @property
    def replaces(self) -> bool:
        """Whether its rows replace all that came before."""
        return self.position != FIRST

    @property
    def end(self) -> int:
        """The offset behind its last row."""
        return self.start + sum(self.files)


def name_file(folder: str, number: int) -> str:
    """Returns the name of a file of a load, below the landing place of the log."""
    return f"{FOLDER}/{folder}/{number:06d}.parquet"


def name_mark(number: int) -> str:
    return f"{FOLDER}/{number:04d}{_MARK}"


def name_begun(folder: str) -> str:
    """Returns the name of the note that a load makes a slot, which it may leave behind."""
    return f"{FOLDER}/{_BEGUN}{folder}{_MARK}"


def add_about(schema: pa.Schema, about: AboutRows) -> pa.Schema:
    """Returns the schema of a file with what its rows are."""
    return schema.with_metadata({ABOUT: msgspec.json.encode(about)})


def read_marks(root: str, *, begun: bool = False) -> list[LoadMark]:
    """Returns the complete loads below a landing place in the store, the oldest first; or those that only began."""
    place, marks = folder_at(f"{root}/{FOLDER}"), list[LoadMark]()
    with suppress(NotFoundError):
        for file in place.list_files():
            if file.name.endswith(_MARK) and file.name.startswith(_BEGUN) == begun:
                with place.open(file.name) as stream:
                    marks.append(decode_form(f"{root}/{FOLDER}/{file.name}", stream.read(), LoadMark))
    return marks


def list_standing(marks: Sequence[LoadMark]) -> Sequence[LoadMark]:
    """Returns the loads that no later one replaces."""
    return marks[max((at for at, one in enumerate(marks) if one.replaces), default=0) :]


def list_left(root: str, limit: datetime, done: Container[str]) -> Iterator[str]:
    """Yields files of loads below a landing place that nobody needs: of one that broke off, or was replaced.

    limit: those that have changed since then stay. done: more names of files that are not needed any more.
    """
    kept = {one.folder for one in list_standing(read_marks(root))}
    with suppress(NotFoundError):
        for file in folder_at(f"{root}/{FOLDER}").list_files():
            folder, is_below, _ = file.name.partition("/")
            is_left = is_below and folder not in kept and file.stamp.changed < limit.timestamp()
            if is_left or f"{FOLDER}/{file.name}" in done:
                yield f"{FOLDER}/{file.name}"


def list_loaded(root: str, topic: str, state: LogState) -> tuple[LandedFile, ...]:
    """Returns the files of all loads of a log. A log that has begun without a load knows of none: nothing is listed.

    root: the landing place in the store. topic: of the log.
    Raises NotFoundError if a file is gone: the stream must not be ingested without it.
    """
    mine = next((one for one in state.positions if one.partition == LOADED), None)
    if not root or (state.positions and not mine):
        return ()
    marks, stamps, taken = read_marks(root), dict[str, Stamp](), {entry.name for entry in state.landed}
    if marks:
        # Listed after the marks: a mark is written after its files.
        stamps = {f"{FOLDER}/{one.name}": one.stamp for one in folder_at(f"{root}/{FOLDER}").list_files()}
    files = list[LandedFile]()
    for mark in list_standing(marks):
        start = mark.start
        for number, rows in enumerate(mark.files):
            name = name_file(mark.folder, number)
            if name in stamps:
                where = (mine.topic if mine else topic), LOADED, start
                files.append(LandedFile(name, f"{root}/{name}", stamps[name], *where, False, names=NameReading.KAFKA))
            elif name not in taken:
                message = f"`{name}` in the store, of a load that was not ingested, is gone. Nothing was ingested."
                raise NotFoundError("LANDED_GONE", message, hint="Put it back from a backup, or load the table again.")
            start += rows
    return tuple(files)
