"""Writes segments from this process, with a local copy where the pipeline has one (C6)."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.operations.local_copies.quota import without_room
from tidefold.operations.pipeline import Pipeline
from tidefold.storage.mirrored_stream import create_duplicating


def write_segment(pipeline: Pipeline, path: str, parts: Iterable[tuple[str, pa.Table]]) -> list[WrittenChangeSet]:
    """Writes change sets into a new segment of the store and of the local copies. A local failure is a warning."""
    local = None if pipeline.local is None or without_room(pipeline) else pipeline.local
    with create_duplicating(pipeline.store, local, path) as stream:
        return write_parts(stream, path, parts)
