"""Lists landed files, and finds those that were rewritten.

Hidden and temporary files are skipped. A file with an unusable name is reported, never silently skipped.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeAlias

from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import LandedFileRecord, NameReading
from tidefold.errors import InvalidInputError
from tidefold.sources.landing.folders import ListedFile, Place, Stamp, folder_at, name_at
from tidefold.sources.landing.names import LINES, LandedName
from tidefold.sources.landing.problems import (
    FileProblem,
    report_changed,
    report_foreign,
    report_other_name,
    report_unopened,
    report_unplaced,
    report_unsafe,
)
from tidefold.storage import compute_sha256


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One landed file.

    name, path: relative to the log's folder, and absolute or an address.
    alone: it is ingested independently of other files. Otherwise the files of a partition are ingested in order.
    names: how its name was read; None if the format has only one way.
    """

    name: str
    path: str
    stamp: Stamp
    topic: str
    partition: int
    start: int
    gzip: bool
    alone: bool = False
    names: NameReading | None = None

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
) -> Listed:
    """Returns all landed files below a folder, ordered by partition and start, and a problem for every other file.

    known: see LandingPlace.list_files.
    Raises what `LandingPlace.list_files` raises.
    """
    place = folder_at(folder)
    found: list[LandedFile] = []
    problems: list[FileProblem] = []
    refused: list[LandedName] = []
    for one in place.list_files(known):
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
        found.append(
            LandedFile(
                one.name,
                f"{place.address}/{one.name}",
                one.stamp,
                topic=landed.topic,
                partition=landed.partition,
                start=landed.start,
                gzip=landed.gzip,
                names=reading,
            )
        )
    # A file after a refused one of its partition is ingested only when the refused one can be.
    waiting = {
        file
        for file in found
        for one in refused
        if (file.topic, file.partition) == (one.topic, one.partition) and file.start >= one.start
    }
    ready = (file for file in found if file not in waiting)
    return tuple(sorted(ready, key=lambda f: (f.partition, f.start, f.name))), tuple(problems)


def list_any(
    folder: Place,
    endings: Sequence[str],
    names: NameReading | None = None,
    patterns: Sequence[str] = (),
    known: Collection[str] = (),
) -> Listed:
    """Returns all files below a folder with these endings, each ingested independently, and a problem for each other
    file.

    names: see LandedFile.
    patterns: of further names, as `*.log.gz`.
    known: see LandingPlace.list_files.
    Raises what `LandingPlace.list_files` raises.
    """
    place = folder_at(folder)
    found: list[LandedFile] = []
    problems: list[FileProblem] = []
    for one in place.list_files(known):
        name = one.name
        if one.unsafe:
            problems.append(report_unsafe(name, one.unsafe.kind))
        elif not _is_wanted(name, endings, patterns):
            problems.append(replace(report_other_name(name, endings), size=one.stamp.size, changed=one.stamp.changed))
        else:
            path = f"{place.address}/{name}"
            gzip = name.lower().endswith(".gz")
            found.append(LandedFile(name, path, one.stamp, name_at(place.address), 0, 0, gzip, alone=True, names=names))
    return tuple(found), tuple(problems)


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
    files: Sequence[LandedFile], folder: Place, known: Sequence[str]
) -> tuple[tuple[LandedFile, ...], tuple[FileProblem, ...]]:
    """Returns the files of the log's own topic, and a problem for each other file.

    The topic is the one that was ingested before (`known`), else the name of the folder, else the only topic.
    """
    topics, place = sorted({f.topic for f in files}), folder_at(folder)
    named = known or [t for t in topics if t == name_at(place.address)]
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
