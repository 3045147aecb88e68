"""Files of rows without offsets for tests, and logs of any table definition that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.wiring import Pipeline, open_pipeline

CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{format: {source}, path: landing/items}}
    key: {key}
    {more}
    columns: {columns}
    key_groups: 16
    buckets: 4
"""
FOLDER = Path("landing/items")
CHECKED: dict[str, Any] = {"write_page_checksum": True}


def make_rows_landing(
    root: Path,
    source: str = "csv",
    columns: str = "{id: int, text: string, seq: long}",
    more: str = "order: [seq]",
    key: str = "[id]",
) -> Pipeline:
    """Returns a pipeline with one log `items`; `source` is its format, and the format's own keys."""
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    path = root / "tidefold.yaml"
    path.write_text(CONFIG.format(source=source, columns=columns, key=key, more=more))
    return open_pipeline(path)


def land_text(root: Path, name: str, text: str | bytes) -> Path:
    path = root / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def land_parquet(root: Path, name: str, rows: list[dict[str, Any]] | pa.Table, schema: pa.Schema | None = None) -> Path:
    path = root / FOLDER / name
    pq.write_table(
        pa.Table.from_pylist(rows, schema) if isinstance(rows, list) else rows, path, write_page_checksum=True
    )
    return path
