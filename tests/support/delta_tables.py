"""Delta tables whose change feed feeds a log, and the expected content of the feed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tidefold.wiring import Pipeline, open_pipeline

CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{format: delta-cdf, table: {table}{options}}}
    key: [id]
    columns: {columns}
    key_groups: 16
    buckets: 4
"""
COLUMNS = "{id: int, text: string}"
SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string())])
FEED = {"delta.enableChangeDataFeed": "true"}


def fed_pipeline(root: Path, options: str = "", columns: str = COLUMNS, table: str = "table") -> Pipeline:
    """Returns a pipeline whose log `items` is fed by the table in the folder `table`."""
    path = root / "tidefold.yaml"
    path.write_text(CONFIG.format(options=options, columns=columns, table=table))
    return open_pipeline(path)


def write(root: Path, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA, **options: Any) -> DeltaTable:
    """Appends rows to the table. If it does not exist, makes it with its feed."""
    table = str(root / "table")
    options = {"mode": "append", "configuration": FEED, **options}
    write_deltalake(table, pa.Table.from_pylist(rows, schema), **options)
    return DeltaTable(table)


def row(item: int, text: str | None = "a") -> dict[str, Any]:
    return {"id": item, "text": text}
