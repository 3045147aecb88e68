"""The log of a Delta table: its commits and checkpoints, as the Delta protocol defines them."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.errors import CorruptError
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore
from tidefold.typed_json import convert_value, make_decoder

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
# In one file, in several with their number and count, or with a unique name.
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
_SIDECARS = "_delta_log/_sidecars"
_META, _FILES = ("metaData", "protocol"), ("add", "sidecar")


class DeletionVector(msgspec.Struct, rename="camel", frozen=True):
    """Where the numbers of the deleted rows of a file are. cardinality: how many."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None


class FileAction(msgspec.Struct, rename="camel"):
    """A file that a commit adds or removes. `path` is relative to the table."""

    path: str
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    data_change: bool = True
    deletion_vector: DeletionVector | None = None

    @property
    def name(self) -> str:
        return unquote(self.path)


class MetaData(msgspec.Struct, rename="camel"):
    """The columns and properties that a table has from a commit on."""

    id: str
    schema_string: str = '{"fields": []}'
    partition_columns: list[str] = []
    configuration: dict[str, str] = {}


class Protocol(msgspec.Struct, rename="camel"):
    """What a reader of the table must know."""

    min_reader_version: int = 1
    reader_features: list[str] | None = None


class _Info(msgspec.Struct, rename="camel"):
    timestamp: Any = None
    in_commit_timestamp: Any = None


class _Sidecar(msgspec.Struct):
    path: str


class Action(msgspec.Struct, rename="camel"):
    """A line of a commit, or a row of a checkpoint."""

    add: FileAction | None = None
    remove: FileAction | None = None
    cdc: FileAction | None = None
    meta_data: MetaData | None = None
    protocol: Protocol | None = None
    commit_info: _Info | None = None
    sidecar: _Sidecar | None = None


_lines = make_decoder(Action)


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """A version of a table: its change files, and the data files added and removed.

    time: microseconds since 1970; None: it has none.
    is_whole: it has actions, and the last one to its end. Else it is still being written, or copied.
    actions: all of it, also those that change no row.
    """

    version: int
    checksum: str
    changes: tuple[FileAction, ...]
    added: tuple[FileAction, ...]
    removed: tuple[FileAction, ...]
    time: int | None
    is_whole: bool
    actions: tuple[Action, ...]

    @property
    def bytes(self) -> int:
        """The bytes to read of it, at least 1."""
        return max(1, sum(action.size or 0 for action in self.changes or (*self.added, *self.removed)))

    @property
    def files(self) -> tuple[str, ...]:
        """The files that its changes are read from."""
        return tuple(action.name for action in self.changes or (*self.added, *self.removed))


class DeltaLog:
    """The commits and whole checkpoints that exist at one moment.

    versions: those whose commits exist, ascending.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        paths = [entry.path for entry in store.list("_delta_log")]
        self.versions = tuple(sorted(int(match[1]) for path in paths if (match := _COMMIT.fullmatch(path))))
        self._checkpoints: dict[int, list[str]] = {}
        self._last: DeltaCommit | None = None
        parts: dict[tuple[int, int], list[str]] = defaultdict(list)
        for path in sorted(paths):
            if match := _CHECKPOINT.fullmatch(path):
                parts[int(match[1]), int(match[2] or 1)].append(path)
        for (version, count), names in parts.items():
            if len(names) >= count:
                self._checkpoints[version] = names if count > 1 else names[:1]

    def find_checkpoint(self, version: int) -> int | None:
        """Returns the version of the newest checkpoint up to a version."""
        return max((one for one in self._checkpoints if one <= version), default=None)

    @property
    def newest(self) -> int | None:
        """The newest version of the table; None: there is no table."""
        return max((*self.versions, *self._checkpoints), default=None)

    @property
    def oldest(self) -> int | None:
        """The oldest version of which the log says what the table was; None: there is none."""
        return 0 if 0 in self.versions else min(self._checkpoints, default=None)

    def read_commit(self, version: int) -> DeltaCommit:
        """Reads a commit. Raises NotFoundError if it does not exist any more, CorruptError if it is not a commit."""
        if self._last is None or self._last.version != version:
            self._last = self._read_commit(version)
        return self._last

    def _read_commit(self, version: int) -> DeltaCommit:
        data = self.store.read(commit_path(version))
        texts = [line for line in data.splitlines() if line.strip()]
        is_whole = bool(texts) and not _is_cut(texts[-1])
        lines = tuple(_decode(texts if is_whole else texts[:-1], commit_path(version)))
        info = next((line.commit_info for line in lines if line.commit_info), _Info())
        millis = next((one for one in (info.in_commit_timestamp, info.timestamp) if isinstance(one, int)), None)
        return DeltaCommit(
            version=version,
            checksum=hashlib.sha256(data).hexdigest(),
            changes=tuple(line.cdc for line in lines if line.cdc),
            added=tuple(line.add for line in lines if line.add and line.add.data_change),
            removed=tuple(line.remove for line in lines if line.remove and line.remove.data_change),
            time=None if millis is None else millis * 1000,
            is_whole=is_whole,
            actions=lines,
        )

    def read_checkpoint(self, version: int, *, files: bool) -> Iterator[Action]:
        """Yields the live files of a checkpoint, or what the table is. Raises NotFoundError, CorruptError."""
        for path in self._checkpoints[version]:
            for action in _read_actions(self.store, path, _FILES if files else _META):
                if action.sidecar is None:
                    yield action
                else:
                    yield from _read_actions(self.store, f"{_SIDECARS}/{action.sidecar.path}", ("add",))


def open_source(address: str) -> Store:
    """Opens the folder of a table. No link below it is followed."""
    store = open_store(address, Path("/"))
    return LocalStore(store.root, private=True) if isinstance(store, LocalStore) else store


def commit_path(version: int) -> str:
    """Returns the path of a commit below its table."""
    return f"_delta_log/{version:020d}.json"


def _read_actions(store: Store, path: str, kinds: tuple[str, ...]) -> Iterator[Action]:
    if path.endswith(".json"):
        yield from _decode([line for line in store.read(path).splitlines() if line.strip()], path)
        return
    try:
        file = pq.ParquetFile(pa.BufferReader(store.read(path)))
        present = [kind for kind in kinds if kind in file.schema_arrow.names]
        for batch in file.iter_batches(columns=present):
            for kind in present:
                for row in batch.column(kind).drop_null().to_pylist(maps_as_pydicts="strict"):
                    values = {name: value for name, value in row.items() if value is not None}
                    yield convert_value({kind: values}, Action)
    except (pa.ArrowException, OSError, msgspec.ValidationError) as error:
        raise make_damaged_error(f"`{path}`", str(error).splitlines()[0]) from error


def _decode(lines: list[bytes], path: str) -> Iterator[Action]:
    for number, line in enumerate(lines, 1):
        try:
            yield _lines.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise make_damaged_error(f"line {number} of `{path}`", str(error)) from error


def make_damaged_error(place: str, why: str) -> CorruptError:
    """The error of a file of the table that is not what the Delta protocol says."""
    return CorruptError("DELTA_SOURCE_DAMAGED", f"The Delta table is damaged in {place}: {why}.")


def _is_cut(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    return False
