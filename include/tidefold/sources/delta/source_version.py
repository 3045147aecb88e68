"""What a Delta table is at one version: its columns and live files, from its log alone (decision 0079)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidefold.changelog.schema import arrow_type
from tidefold.domain.table.table_spec import Column
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold.sources.delta.log import DeletionVector, DeltaLog, FileAction, MetaData, Protocol, make_damaged_error

_FEED, _MAPPING = "delta.enableChangeDataFeed", "delta.columnMapping.mode"
_MAPPED = "delta.columnMapping."
# What Delta calls the types of tidefold, and the narrower ones of Delta as Arrow has them.
_NAMES = {"integer": "int", "short": "int", "byte": "int", "timestamp_ntz": "timestamp"}
_NARROW = {"short": pa.int16(), "byte": pa.int8(), "timestamp_ntz": pa.timestamp("us")}
# What a reader must know of a table, and this one does. Columns of variants are read if the log ignores them.
_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
    "variantShredding-preview",
}
_READER_VERSION = 3


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a Delta table.

    type: in Arrow; None: one that no log can have, as a struct.
    own: with the type of a log, to read the text of a partition.
    stored_name, field_id: by which a file has it, if the table maps its columns.
    """

    name: str
    text: str
    type: pa.DataType | None
    own: Column
    stored_name: str
    field_id: int | None


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A table at a version. partitions: the stored names of the columns that files do not have."""

    version: int
    id: str
    configuration: Mapping[str, str]
    columns: tuple[SourceColumn, ...]
    partitions: frozenset[str]
    by_id: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns; one of a type that no log can have is null."""
        return pa.schema([(column.name, column.type or pa.null()) for column in self.columns])

    @property
    def has_feed(self) -> bool:
        """Whether the table records its changes."""
        return self.configuration.get(_FEED, "").lower() == "true"


def read_version(log: DeltaLog, version: int) -> SourceVersion:
    """Returns the table at a version.

    Raises NotFoundError if the log was cleaned up too far, InvalidInputError (DELTA_SOURCE_FEATURE), CorruptError.
    """
    meta: MetaData | None = None
    protocol: Protocol | None = None
    for action in _walk_back(log, version):
        meta, protocol = meta or action.meta_data, protocol or action.protocol
        if meta and protocol:
            break
    if meta is None:
        raise NotFoundError("NOT_FOUND", f"No commit or checkpoint says what version {version} of the table is.")
    _require_known(protocol or Protocol())
    mode = meta.configuration.get(_MAPPING, "none").lower()
    try:
        columns = tuple(_column(field, mode != "none") for field in json.loads(meta.schema_string)["fields"])
    except (ValueError, KeyError, TypeError) as error:
        raise make_damaged_error(f"the schema of version {version}", str(error)) from error
    stored = {column.name: column.stored_name for column in columns}
    partitions = frozenset(stored.get(name, name) for name in meta.partition_columns)
    return SourceVersion(version, meta.id, meta.configuration, columns, partitions, mode == "id")


def read_files(log: DeltaLog, version: int) -> list[FileAction]:
    """Returns the files that have the rows of a version, by name. Raises as `read_version`."""
    base = log.find_checkpoint(version)
    live: dict[tuple[str, DeletionVector | None], FileAction] = {}
    for action in log.read_checkpoint(base, files=True) if base is not None else ():
        if action.add:
            live[action.add.name, action.add.deletion_vector] = action.add
    for number in range(0 if base is None else base + 1, version + 1):
        actions = log.read_commit(number).actions
        for gone in filter(None, (action.remove for action in actions)):
            live.pop((gone.name, gone.deletion_vector), None)
        for added in filter(None, (action.add for action in actions)):
            live[added.name, added.deletion_vector] = added
    return sorted(live.values(), key=lambda file: file.name)


def find_first_readable(log: DeltaLog) -> int | None:
    """Returns the version from which on every commit and every file of its changes exist; None: no version."""
    paths = {entry.path for entry in log.store.list("")}
    readable: list[int] = []
    for version in reversed(log.versions):
        is_next = not readable or version == readable[-1] - 1
        if not is_next or not paths.issuperset(log.read_commit(version).files):
            break
        readable.append(version)
    return next((version for version in reversed(readable) if _is_known(log, version)), None)


def _is_known(log: DeltaLog, version: int) -> bool:
    try:
        read_version(log, version)
    except NotFoundError:
        return False
    return True


def find_first_with_feed(log: DeltaLog, newest: SourceVersion) -> int:
    """Returns the version from which on the table is this one and records its changes. newest: it does."""
    for version in reversed(log.versions):
        if any(action.meta_data for action in log.read_commit(version).actions):
            if not version or not _is_known(log, version - 1):
                return version
            before = read_version(log, version - 1)
            if before.id != newest.id or not before.has_feed:
                return version
    return log.versions[0]


def _walk_back(log: DeltaLog, version: int) -> Iterator[Any]:
    """Yields actions from a version back to the checkpoint before it, or to the first version."""
    base = log.find_checkpoint(version)
    for number in range(version, -1 if base is None else base, -1):
        yield from log.read_commit(number).actions
    if base is not None:
        yield from log.read_checkpoint(base, files=False)


def _require_known(protocol: Protocol) -> None:
    unknown = sorted(set(protocol.reader_features or ()) - _FEATURES)
    if protocol.min_reader_version > _READER_VERSION:
        unknown = [*unknown, f"reader version {protocol.min_reader_version}"]
    if unknown:
        raise InvalidInputError(
            "DELTA_SOURCE_FEATURE", f"The Delta table needs what tidefold cannot read: {', '.join(unknown)}."
        )


def _column(field: Mapping[str, Any], is_mapped: bool) -> SourceColumn:
    name, metadata = field["name"], field.get("metadata", {})
    arrow, own = _find_type(field["type"])
    stored = metadata.get(f"{_MAPPED}physicalName", name) if is_mapped else name
    text = field["type"] if isinstance(field["type"], str) else str(field["type"].get("type"))
    return SourceColumn(name, text, arrow, Column(name, own), stored, metadata.get(f"{_MAPPED}id"))


def _find_type(written: Any) -> tuple[pa.DataType | None, str]:
    if isinstance(written, dict):
        element, own = _find_type(written.get("elementType")) if written.get("type") == "array" else (None, "string")
        return (pa.list_(element), f"array<{own}>") if element and not own.startswith("array") else (None, "string")
    own = _NAMES.get(written, written)
    try:
        return _NARROW.get(written) or arrow_type(own), own
    except (ValueError, KeyError):
        return None, "string"
