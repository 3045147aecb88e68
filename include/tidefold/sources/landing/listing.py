"""Lists landed files, and finds those that were rewritten.

Hidden and temporary files are skipped. A file with an unusable name is reported, never silently skipped.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import NameReading
from tidefold.errors import InvalidInputError, NotFoundError, StorageError, TidefoldError
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
from tidefold.storage.safe_files import UnsafeFileError, list_below, open_regular, stat_regular

_TEMPORARY = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What distinguishes a file from one that replaced it: inode, length in bytes, time of change."""

    inode: int
    size: int
    changed: float

    def holds(self, now: Stamp) -> bool:
        """Whether the file is still the same one, unchanged or grown."""
        return self.inode == now.inode and (self == now or now.size > self.size)


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One landed file.

    name, path: relative to the log's folder, and absolute.
    alone: it is taken independently of other files. Otherwise the files of a partition are taken in order.
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
        """The files that must be taken in order have the same queue."""
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
    return open_regular(file.root, file.name)


def stamp_of(root: str, name: str) -> Stamp:
    """The stamp of a file of a folder as it is now. Raises UnsafeFileError, OSError."""
    return stamp_from(stat_regular(root, name))


def stamp_from(found: os.stat_result) -> Stamp:
    return Stamp(found.st_ino, found.st_size, found.st_mtime)


# Files, and the problems of the others.
Listed: TypeAlias = tuple[tuple[LandedFile, ...], tuple[FileProblem, ...]]


def list_landed(folder: Path, extensions: Collection[str] = LINES, reading: NameReading = NameReading.KAFKA) -> Listed:
    """All landed files below a folder, ordered by partition and start, and a problem for every other file.

    Raises NotFoundError if the folder does not exist, and StorageError if anything in it cannot be read: a file that is
    not seen may come before one that is.
    """
    root = os.path.abspath(folder)
    try:
        # All names first: a sink completes a file before it starts the next. So the size of a file that is read
        # after its successor was listed is final.
        names = _names(root)
        found, problems = _find_landed(root, names, extensions, reading)
    except OSError as error:
        raise _listing_error(root, error) from error
    return tuple(sorted(found, key=lambda f: (f.partition, f.start, f.name))), tuple(problems)


def list_any(
    folder: Path, endings: Sequence[str], names: NameReading | None = None, patterns: Sequence[str] = ()
) -> Listed:
    """All files below a folder with these endings, each taken independently, and a problem for every other file.

    names: see LandedFile.
    patterns: of further names, as `*.log.gz`.
    Raises what `list_landed` raises.
    """
    root = os.path.abspath(folder)
    found: list[LandedFile] = []
    problems: list[FileProblem] = []
    try:
        for name in _names(root):
            try:
                stamp = stamp_of(root, name)
            except UnsafeFileError as error:
                problems.append(report_unsafe(name, error.kind))
                continue
            if _is_wanted(name, endings, patterns):
                gzip = name.lower().endswith(".gz")
                found.append(
                    LandedFile(name, f"{root}/{name}", stamp, folder.name, 0, 0, gzip, alone=True, names=names)
                )
            else:
                problems.append(report_other_name(name, endings))
    except OSError as error:
        raise _listing_error(root, error) from error
    return tuple(found), tuple(problems)


def _is_wanted(name: str, endings: Sequence[str], patterns: Sequence[str]) -> bool:
    own = name.rpartition("/")[2]
    return own.lower().endswith(tuple(endings)) or any(fnmatch.fnmatchcase(own, pattern) for pattern in patterns)


def find_rewritten(files: Sequence[LandedFile], state: LogState) -> tuple[FileProblem, ...]:
    """One problem for each taken file that was rewritten with the same length.

    The time of change only decides which files are read; their bytes decide. A file that was merely touched is read
    again on every run.
    """
    taken = {entry.name: entry for entry in state.landed}
    problems = []
    for file in files:
        entry = taken.get(file.name)
        if entry is None or entry.length != file.size or entry.changed == file.stamp.changed:
            continue
        try:
            with open_landed(file) as stream:
                same = hashlib.file_digest(cast(io.BufferedReader, stream), "sha256").hexdigest() == entry.checksum
        except OSError as error:
            problems.append(report_unopened(file.name, error))
            continue
        if not same:
            problems.append(report_changed(file.name, "holds other bytes than were taken from it"))
    return tuple(problems)


def _names(root: str) -> list[str]:
    """All files below a folder that are neither hidden nor temporary. No link is followed."""
    names = list_below(root, skip=lambda name: name.startswith((".", "_")))
    return sorted(name for name in names if not name.endswith(_TEMPORARY))


def _find_landed(
    root: str, names: Sequence[str], extensions: Collection[str], reading: NameReading
) -> tuple[list[LandedFile], list[FileProblem]]:
    found: list[LandedFile] = []
    problems: list[FileProblem] = []
    refused: list[LandedName] = []
    for name in names:
        landed = None
        try:
            landed = LandedName.parse(name.rpartition("/")[2], extensions, reading)
            stamp = stamp_of(root, name)
        except InvalidInputError as error:
            of_this_kind = name.endswith(tuple(f".{extension}" for extension in extensions))
            problems.append(_foreign(root, name, "" if of_this_kind else error.message))
        except UnsafeFileError as error:
            problems.append(report_unsafe(name, error.kind))
            refused += [landed] if landed else []
        else:
            found.append(
                LandedFile(
                    name,
                    f"{root}/{name}",
                    stamp,
                    topic=landed.topic,
                    partition=landed.partition,
                    start=landed.start,
                    gzip=landed.gzip,
                    names=reading,
                )
            )
    # A file that comes after a refused one of its partition is taken only when that one can be.
    waiting = {
        file
        for file in found
        for one in refused
        if (file.topic, file.partition) == (one.topic, one.partition) and file.start >= one.start
    }
    return [file for file in found if file not in waiting], problems


def _foreign(root: str, name: str, why: str) -> FileProblem:
    """`why`: why the file is of another kind; empty: its name has not the right form."""
    try:
        stat_regular(root, name)
    except UnsafeFileError as error:
        return replace(report_unsafe(name, error.kind), blocking=False)
    return report_foreign(name, why) if why else report_unplaced(name)


def _listing_error(root: str, error: OSError) -> TidefoldError:
    if error.filename == root and isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFoundError(
            "LANDING_MISSING",
            f"The landing folder `{root}` does not exist.",
            hint="Check `source.path`; make the folder if nothing was landed yet.",
        )
    return StorageError(
        "LANDING_UNREADABLE",
        f"`{error.filename or root}` cannot be read: {error.strerror or error}.",
        hint="Nothing was ingested, because it may contain earlier files. Check permissions and disk, then run again.",
    )


def of_topic(
    files: Sequence[LandedFile], folder: Path, known: Sequence[str]
) -> tuple[tuple[LandedFile, ...], tuple[FileProblem, ...]]:
    """The files of the log's own topic, and a problem for each other file.

    The topic is the one that was taken before (`known`), else the name of the folder, else the only topic.
    """
    topics = sorted({f.topic for f in files})
    named = known or [t for t in topics if t == folder.name]
    if not named and len(topics) > 1:
        message = f"`{folder}` contains files of several topics ({', '.join(topics)}), and its name matches none."
        return (), (FileProblem(str(folder), "TOPIC_UNCLEAR", message, "Give each topic a folder of its own."),)
    own = named[0] if named else (topics[0] if topics else "")
    strange = tuple(
        report_foreign(f.name, f"`{f.name}` is of topic {f.topic}, this log reads {own}.")
        for f in files
        if f.topic != own
    )
    return tuple(f for f in files if f.topic == own), strange
