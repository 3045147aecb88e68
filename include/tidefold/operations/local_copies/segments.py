"""Writes segments from this process, with a local copy where the pipeline has one (C6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tidefold.changelog.segment import WrittenChangeSet, write_parts
from tidefold.changelog.writer.retry import run_attempts
from tidefold.changelog.writer.settings import Metrics
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.local_copies.inventory import without_room
from tidefold.storage.mirrored_stream import create_duplicating


def write_segment(pipeline: Pipeline, path: str, parts: Sequence[tuple[str, pa.Table]]) -> list[WrittenChangeSet]:
    """Writes change sets into a new segment of the store and of the local copies. A local failure is a warning.

    Tries again after an error that may pass, as `uploads` of the configuration says.
    """
    local = None if pipeline.local is None or without_room(pipeline) else pipeline.local

    def write() -> list[WrittenChangeSet]:
        with create_duplicating(pipeline.store, local, path) as stream:
            return write_parts(stream, path, parts)

    # One attempt after the other: two at once would write the same name.
    policy = replace(pipeline.config.uploads.policy, timeout=0.0)
    return run_attempts(policy, write, lambda late: None, Metrics())
