"""Files of rows without offsets for tests, and logs of any shape that take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.config import LogConfig, load_config
from tidefold.lifecycle.shape import COLUMNS, Shape
from tidefold.operations.pipeline import Pipeline
from tidefold.storage import open_store

CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{format: {source}, path: landing/items}}
    key: {key}
    columns: {columns}
    key_groups: 16
    buckets: 4
"""
FOLDER = Path("landing/items")
CHECKED: dict[str, Any] = {"write_page_checksum": True}


class ShapedLog(LogConfig):
    """A log whose shape has what the configuration does not say."""

    more: dict[str, Any]

    @property
    def shape(self) -> Shape:
        return replace(super().shape, **self.more)


def make_rows_landing(
    root: Path,
    source: str = "csv",
    columns: str = "{id: int, text: string, seq: long}",
    key: str = "[id]",
    **more: Any,
) -> Pipeline:
    """A pipeline with one log `items`, ordered by `seq`; `more` is of its shape."""
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    path = root / "tidefold.yaml"
    path.write_text(CONFIG.format(source=source, columns=columns, key=key))
    config = load_config(path)
    shape = {"order": COLUMNS, "order_by": ("seq",), **more}
    log = ShapedLog(**dict(config.logs["items"]), more=shape)
    return Pipeline(config.model_copy(update={"logs": {"items": log}}), open_store("store", root))


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
