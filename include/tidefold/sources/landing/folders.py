"""Landed files by name and place: a folder on this machine's disks, or objects below a prefix in a store.

All code that lists or opens landed files uses this module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias
from urllib.parse import unquote

from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import NameReading
from tidefold.errors import InvalidInputError, RefusedError
from tidefold.sources.landing.landing_place import DiskFolder, LandingPlace, find_kind
from tidefold.sources.landing.name_times import UUID
from tidefold.sources.landing.streams import is_packed_name
from tidefold.storage.cloud_address import SCHEMES

# A path, or the address of a folder in an object store, such as `s3://bucket/prefix`.
Place: TypeAlias = str | os.PathLike[str]
# A sink of Confluent's form writes `<topic>+<partition>+<start offset>.<ext>`: no other name looks like that. The dash
# form of other sinks, `<topic>-<partition>-<start offset>.<ext>`, looks like a name with a date, such as
# `orders-2026-11-01.jsonl`. It is used only if the configuration says so. A log keeps the reading of its first file.
# Aiven's sink adds nothing but `.gz`.
LINES = ("jsonl", "json", "jsonl.gz", "json.gz", "gz", "jsonl.zst", "json.zst")
_TAIL = r"\.(?P<extension>[a-z]+(?:\.[a-z]+)?)"
# Kafka allows a topic letters, digits and `._-`, so the plus form is never ambiguous.
_PLUS = re.compile(r"(?P<topic>[\w.-]{1,249})\+(?P<partition>\d{1,9})\+(?P<start>\d{10,18})" + _TAIL, re.ASCII)
_DASH = re.compile(r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d{1,9})-(?P<start>\d{1,18})" + _TAIL, re.ASCII)


def folder_at(address: Place) -> LandingPlace:
    """The landing folder at a path, or at an address such as `s3://bucket/prefix` or `sftp://host/folder`.

    Raises InvalidInputError.
    """
    text = os.fspath(address)
    scheme, slashes, _ = text.partition(":/")
    scheme = scheme if slashes and "/" not in scheme else ""
    # Imported here, so that only logs in an object store load its client.
    if scheme in SCHEMES:
        from tidefold.sources.landing.cloud_folder import CloudFolder

        return CloudFolder(text)
    if scheme not in ("", "file"):
        from tidefold.sources.landing.fsspec_folder import FsspecFolder

        return FsspecFolder(text)
    return DiskFolder(text)


def name_at(address: Place) -> str:
    """The last part of a folder's path or address."""
    return folder_at(address).address.rpartition("/")[2]


def find_table_above(address: Place) -> str:
    """Returns which kind of table a landing folder of a disk belongs to, as `data` of an Iceberg table; empty: none."""
    folder = Path(os.path.abspath(address))
    kinds = ((find_kind(one), folder.relative_to(one).parts[:1]) for one in (folder, *folder.parents[:3]))
    return next((kind for kind, below in kinds if kind and (kind != "Iceberg" or below in ((), ("data",)))), "")


def explain_table(kind: str) -> str:
    """Returns why the files of such a table are no feed, and the next step."""
    step = "name it as `table:` of a source `delta-cdf` or `delta`" if kind == "Delta" else "export its rows as files"
    return f"{kind} table: its own log says which of its files count, so they are no feed; {step}"


def read_folders(path: str) -> dict[str, str | None]:
    """Returns the values that the names of a file's folders have, as in `dt=2026-01-31/part-0.csv`; None: null."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return {name: None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for name, value in pairs}


@dataclass(frozen=True, slots=True)
class LandedName:
    """The parts of a file name of a Kafka sink."""

    topic: str
    partition: int
    start: int
    extension: str = "jsonl"

    def __str__(self) -> str:
        return f"{self.topic}+{self.partition}+{self.start:010d}.{self.extension}"

    @classmethod
    def parse(
        cls, name: str, extensions: Collection[str] = LINES, reading: NameReading = NameReading.KAFKA
    ) -> LandedName:
        """Raises InvalidInputError if a Kafka sink does not give such a name to files with these extensions."""
        match = _PLUS.fullmatch(name) or (_DASH.fullmatch(name) if reading is NameReading.KAFKA_DASH else None)
        if not match:
            raise InvalidInputError("FOREIGN_FILE", f"`{name}` is not a file name of a Kafka sink.")
        if match["extension"] not in extensions:
            endings = ", ".join(f"`.{extension}`" for extension in extensions)
            raise InvalidInputError("FOREIGN_FILE", f"`{name}` ends with none of {endings}.")
        return cls(match["topic"], int(match["partition"]), int(match["start"]), match["extension"])

    @property
    def packed(self) -> bool:
        return is_packed_name(f".{self.extension}")


def pattern_for(name: str) -> str:
    """A pattern for the names of files of the same kind: `*.log.gz` for `1793520000.log.gz`."""
    own = PurePosixPath(name).name
    suffixes = [part for part in PurePosixPath(own).suffixes if not any(map(str.isdigit, part))]
    ending = "".join(suffixes[-2:] if own.endswith(".gz") else suffixes[-1:])
    if ending and own.endswith(ending):
        return f"*{ending}"
    # Dates, numbers and random ids differ from file to file; the words stay.
    return re.sub(rf"{UUID}|[^\W_]*\d[^\W_]*", "*", own.replace("[", "[[]"))


def is_dash_name(name: str, extensions: Collection[str] = LINES) -> bool:
    """Whether a name has the dash form."""
    match = _DASH.fullmatch(name)
    return bool(match) and match["extension"] in extensions if match else False


def start_in(name: str) -> int:
    """The offset in a name of either form; -1 for any other name."""
    match = _PLUS.fullmatch(name) or _DASH.fullmatch(name)
    return int(match["start"]) if match else -1


def choose_reading(state: LogState, configured: NameReading | None) -> NameReading | None:
    """How the names of new files are read; None if neither the log nor the configuration decides it.

    Raises RefusedError if the configuration reads the names of taken files in another way.
    """
    frozen = state.names
    # Both read every name of the plus form alike. Dated names have no other meaning than their time.
    same = ((NameReading.KAFKA, NameReading.KAFKA_DASH), (NameReading.DATED, NameReading.ANY))
    widened = (frozen, configured) in same
    if frozen is NameReading.DATED and widened:
        return frozen
    if frozen is None or configured is None or frozen is configured or widened:
        return configured or frozen
    raise RefusedError(
        "NAMES_CHANGED",
        f"Log `{state.log}` was started with `names: {frozen}`, but the configuration now has `names: {configured}`.",
        hint=f"Set `names: {frozen}`, or feed the files to a new log.",
    )
