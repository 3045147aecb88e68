"""Writes a segment to a store. Product code writes through a stream that also makes the local copy."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.storage import Store


def write_segment(
    store: Store, path: str, parts: Iterable[tuple[str, pa.Table]], *, compress: bool = True
) -> list[WrittenChangeSet]:
    """Writes one change set for each log and table, each sorted by key group."""
    with store.create(path) as stream:
        return write_parts(stream, path, parts, compress=compress)
