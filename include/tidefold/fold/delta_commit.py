"""A Delta commit that brings files and their schema at once.

By measurement (decision 0019) deltalake 1.6 cannot write one: `create_write_transaction` ignores a new schema when it
appends, without a word, and refuses removes when it overwrites; a schema changed in a commit before, or after, would
show readers old files without their values. So these few lines are written here, by the store's own put-if-absent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from tidefold.changelog.columns import table_schema
from tidefold.lifecycle.errors import UnknownOutcomeError
from tidefold.lifecycle.manifest import Manifest
from tidefold.storage import Store


def delta_schema(manifest: Manifest) -> Schema:
    """What readers are told of the columns of a snapshot."""
    return Schema.from_arrow(table_schema(manifest.shape))


def commit_with_schema(
    store: Store,
    path: str,
    table: DeltaTable,
    schema: Schema,
    adds: Sequence[AddAction],
    removes: Mapping[str, int],
    facts: Mapping[str, str],
) -> None:
    """Writes the version after the one that `table` was read at. `removes`: paths and sizes; `facts`: commit metadata.

    Raises AlreadyExistsError when another commit was faster. What becomes of a lost answer the caller finds out by
    reading the table again.
    """
    lines = [_info(facts), _metadata(table, schema), *map(_add, adds)]
    lines += [_remove(name, size) for name, size in removes.items()]
    data = b"\n".join(map(msgspec.json.encode, lines))
    try:
        store.put_if_absent(f"{path}/_delta_log/{table.version() + 1:020d}.json", data)
    except UnknownOutcomeError:
        return


def _info(facts: Mapping[str, str]) -> dict[str, object]:
    # As deltalake writes it.
    said = {"timestamp": _millis(), "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    return {"commitInfo": {**said, "engineInfo": "tidefold", **facts}}


def _metadata(table: DeltaTable, schema: Schema) -> dict[str, object]:
    """The table's own metadata with another schema: its id and properties stay."""
    now = table.metadata()
    return {
        "metaData": {
            "id": str(now.id),
            "name": now.name,
            "description": now.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.to_json(),
            "partitionColumns": list(now.partition_columns),
            "createdTime": now.created_time,
            "configuration": dict(now.configuration),
        }
    }


def _add(action: AddAction) -> dict[str, object]:
    size, written = action.size, action.modification_time
    add = {"path": action.path, "partitionValues": {}, "size": size, "modificationTime": written, "dataChange": True}
    return {"add": {**add, "stats": action.stats}}


def _remove(path: str, size: int) -> dict[str, object]:
    gone = {"path": path, "deletionTimestamp": _millis(), "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**gone, "partitionValues": {}, "size": size}}


def _millis() -> int:
    return int(time.time() * 1000)
