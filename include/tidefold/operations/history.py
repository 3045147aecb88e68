"""Every snapshot of a log, newest first: read from the ledger only."""

from __future__ import annotations

from tidefold.lifecycle.errors import NotFoundError
from tidefold.lifecycle.values import Snapshot
from tidefold.operations.pipeline import Pipeline


def history(pipeline: Pipeline, log: str) -> list[Snapshot]:
    """All snapshots that were ever begun. Raises NotFoundError when nothing was ingested yet."""
    return list(reversed(pipeline.ledger(log).read().snapshots))


def tags_of(pipeline: Pipeline, log: str) -> dict[int, list[str]]:
    """The tags of each tagged snapshot."""
    tags: dict[int, list[str]] = {}
    for tag in pipeline.ledger(log).read().tags:
        tags.setdefault(tag.snapshot, []).append(tag.name)
    return tags


def newest_report(pipeline: Pipeline, log: str, snapshot: int | None = None) -> tuple[Snapshot, str]:
    """The newest judged snapshot, or the one asked for, with the address of its report. Raises NotFoundError."""
    for found in history(pipeline, log):
        if found.verdict and snapshot in (None, found.id):
            return found, pipeline.store.uri(found.verdict.path)
    which = "snapshot" if snapshot is None else f"snapshot {snapshot}"
    raise NotFoundError(
        "REPORT_NOT_FOUND",
        f"No {which} of `{log}` has been judged.",
        hint=f"`tidefold quality {log}` judges what is staged.",
    )
