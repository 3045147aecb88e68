"""Lists landed files, also those with numbered names, and finds those that were rewritten.

Hidden and temporary files are skipped. A file with an unusable name is reported, never silently skipped. `folders.py`
reads the names.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeAlias

from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import LandedFileRecord, NameReading
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import InvalidInputError
from tidefold.sources.feed import Feed
from tidefold.sources.landing.folders import LINES, LandedName, Place, folder_at, name_at
from tidefold.sources.landing.landing_place import ListedFile, Stamp
from tidefold.sources.landing.name_times import find_time, is_unclear, natural_order, split_names
from tidefold.sources.landing.problems import (
    FileProblem,
    report_changed,
    report_file_time,
    report_foreign,
    report_other_name,
    report_unopened,
    report_unplaced,
    report_unsafe,
)
from tidefold.sources.landing.streams import is_packed_name
from tidefold.storage import compute_sha256


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One landed file.

    name, path: relative to the log's folder, and absolute or an address.
    alone: it is ingested independently of other files. Otherwise the files of a partition are ingested in order.
    names: how its name was read; None if the format has only one way.
    zone: the time zone of the time in its name; None: UTC.
    packed: it is gzip or zstandard.
    record_path: where the records of a JSON document are; None: the file has lines or rows.
    """

    name: str
    path: str
    stamp: Stamp
    topic: str
    partition: int
    start: int
    packed: bool
    alone: bool = False
    names: NameReading | None = None
    zone: str | None = None
    record_path: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether only all of its bytes can be read."""
        return self.packed or self.record_path is not None

    @property
    def time(self) -> int | None:
        """Returns the time in its name, in microseconds since 1970; None: there is none."""
        return find_time(self.name, self.zone)

    @property
    def is_numbered(self) -> bool:
        """Whether its number in the log and the row are the place of a change."""
        return self.names is not None and not self.names.has_offsets

    @property
    def queue(self) -> int | str:
        """Returns the queue of the file. Files that must be ingested in order have the same queue."""
        return self.name if self.alone else self.partition

    @property
    def size(self) -> int:
        return self.stamp.size

    @property
    def root(self) -> str:
        """The log's folder."""
        return self.path.removesuffix(f"/{self.name}")


def open_landed(file: LandedFile) -> BinaryIO:
    """Opens a file without following a link below the log's folder. Raises UnsafeFileError, OSError."""
    return folder_at(file.root).open(file.name, file.stamp)


# Files, and the problems of the others.
Listed: TypeAlias = tuple[tuple[LandedFile, ...], tuple[FileProblem, ...]]


def list_landed(
    folder: Place,
    extensions: Collection[str] = LINES,
    reading: NameReading = NameReading.KAFKA,
    known: Collection[str] = (),
    leave_out: Sequence[str] = (),
) -> Listed:
    """Returns all landed files below a folder, ordered by partition and start, and a problem for every other file.

    known: see LandingPlace.list_files.
    leave_out: patterns of names that are not listed.
    Raises what `LandingPlace.list_files` raises.
    """
    place = folder_at(folder)
    files: list[LandedFile] = []
    problems: list[FileProblem] = []
    refused: list[LandedName] = []
    for one in _leave_out(place.list_files(known), leave_out):
        try:
            landed = LandedName.parse(one.name.rpartition("/")[2], extensions, reading)
        except InvalidInputError as error:
            of_this_kind = one.name.endswith(tuple(f".{extension}" for extension in extensions))
            problems.append(_report_foreign(one, "" if of_this_kind else error.message))
            continue
        if one.unsafe:
            problems.append(report_unsafe(one.name, one.unsafe.kind))
            refused.append(landed)
            continue
        files.append(
            LandedFile(
                one.name,
                f"{place.address}/{one.name}",
                one.stamp,
                topic=landed.topic,
                partition=landed.partition,
                start=landed.start,
                packed=landed.packed,
                names=reading,
            )
        )
    # A file after a refused one of its partition is ingested only when the refused one can be.
    waiting = {
        file
        for file in files
        for one in refused
        if (file.topic, file.partition) == (one.topic, one.partition) and file.start >= one.start
    }
    ready = (file for file in files if file not in waiting)
    return tuple(sorted(ready, key=lambda f: (f.partition, f.start, f.name))), tuple(problems)


def list_any(
    folder: Place,
    endings: Sequence[str],
    names: NameReading | None = None,
    patterns: Sequence[str] = (),
    known: Collection[str] = (),
    zone: str | None = None,
    record_path: str | None = None,
    leave_out: Sequence[str] = (),
) -> Listed:
    """Returns all files below a folder with these endings, each ingested independently, and a problem for each other
    file.

    names, zone, record_path: see LandedFile.
    patterns: of further names, as `*.log.gz`.
    known: see LandingPlace.list_files.
    leave_out: patterns of names that are not listed.
    Raises what `LandingPlace.list_files` raises.
    """
    place = folder_at(folder)
    files: list[LandedFile] = []
    problems: list[FileProblem] = []
    for one in _leave_out(place.list_files(known), leave_out):
        name = one.name
        if one.unsafe:
            problems.append(report_unsafe(name, one.unsafe.kind))
        elif not _is_wanted(name, endings, patterns):
            problems.append(replace(report_other_name(name, endings), size=one.stamp.size, changed=one.stamp.changed))
        else:
            path = f"{place.address}/{name}"
            packed = is_packed_name(name)
            topic = name_at(place.address)
            listed = LandedFile(name, path, one.stamp, topic, 0, 0, packed, alone=True, names=names, zone=zone)
            files.append(replace(listed, record_path=record_path))
    return tuple(files), tuple(problems)


def sort_by_arrival(files: Sequence[LandedFile]) -> list[LandedFile]:
    """Returns files that are ingested together as they are numbered: by time if all names have one, then by name."""
    dated = all(file.time is not None for file in files)
    return sorted(files, key=lambda file: (file.time or 0 if dated else 0, natural_order(file.name)))


def _leave_out(files: Iterable[ListedFile], patterns: Sequence[str]) -> list[ListedFile]:
    tried = ((file, (file.name, file.name.rpartition("/")[2])) for file in files)
    return [file for file, names in tried if not any(fnmatch.filter(names, pattern) for pattern in patterns)]


def _is_wanted(name: str, endings: Sequence[str], patterns: Sequence[str]) -> bool:
    own = name.rpartition("/")[2]
    return own.lower().endswith(tuple(endings)) or any(fnmatch.fnmatchcase(own, pattern) for pattern in patterns)


def find_rewritten(files: Sequence[LandedFile], state: LogState) -> tuple[FileProblem, ...]:
    """Returns one problem for each ingested file that was rewritten with the same length.

    The time of change, or the ETag of an object, only decides which files are read; their bytes decide. A file that
    was merely touched is read again on every run.
    """
    taken = {entry.name: entry for entry in state.landed}
    problems = []
    for file in files:
        entry = taken.get(file.name)
        if entry is None or entry.length != file.size or _is_unchanged(entry, file.stamp):
            continue
        try:
            with open_landed(file) as stream:
                same = compute_sha256(stream) == entry.checksum
        except OSError as error:
            problems.append(report_unopened(file.name, error))
            continue
        if not same:
            problems.append(report_changed(file.name, "has other bytes than when it was ingested"))
    return tuple(problems)


def _is_unchanged(entry: LandedFileRecord, stamp: Stamp) -> bool:
    """Whether a file of this length shows no sign of being rewritten since it was ingested."""
    if stamp.etag:
        # Without an ETag it was ingested from a disk, and the landed files were moved to S3 later.
        return entry.etag in ("", stamp.etag)
    return entry.changed == stamp.changed


def _report_foreign(one: ListedFile, why: str) -> FileProblem:
    """Returns the problem of a file of another kind. `why`: the cause; empty: its name does not have the right form."""
    if one.unsafe:
        return replace(report_unsafe(one.name, one.unsafe.kind), blocking=False)
    problem = report_foreign(one.name, why) if why else report_unplaced(one.name)
    return replace(problem, size=one.stamp.size, changed=one.stamp.changed)


def of_topic(
    files: Sequence[LandedFile], folder: Place, expected: Sequence[str]
) -> tuple[tuple[LandedFile, ...], tuple[FileProblem, ...]]:
    """Returns the files of the log's own topic, and a problem for each other file.

    The topic is the one that was ingested before (`expected`), else the name of the folder, else the only topic.
    """
    topics, place = sorted({f.topic for f in files}), folder_at(folder)
    named = expected or [t for t in topics if t == name_at(place.address)]
    if not named and len(topics) > 1:
        message = (
            f"`{place.address}` contains files of several topics ({', '.join(topics)}), and its name matches none."
        )
        return (), (FileProblem(place.address, "TOPIC_UNCLEAR", message, "Give each topic its own folder."),)
    own = named[0] if named else (topics[0] if topics else "")
    strange = tuple(
        report_foreign(f.name, f"`{f.name}` belongs to topic {f.topic}, but this log reads {own}.")
        for f in files
        if f.topic != own
    )
    return tuple(f for f in files if f.topic == own), strange


def list_by_number(feed: Feed, endings: Sequence[str], state: LogState) -> Listing:
    """Returns all files with these endings.

    If `file` orders the log, the first file with a clear name decides whether names have a time. Files of the other
    kind, and those with an unclear name, are problems.
    """
    taken = {entry.name for entry in state.landed}
    files, problems = list_any(
        feed.path,
        endings,
        NameReading.ANY,
        feed.options.get("files", ()),
        taken,
        feed.options.get("time_zone"),
        feed.options.get("record_path"),
        feed.options.get("leave_out", ()),
    )
    if not state.shape.orders_by_file:
        return Listing(files, problems)
    new = [file.name for file in files if file.name not in taken]
    # Versions of a history need a time.
    needs_time = state.shape.merge.engine is Engine.HISTORY and not state.shape.column_order
    dated = state.names is NameReading.DATED if state.names else needs_time or None
    is_dated, other = split_names(new, feed.options.get("time_zone"), dated=dated)
    reading = state.names or (NameReading.DATED if is_dated else NameReading.ANY)
    misfits = tuple(report_file_time(name, dated=is_dated, is_unclear=is_unclear(name)) for name in sorted(other))
    return Listing(tuple(replace(f, names=reading) for f in files if f.name not in other), (*problems, *misfits))


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a log, ordered by partition, start and name, and the problems of the others."""

    files: tuple[LandedFile, ...]
    problems: tuple[FileProblem, ...] = ()
