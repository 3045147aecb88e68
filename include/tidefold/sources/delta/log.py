"""The log of a Delta table, commit by commit: which versions can still be read, and what each of them did."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from tidefold.storage import Store
from tidefold.typed_json import make_decoder

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_FEED, _MAPPING = "delta.enableChangeDataFeed", "delta.columnMapping.mode"


class FileAction(msgspec.Struct, rename="camel"):
    """A file that a commit adds or removes. `path` is relative to the table."""

    path: str
    partition_values: dict[str, str | None] | None = None
    size: int = 0
    data_change: bool = True
    deletion_vector: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return unquote(self.path)


class _MetaData(msgspec.Struct, rename="camel"):
    id: str
    configuration: dict[str, str] = {}


class _Info(msgspec.Struct, rename="camel"):
    timestamp: int | None = None
    in_commit_timestamp: int | None = None


class _Line(msgspec.Struct, rename="camel"):
    add: FileAction | None = None
    remove: FileAction | None = None
    cdc: FileAction | None = None
    meta_data: _MetaData | None = None
    commit_info: _Info | None = None


_lines = make_decoder(_Line)


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """A version of a table: its change files, and the data files added and removed.

    time: microseconds since 1970; None: it has none.
    is_whole: it has actions, and the last one to its end. Else it is still being written, or copied.
    """

    version: int
    checksum: str
    changes: tuple[FileAction, ...]
    added: tuple[FileAction, ...]
    removed: tuple[FileAction, ...]
    configuration: Mapping[str, str] | None
    time: int | None
    is_whole: bool

    @property
    def bytes(self) -> int:
        """The bytes to read of it, at least 1."""
        return max(1, sum(action.size for action in self.changes or (*self.added, *self.removed)))

    @property
    def files(self) -> tuple[str, ...]:
        """The files that its changes are read from."""
        return tuple(action.name for action in self.changes or (*self.added, *self.removed))

    @property
    def has_vectors(self) -> bool:
        """Whether rows were added or removed only by deletion vectors."""
        return not self.changes and any(a.deletion_vector is not None for a in (*self.added, *self.removed))


def versions(store: Store) -> tuple[int, ...]:
    """Returns the versions whose commits exist, ascending."""
    paths = (entry.path for entry in store.list("_delta_log"))
    return tuple(sorted(int(match[1]) for path in paths if (match := _COMMIT.fullmatch(path))))


def first_readable(store: Store, numbers: tuple[int, ...]) -> int:
    """Returns the version from which on every commit and every file of its changes exist."""
    if not numbers:
        return 0
    first = numbers[-1] + 1
    paths = {entry.path for entry in store.list("")}
    for version in reversed(numbers):
        if version != first - 1 or not paths.issuperset(read_commit(store, version).files):
            break
        first = version
    return first


def read_commit(store: Store, version: int) -> DeltaCommit:
    """Reads a commit. Raises NotFoundError if it does not exist any more, msgspec.DecodeError if it is not a commit."""
    data = store.read(commit_path(version))
    texts = [line for line in data.splitlines() if line.strip()]
    is_whole = bool(texts) and not _is_cut(texts[-1])
    lines = [_lines.decode(line) for line in texts[: None if is_whole else -1]]
    meta = next((line.meta_data for line in lines if line.meta_data), None)
    info = next((line.commit_info for line in lines if line.commit_info), None)
    millis = (info.in_commit_timestamp or info.timestamp) if info else None
    return DeltaCommit(
        version=version,
        checksum=hashlib.sha256(data).hexdigest(),
        changes=tuple(line.cdc for line in lines if line.cdc),
        added=tuple(line.add for line in lines if line.add and line.add.data_change),
        removed=tuple(line.remove for line in lines if line.remove and line.remove.data_change),
        configuration=meta.configuration if meta else None,
        time=None if millis is None else millis * 1000,
        is_whole=is_whole,
    )


def commit_path(version: int) -> str:
    """Returns the path of a commit below its table."""
    return f"_delta_log/{version:020d}.json"


def _is_cut(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    return False


def has_feed(configuration: Mapping[str, str]) -> bool:
    """Whether a table with these properties records its changes."""
    return configuration.get(_FEED, "").lower() == "true"


def is_mapped(configuration: Mapping[str, str]) -> bool:
    """Whether the columns of a table have other names in its files."""
    return configuration.get(_MAPPING, "none").lower() != "none"
