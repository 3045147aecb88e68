"""Writes the Delta commits that deltalake cannot write: files together with their schema, and deletion vectors.

Measured for deltalake 1.6 (decisions 0019 and 0021): `create_write_transaction` silently ignores a new schema when it
appends, and refuses removes when it overwrites. With the schema in a separate commit, readers would see old files
without their values. Its AddAction has no deletion vector. So these few lines write the commit with the store's own
put-if-absent.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from deltalake import DeltaTable, Schema

from tidefold.delta.deletion_vectors import descriptor
from tidefold.domain.paths import CHANGE_FOLDER
from tidefold.domain.snapshot.manifest import DataFile, Deletions
from tidefold.errors import UnknownOutcomeError
from tidefold.storage import Store

# The lowest reader that knows deletion vectors.
VECTORS_READER = 3


@dataclass(frozen=True, slots=True)
class TableProtocol:
    """The features that readers and writers of a table must know, beside those of the lowest protocol of all."""

    vectors: bool = False
    feed: bool = False

    @property
    def versions(self) -> tuple[int, int]:
        """The lowest versions of readers and writers."""
        return (VECTORS_READER if self.vectors else 1, 7 if self.vectors or self.feed else 2)

    @property
    def reader_features(self) -> list[str]:
        return ["deletionVectors"] if self.vectors else []

    @property
    def writer_features(self) -> list[str]:
        if self.versions[1] < 7:
            return []
        return [*self.reader_features, *(["changeDataFeed"] if self.feed else []), "appendOnly", "invariants"]

    @property
    def action(self) -> dict[str, object]:
        """The `protocol` action."""
        reader, writer = self.versions
        lists = {"readerFeatures": self.reader_features, "writerFeatures": self.writer_features}
        return {"minReaderVersion": reader, "minWriterVersion": writer, **{n: one for n, one in lists.items() if one}}


@dataclass(frozen=True, slots=True)
class Active:
    """A file as a table shows it: its size in bytes, and its deleted rows."""

    size: int
    deletions: Deletions | None = None


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What the `metaData` action of a commit replaces."""

    schema: Schema
    comment: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The content of a commit.

    facts: for people, and to recognize the commit.
    adds: the added files.
    removes: the removed files, by path.
    metadata: the schema, the comment and the properties, if one of them is new.
    protocol: a new protocol.
    transactions: versions by application id, which the table keeps.
    changes: the files of the change data feed.
    """

    facts: Mapping[str, str]
    adds: Sequence[DataFile]
    removes: Mapping[str, Active] = field(default_factory=dict)
    metadata: TableMetadata | None = None
    protocol: TableProtocol | None = None
    transactions: Mapping[str, int] = field(default_factory=dict)
    changes: Sequence[DataFile] = ()

    @property
    def has_vectors(self) -> bool:
        """Whether the commit adds or removes a deletion vector."""
        return any(f.deletions for f in self.adds) or any(a.deletions for a in self.removes.values())

    @property
    def is_raw(self) -> bool:
        """Whether deltalake cannot write it."""
        return bool(self.metadata or self.protocol or self.changes or self.has_vectors)


def write_commit(store: Store, path: str, table: DeltaTable, commit: TableCommit) -> None:
    """Writes the version after the one that `table` was read at.

    Raises AlreadyExistsError if another commit was faster. If the answer is lost, the caller reads the table again.
    """
    lines = [
        _info("WRITE", commit.facts),
        *_transactions(commit),
        *([{"protocol": commit.protocol.action}] if commit.protocol else []),
    ]
    if commit.metadata:
        now = table.metadata()
        lines.append(_metadata({"id": str(now.id), "name": now.name, "createdTime": now.created_time}, commit.metadata))
    # A file whose deletions change is removed and added by one commit.
    lines += [_remove(name, active) for name, active in commit.removes.items()]
    lines += map(_add, commit.adds)
    lines += map(_change, commit.changes)
    _put(store, path, table.version() + 1, lines)


def write_first(store: Store, path: str, name: str, commit: TableCommit) -> None:
    """Makes a table that deltalake cannot make. Raises AlreadyExistsError if there is one."""
    assert commit.metadata
    assert commit.protocol
    known = {"id": str(uuid.uuid4()), "name": name, "createdTime": _millis()}
    made = [{"protocol": commit.protocol.action}, _metadata(known, commit.metadata), *map(_add, commit.adds)]
    _put(store, path, 0, [_info("CREATE TABLE", commit.facts), *_transactions(commit), *made])


def _put(store: Store, path: str, version: int, lines: Iterable[Mapping[str, object]]) -> None:
    try:
        store.put_if_absent(f"{path}/_delta_log/{version:020d}.json", b"\n".join(map(msgspec.json.encode, lines)))
    except UnknownOutcomeError:
        return


def _info(operation: str, facts: Mapping[str, str]) -> Mapping[str, object]:
    # As deltalake writes it.
    said = {"timestamp": _millis(), "operation": operation, "operationParameters": {"mode": "Append"}}
    return {"commitInfo": {**said, "engineInfo": "tidefold", **facts}}


def _transactions(commit: TableCommit) -> list[Mapping[str, object]]:
    millis = _millis()
    return [{"txn": {"appId": a, "version": v, "lastUpdated": millis}} for a, v in commit.transactions.items()]


def _metadata(known: Mapping[str, object], metadata: TableMetadata) -> Mapping[str, object]:
    said = {"description": metadata.comment, "configuration": metadata.properties}
    layout = {"format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    return {"metaData": {**known, "schemaString": metadata.schema.to_json(), **layout, **said}}


def _add(file: DataFile) -> Mapping[str, object]:
    vector, stats = _vector(file.deletions), file.stats
    if vector:
        # A bound may come from a row that is deleted now.
        stats = f'{stats.removesuffix("}")}, "tightBounds": false}}'
    facts = {"partitionValues": {}, "size": file.bytes, "modificationTime": _millis(), "dataChange": True}
    return {"add": {"path": f"_data/{file.name}", **facts, "stats": stats, **vector}}


def _remove(path: str, active: Active) -> Mapping[str, object]:
    # With its vector: one path with two vectors is two files to Delta.
    gone = {"path": path, "deletionTimestamp": _millis(), "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**gone, "partitionValues": {}, "size": active.size, **_vector(active.deletions)}}


def _change(file: DataFile) -> Mapping[str, object]:
    facts = {"partitionValues": {}, "size": file.bytes, "dataChange": False}
    # Nothing else keeps the checksum, which `verify` needs.
    return {"cdc": {"path": f"{CHANGE_FOLDER}/{file.name}", **facts, "tags": {"sha256": file.sha256}}}


def _vector(given: Deletions | None) -> Mapping[str, object]:
    return {"deletionVector": descriptor(given)} if given else {}


def _millis() -> int:
    return int(time.time() * 1000)
