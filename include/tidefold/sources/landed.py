"""Landed files: what their names say, which of them there are, and how one is told from another.

A Kafka sink writes `<topic>+<partition>+<start offset>.<ext>` (Confluent) or `<topic>-<partition>-<start offset>.<ext>`
(Aiven). Hidden and temporary files are not looked at; any other name is reported, never silently skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsspec.implementations.local import LocalFileSystem

from tidefold.lifecycle.errors import InvalidInputError, NotFoundError
from tidefold.sources.problems import Problem, foreign

_TAIL = r"\.(?P<extension>(?:jsonl|json)(?:\.gz)?)"
# Kafka allows a topic letters, digits and `._-`, so the plus form is never ambiguous.
_PLUS = re.compile(r"(?P<topic>[\w.-]{1,249})\+(?P<partition>\d{1,9})\+(?P<start>\d{10,18})" + _TAIL, re.ASCII)
_DASH = re.compile(r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d{1,9})-(?P<start>\d{1,18})" + _TAIL, re.ASCII)
_TEMPORARY = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class LandedName:
    """What a Kafka sink says in a file's name."""

    topic: str
    partition: int
    start: int
    extension: str = "jsonl"

    def __str__(self) -> str:
        return f"{self.topic}+{self.partition}+{self.start:010d}.{self.extension}"

    @classmethod
    def parse(cls, name: str) -> LandedName:
        """Raises InvalidInputError when the name is not one that a Kafka sink gives."""
        found = _PLUS.fullmatch(name) or _DASH.fullmatch(name)
        if not found:
            raise InvalidInputError("FOREIGN_FILE", f"`{name}` is not a file name of a Kafka sink.")
        return cls(found["topic"], int(found["partition"]), int(found["start"]), found["extension"])

    @property
    def gzip(self) -> bool:
        return self.extension.endswith(".gz")


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
    """One landed file: `name` is relative to the log's folder, `path` absolute."""

    name: str
    path: str
    stamp: Stamp
    topic: str
    partition: int
    start: int
    gzip: bool

    @property
    def size(self) -> int:
        return self.stamp.size


def stamp_of(path: str) -> Stamp:
    """The stamp of a file as it is now. Raises FileNotFoundError."""
    info = LocalFileSystem().info(path)
    return Stamp(int(info["ino"]), int(info["size"]), float(info["mtime"]))


def list_landed(folder: Path) -> tuple[tuple[LandedFile, ...], tuple[Problem, ...]]:
    """All landed files below a folder, ordered by partition and start, and a problem for every other file.

    Raises NotFoundError when there is no such folder.
    """
    if not folder.is_dir():
        raise NotFoundError(
            "LANDING_MISSING",
            f"The landing folder `{folder}` does not exist.",
            hint="Check `source.path`; make the folder if nothing was landed yet.",
        )
    found: list[LandedFile] = []
    problems: list[Problem] = []
    root = os.path.abspath(folder)
    for path, info in LocalFileSystem().find(root, detail=True).items():
        name = PurePosixPath(path).relative_to(root)
        if _hidden(name):
            continue
        try:
            landed = LandedName.parse(name.name)
        except InvalidInputError as error:
            problems.append(foreign(str(name), error.message))
            continue
        stamp = Stamp(int(info["ino"]), int(info["size"]), float(info["mtime"]))
        found.append(LandedFile(str(name), path, stamp, landed.topic, landed.partition, landed.start, landed.gzip))
    return tuple(sorted(found, key=lambda f: (f.partition, f.start, f.name))), tuple(problems)


def _hidden(name: PurePosixPath) -> bool:
    return name.suffix in _TEMPORARY or any(part.startswith((".", "_")) for part in name.parts)


def of_topic(
    files: Sequence[LandedFile], folder: Path, known: Sequence[str]
) -> tuple[tuple[LandedFile, ...], tuple[Problem, ...]]:
    """The files of the log's own topic, and a problem for each of another.

    The topic is the one taken before (`known`), else the one that the folder is called after, else the only one there.
    """
    topics = sorted({f.topic for f in files})
    named = known or [t for t in topics if t == folder.name]
    if not named and len(topics) > 1:
        message = f"`{folder}` holds several topics ({', '.join(topics)}) and is called after none of them."
        return (), (Problem(str(folder), "TOPIC_UNCLEAR", message, "Give each topic a folder of its own."),)
    own = named[0] if named else (topics[0] if topics else "")
    strange = tuple(
        foreign(f.name, f"`{f.name}` is of topic {f.topic}, this log takes {own}.") for f in files if f.topic != own
    )
    return tuple(f for f in files if f.topic == own), strange
