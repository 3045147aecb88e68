"""Landed files: which of them there are, and how one is told from another.

Hidden and temporary files are not looked at. A file whose name is of no use is reported, never silently skipped.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

from tidefold.domain.source_progress import NameReading
from tidefold.errors import InvalidInputError, NotFoundError, StorageError, TidefoldError
from tidefold.sources.landing.names import LINES, LandedName
from tidefold.sources.landing.problems import FileProblem, report_foreign, report_unplaced, report_unsafe
from tidefold.storage.safe_files import UnsafeFileError, list_below, open_regular, stat_regular

_TEMPORARY = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells a file from one that took its place: inode, length in bytes, time of change."""

    inode: int
    size: int
    changed: float

    def holds(self, now: Stamp) -> bool:
        """True while the file is the same one, unaltered or grown."""
        return self.inode == now.inode and (self == now or now.size > self.size)


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One landed file: `name` is relative to the log's folder, `path` absolute.

    One that stands `alone` is taken whatever comes of the others; else those of a partition are taken in order.
    `names`: how its name was read; None where the format has only one way.
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
        """What the file waits in line with."""
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


# Files, and what is wrong with the others.
Listed: TypeAlias = tuple[tuple[LandedFile, ...], tuple[FileProblem, ...]]


def list_landed(folder: Path, extensions: Collection[str] = LINES, reading: NameReading = NameReading.KAFKA) -> Listed:
    """All landed files below a folder, ordered by partition and start, and a problem for every other file.

    Raises NotFoundError when there is no such folder, and StorageError when anything in it cannot be looked at: a file
    that is not seen may come before one that is.
    """
    root = os.path.abspath(folder)
    try:
        # All names first: a sink ends a file before it begins the next, so a file that is looked at after its
        # successor was seen is seen complete.
        names = _names(root)
        found, problems = _find_landed(root, names, extensions, reading)
    except OSError as error:
        raise _listing_error(root, error) from error
    return tuple(sorted(found, key=lambda f: (f.partition, f.start, f.name))), tuple(problems)


def list_any(folder: Path, endings: Sequence[str], names: NameReading | None = None) -> Listed:
    """All files below a folder whose names end so, each taken by itself, and a problem for every other one.

    `names`: see LandedFile. Raises as `list_landed` does.
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
            if name.endswith(tuple(endings)):
                gzip = name.endswith(".gz")
                found.append(
                    LandedFile(name, f"{root}/{name}", stamp, folder.name, 0, 0, gzip, alone=True, names=names)
                )
            else:
                problems.append(report_foreign(name, f"The name of `{name}` does not end in {' or '.join(endings)}."))
    except OSError as error:
        raise _listing_error(root, error) from error
    return tuple(found), tuple(problems)


def _names(root: str) -> list[str]:
    """What lies below a folder and is neither folder nor hidden nor temporary; no link is followed."""
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
            place = (landed.topic, landed.partition, landed.start, landed.gzip)
            found.append(LandedFile(name, f"{root}/{name}", stamp, *place, names=reading))
    return [file for file in found if not any(_waits(file, one) for one in refused)], problems


def _foreign(root: str, name: str, why: str) -> FileProblem:
    """`why` the file is of another kind; empty: only the form of its name is missing."""
    try:
        stat_regular(root, name)
    except UnsafeFileError as error:
        return replace(report_unsafe(name, error.kind), blocking=False)
    return report_foreign(name, why) if why else report_unplaced(name)


def _waits(file: LandedFile, refused: LandedName) -> bool:
    """Whether a file comes after one that is refused: it is taken only when that one is there."""
    return (file.topic, file.partition) == (refused.topic, refused.partition) and file.start >= refused.start


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
    """The files of the log's own topic, and a problem for each of another.

    The topic is the one taken before (`known`), else the one that the folder is called after, else the only one there.
    """
    topics = sorted({f.topic for f in files})
    named = known or [t for t in topics if t == folder.name]
    if not named and len(topics) > 1:
        message = f"`{folder}` holds several topics ({', '.join(topics)}) and is called after none of them."
        return (), (FileProblem(str(folder), "TOPIC_UNCLEAR", message, "Give each topic a folder of its own."),)
    own = named[0] if named else (topics[0] if topics else "")
    strange = tuple(
        report_foreign(f.name, f"`{f.name}` is of topic {f.topic}, this log reads {own}.")
        for f in files
        if f.topic != own
    )
    return tuple(f for f in files if f.topic == own), strange
