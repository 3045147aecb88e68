"""Writes the commits of Delta tables, with the store's own put-if-absent.

Measured for deltalake 1.6 (decisions 0019 and 0021): `create_write_transaction` silently ignores a new schema when it
appends, and refuses removes when it overwrites. With the schema in a separate commit, readers would see old files
without their values. Its AddAction has no deletion vector, and it syncs no file.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
from deltalake import DeltaTable, Schema

from tidefold import __version__
from tidefold.delta.deletion_vectors import Descriptor, descriptor
from tidefold.domain.paths import CHANGE_FOLDER
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.ledger.evidence import ATTEMPT_FACT, EPOCH_FACT, MANIFEST_FACT, SNAPSHOT_FACT, transactions_of
from tidefold.storage import Store

# The lowest reader that knows deletion vectors.
VECTORS_READER = 3
NO_FACTS: Mapping[str, str] = MappingProxyType({})


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
    """A file as a table shows it: its size in bytes, and the descriptor of its deletion vector."""

    size: int
    vector: Descriptor | None = None


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
    replaces_all: no file stays.
    vector_files: deletion vectors are in files of the table, not in the log.
    """

    facts: Mapping[str, str]
    adds: Sequence[DataFile]
    removes: Mapping[str, Active] = field(default_factory=dict)
    metadata: TableMetadata | None = None
    protocol: TableProtocol | None = None
    transactions: Mapping[str, int] = field(default_factory=dict)
    changes: Sequence[DataFile] = ()
    replaces_all: bool = False
    vector_files: bool = False


def write_commit(store: Store, path: str, table: DeltaTable, commit: TableCommit) -> None:
    """Writes the version after the one that `table` was read at.

    Raises AlreadyExistsError if another commit was faster, UnknownOutcomeError if the answer is lost: the caller reads
    the table again.
    """
    mode = "Overwrite" if commit.replaces_all else "Append"
    lines = [_info("WRITE", commit.facts, mode), *_transactions(commit)]
    lines += [{"protocol": commit.protocol.action}] if commit.protocol else []
    if commit.metadata:
        now = table.metadata()
        lines.append(_metadata({"id": str(now.id), "name": now.name, "createdTime": now.created_time}, commit.metadata))
    # A file whose deletions change is removed and added by one commit.
    lines += [_remove(name, active) for name, active in commit.removes.items()]
    lines += [_add(file, commit.vector_files) for file in commit.adds]
    lines += map(_change, commit.changes)
    _put(store, path, table.version() + 1, lines)


def write_first(store: Store, path: str, name: str, commit: TableCommit) -> None:
    """Makes a table. Raises AlreadyExistsError if there is one, UnknownOutcomeError if the answer is lost."""
    assert commit.metadata
    assert commit.protocol
    identity = {"id": str(uuid.uuid4()), "name": name, "createdTime": _millis()}
    made = [{"protocol": commit.protocol.action}, _metadata(identity, commit.metadata)]
    made += [_add(file, commit.vector_files) for file in commit.adds]
    _put(store, path, 0, [_info("CREATE TABLE", commit.facts), *_transactions(commit), *made])


def _put(store: Store, path: str, version: int, lines: Iterable[Mapping[str, object]]) -> None:
    store.put_if_absent(f"{path}/_delta_log/{version:020d}.json", b"\n".join(map(msgspec.json.encode, lines)))


def _info(operation: str, facts: Mapping[str, str], mode: str = "Append") -> Mapping[str, object]:
    # As deltalake writes it.
    header = {"timestamp": _millis(), "operation": operation, "operationParameters": {"mode": mode}}
    return {"commitInfo": {**header, "engineInfo": f"tidefold/{__version__}", **facts}}


def _transactions(commit: TableCommit) -> list[Mapping[str, object]]:
    millis = _millis()
    return [{"txn": {"appId": a, "version": v, "lastUpdated": millis}} for a, v in commit.transactions.items()]


def _metadata(identity: Mapping[str, object], metadata: TableMetadata) -> Mapping[str, object]:
    description = {"description": metadata.comment, "configuration": metadata.properties}
    layout = {"format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    return {"metaData": {**identity, "schemaString": metadata.schema.to_json(), **layout, **description}}


def _add(file: DataFile, vector_files: bool) -> Mapping[str, object]:
    vector, stats = {}, file.stats
    if file.deletions:
        # A bound may come from a row that is deleted now.
        stats = f'{stats.removesuffix("}")}, "tightBounds": false}}'
        vector = {"deletionVector": descriptor(file.deletions, vector_files)}
    facts = {"partitionValues": {}, "size": file.bytes, "modificationTime": _millis(), "dataChange": True}
    return {"add": {"path": f"_data/{file.name}", **facts, "stats": stats, **vector}}


def _remove(path: str, active: Active) -> Mapping[str, object]:
    # With its vector: one path with two vectors is two files to Delta.
    gone = {"path": path, "deletionTimestamp": _millis(), "dataChange": True, "extendedFileMetadata": True}
    vector = {"deletionVector": active.vector} if active.vector else {}
    return {"remove": {**gone, "partitionValues": {}, "size": active.size, **vector}}


def _change(file: DataFile) -> Mapping[str, object]:
    facts = {"partitionValues": {}, "size": file.bytes, "dataChange": False}
    # Nothing else keeps the checksum, which `verify` needs.
    return {"cdc": {"path": f"{CHANGE_FOLDER}/{file.name}", **facts, "tags": {"sha256": file.sha256}}}


def _millis() -> int:
    return int(time.time() * 1000)


def list_facts(manifest: Manifest, digest: str) -> dict[str, str]:
    """Returns the facts by which tidefold recognizes its commits."""
    return {
        SNAPSHOT_FACT: str(manifest.snapshot),
        MANIFEST_FACT: digest,
        EPOCH_FACT: str(manifest.epoch),
        "tidefold.sqn": str(manifest.to_sqn),
        ATTEMPT_FACT: manifest.token,
    }


def list_transactions(manifest: Manifest, digest: str) -> dict[str, int]:
    """Returns the transactions that the table keeps for good; none for the table of a snapshot."""
    return transactions_of(manifest.log, manifest.snapshot, manifest.epoch, digest) if digest else {}
