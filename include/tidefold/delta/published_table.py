"""Reads the published table: what it shows, its description, and what another program changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from tidefold.changelog.schema import table_schema
from tidefold.delta.deletion_vectors import Descriptor, deletions, descriptor
from tidefold.delta.raw_commit import VECTORS_READER, TableProtocol
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Deletions, Manifest
from tidefold.errors import NotFoundError, RefusedError
from tidefold.ledger.evidence import MANIFEST_FACT
from tidefold.storage import Store
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.typed_json import decode_json

# Files that plain readers of older versions use are tidefold's to remove, never a clock's.
PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.logRetentionDuration": "interval 3650 days",
}
_OWN = "tidefold."
# The second one tells a feed that tidefold writes from one that another program switched on.
_FEED = {"delta.enableChangeDataFeed": "true", f"{_OWN}changeFeed": "true"}
# What a publication can replace, and what no RESTORE sets back.
_REPLACED, _FINAL = {"files", "deletion vectors"}, {"protocol", "commits"}
# Without it Spark's RESTORE and CLONE refuse to add a file with a vector.
_VECTORS = {"delta.enableDeletionVectors": "true"}
# The time of an action does not belong to its content.
_INSTANT = "modification_time"
COMMIT = f"_delta_log/{0:020d}.json"
# What is written by Delta and tidefold for one version; files of other names stay.
_FILE = re.compile(r"(?P<version>\d{20})\.(?P<kind>json|crc|checkpoint\.parquet)")
_HINT = "_last_checkpoint"


@dataclass(frozen=True, slots=True)
class TableDescription:
    """The description of a published table.

    comment: of the table.
    comments: of its columns, by name.
    change_feed: its versions have a change data feed.
    """

    comment: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    change_feed: bool = False

    def list_properties(self, vectors: bool) -> dict[str, str]:
        """Returns the properties of the table. vectors: its protocol has deletion vectors."""
        return {**PROPERTIES, **(_FEED if self.change_feed else {}), **(_VECTORS if vectors else {})}

    def describe(self, manifest: Manifest) -> Schema:
        """Returns the schema of a snapshot with the comments of its columns."""
        schema = delta_schema(manifest)
        if not self.comments:
            return schema
        document = json.loads(schema.to_json())
        for one in document["fields"]:
            if comment := self.comments.get(one["name"]):
                one["metadata"] = {**one["metadata"], "comment": comment}
        return Schema.from_json(json.dumps(document))


def delta_schema(manifest: Manifest) -> Schema:
    """Returns the schema of a snapshot for readers, without comments."""
    return Schema.from_arrow(table_schema(manifest.shape))


def drop_comments(schema: str) -> str:
    """Returns the JSON of a schema without the comments of its columns, which change no row."""
    document: dict[str, Any] = json.loads(schema)
    for one in document["fields"]:
        one["metadata"].pop("comment", None)
    return json.dumps(document, sort_keys=True)


def find_comments(schema: str) -> dict[str, str]:
    """Returns the comments of the columns in the JSON of a schema."""
    comments = {one["name"]: one["metadata"].get("comment") for one in json.loads(schema)["fields"]}
    return {name: comment for name, comment in comments.items() if comment}


def is_as_described(properties: Mapping[str, str]) -> bool:
    """Whether only tidefold has set the properties of a table."""
    feed = _FEED if any(properties.get(name) == "true" for name in _FEED) else {}
    foreign = {name: value for name, value in properties.items() if name in _FEED or not name.startswith(_OWN)}
    return {**_VECTORS, **foreign} == {**PROPERTIES, **feed, **_VECTORS}


@dataclass(frozen=True, slots=True)
class Published:
    """What the table shows now: the manifest of a snapshot, and the table version that showed it first."""

    manifest: Manifest
    version: int


def version_of(table: DeltaTable, digest: str, previous: Published | None) -> int | None:
    """Returns the table version after the previous snapshot's whose commit names the manifest."""
    commits = (c for c in _commits_since(table, previous) if c.get(MANIFEST_FACT) == digest)
    return next((int(c["version"]) for c in commits), None)


def active_files(table: DeltaTable) -> dict[str, int]:
    """Returns paths and sizes (bytes) of the files that readers see."""
    actions = table.get_add_actions()
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))


def require_untouched(
    store: Store,
    table: DeltaTable,
    manifest: Manifest,
    previous: Published | None,
    *,
    reconcile: bool = False,
    waits: bool = True,
) -> None:
    """Raises RefusedError if the table differs from what `previous` left.

    reconcile: its files may differ. waits: a snapshot waits to be published.
    """
    changed = list_changes(store, table, manifest, previous)
    if not changed or (reconcile and changed <= _REPLACED):
        return
    confirm = f"tidefold step confirm {manifest.log}"
    replace = confirm if waits else f"tidefold run {manifest.log} --kind full"
    then = f" Then run `{confirm}`." if waits else ""
    way_out = explain_way_out(manifest.log, changed, previous, f"`{replace} --reconcile`", then)
    raise RefusedError(
        "FOREIGN_COMMIT",
        f"Another program changed {', '.join(sorted(changed))} of the table of `{manifest.log}`: "
        f"{_foreign(table, previous)}.",
        hint=f"Readers see that commit. {way_out}",
    )


def explain_way_out(log: str, changed: set[str], previous: Published | None, reconcile: str, then: str = "") -> str:
    """Returns what leads on after another program changed these parts of the table.

    reconcile: the command that replaces what can be replaced.
    then: what comes after the other ways.
    """
    if previous and not changed & _FINAL:
        hint = f"Undo it with Delta's RESTORE to version {previous.version}.{then}"
        return f"{hint} Or {reconcile} replaces what the other program committed." if changed <= _REPLACED else hint
    rebuild = f" Then run `tidefold move rebuild {log} --table --yes`, which begins it again." if previous else ""
    return f"RESTORE cannot undo it. Move `{LogPaths(log).table}/_delta_log` out of the store.{rebuild}{then}"


def list_changes(store: Store, table: DeltaTable, manifest: Manifest, previous: Published | None) -> set[str]:
    """Returns which parts of the table differ from the last publication."""
    ours = {f"_data/{f.name}" for f in previous.manifest.shown} if previous else set()
    vectors = find_vectors(store, table, manifest.log, previous)
    same = {
        "files": set(active_files(table)) == ours,
        # The schema of the last snapshot. The commit adds that of the new one.
        "schema": drop_comments(table.schema().to_json())
        == drop_comments(delta_schema(previous.manifest if previous else manifest).to_json()),
        "properties": is_as_described(table.metadata().configuration),
        "protocol": find_protocol(table) is not None,
        "deletion vectors": vectors in (None, _list_vectors(previous)),
        "commits": vectors is not None,
    }
    return {name for name, as_left in same.items() if not as_left}


def _list_vectors(previous: Published | None) -> dict[str, Descriptor]:
    """Returns the deletion vectors that the table has after a publication, by the path of their file."""
    shown = previous.manifest.shown if previous else ()
    return {f"_data/{f.name}": descriptor(f.deletions, is_file=True) for f in shown if f.deletions}


def find_protocol(table: DeltaTable) -> TableProtocol | None:
    """Returns the protocol of a table; None: tidefold never writes such a protocol."""
    protocol = table.protocol()
    readers, writers = set(protocol.reader_features or ()), set(protocol.writer_features or ())
    ours = TableProtocol("deletionVectors" in readers, "changeDataFeed" in writers)
    as_known = (ours.versions, set(ours.reader_features), set(ours.writer_features))
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    return ours if (versions, readers, writers) == as_known else None


def find_vectors(store: Store, table: DeltaTable, log: str, previous: Published | None) -> dict[str, Descriptor] | None:
    """Returns the deletion vectors that the table has now, by the path of their file.

    Returns None if they are not known: another program deleted a commit since the last publication.
    """
    vectors = _list_vectors(previous)
    if table.protocol().min_reader_version < VECTORS_READER:
        return vectors
    for version in range(previous.version + 1 if previous else 0, table.version() + 1):
        try:
            lines = store.read(f"{LogPaths(log).table}/_delta_log/{version:020d}.json").splitlines()
        except NotFoundError:
            return None
        actions = [msgspec.json.decode(line) for line in lines]
        for action in sorted(actions, key=lambda one: "add" in one):
            file = action.get("remove") or action.get("add") or {}
            vectors.pop(file.get("path", ""), None)
            if "add" in action and file.get("deletionVector"):
                vectors[file["path"]] = file["deletionVector"]
    return vectors


def find_deleted_rows(table: DeltaTable) -> dict[str, Deletions]:
    """Returns the deleted rows of the active files, by path. It needs memory for every row of such a file."""
    if table.protocol().min_reader_version < VECTORS_READER:
        return {}
    root, deleted = f"{table.table_uri.rstrip('/')}/", {}
    for batch in table.deletion_vectors():
        rows = pa.record_batch(batch)
        for address, selected in zip(rows.column("filepath"), rows.column("selection_vector"), strict=True):
            gone = np.flatnonzero(~selected.values.to_numpy(zero_copy_only=False)).astype(np.uint64)
            if (vector := deletions(gone)) is not None:
                deleted[address.as_py().removeprefix(root)] = vector
    return deleted


def _commits_since(table: DeltaTable, previous: Published | None) -> list[dict[str, Any]]:
    """Returns the commits after the one that published the previous snapshot, newest first."""
    count = table.version() - (previous.version if previous else -1)
    return table.history(limit=count) if count > 0 else []


def _foreign(table: DeltaTable, previous: Published | None) -> str:
    others = [c for c in _commits_since(table, previous) if MANIFEST_FACT not in c]
    return ", ".join(f"version {c['version']} {c.get('operation')}" for c in others) or "files differ"


def is_table(store: Store, path: str) -> bool:
    """Whether a folder has a Delta log."""
    # Not deltalake's is_deltatable: no other thread of the process runs while that one waits for S3.
    return any(e.path.endswith((".json", ".parquet")) for e in store.list(f"{path}/_delta_log"))


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The schema without comments, and for each active file its whole `add` action, including size and statistics."""

    schema: str
    files: Mapping[str, Mapping[str, Any]]


def delta_state(store: Store, path: str) -> DeltaState | None:
    """Returns the content of the newest version of a Delta table; None if there is no table.

    Raises CorruptError if the log cannot be read, StorageError if the store does not answer.
    """
    with convert_errors(path):
        try:
            table = open_table(store, path)
        except TableNotFoundError:
            return None
        # Flat: what a struct of statistics holds depends on which columns have any.
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        files = {a["path"]: {k: v for k, v in a.items() if k != _INSTANT and v is not None} for a in actions}
        for name, gone in find_deleted_rows(table).items():
            files[name]["deleted"] = gone
        return DeltaState(drop_comments(table.schema().to_json()), files)


def find_old_log_files(store: Store, log: str, oldest: int) -> tuple[str, ...]:
    """Returns the log files that nothing needs to read version `oldest` or a newer one, oldest first.

    They come before the newest checkpoint that is not newer than `oldest`. tidefold reads that checkpoint as a proof.
    `_last_checkpoint` must not name an older one. Raises CorruptError, StorageError.
    """
    table = LogPaths(log).table
    files: dict[int, dict[str, str]] = {}
    for entry in store.list(f"{table}/_delta_log"):
        name = _FILE.fullmatch(entry.path.rsplit("/", 1)[1])
        if name:
            files.setdefault(int(name["version"]), {})[name["kind"]] = entry.path
    commits = {version for version, kinds in files.items() if "json" in kinds}
    whole = {version for version, kinds in files.items() if {"json", "checkpoint.parquet"} <= kinds.keys()}
    first = max((version for version in whole if version <= oldest), default=None)
    old = [path for version in sorted(files) if first and version < first for path in files[version].values()]
    if not old or first is None or not set(range(first, max(commits) + 1)) <= commits:
        return ()
    if not _is_proved(store, table, first):
        return ()
    return tuple(old)


def _is_proved(store: Store, table: str, first: int) -> bool:
    """Whether the version can be read from its checkpoint, and `_last_checkpoint` names it or a newer one."""
    try:
        hint = decode_json(store.read(f"{table}/_delta_log/{_HINT}"), dict[str, object])
    except (NotFoundError, msgspec.DecodeError):
        return False
    with convert_errors(table):
        open_table(store, table, first)
    return isinstance(sent := hint.get("version"), int) and sent >= first
