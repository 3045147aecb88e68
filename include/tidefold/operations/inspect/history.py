"""Lists the snapshots of a log, newest first. Reads only the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.domain.log_state import Snapshot, SnapshotKind
from tidefold.domain.table.schema_evolution import describe_schemas
from tidefold.errors import NotFoundError
from tidefold.operations.local_copies.manage import snapshots_here
from tidefold.operations.pipeline import Pipeline


def history(pipeline: Pipeline, log: str) -> list[Snapshot]:
    """Returns all snapshots that were ever begun. Raises NotFoundError if nothing was ingested yet."""
    return list(reversed(pipeline.ledger(log).read().snapshots))


def schemas_told(pipeline: Pipeline, log: str) -> list[str]:
    """Describes the changes of the log's columns, newest first: one line for each schema."""
    return list(reversed(describe_schemas(pipeline.ledger(log).read())))


def tags_of(pipeline: Pipeline, log: str) -> dict[int, list[str]]:
    """Returns the tags of each tagged snapshot."""
    tags: dict[int, list[str]] = {}
    for tag in pipeline.ledger(log).read().tags:
        tags.setdefault(tag.snapshot, []).append(tag.name)
    return tags


def find_restorers(snapshots: Sequence[Snapshot]) -> dict[int, int]:
    """Returns, for each restore, the snapshot whose rows it restored."""
    return {s.id: _require_snapshot_id(snapshots, s, s.restored_from) for s in snapshots if s.restored_from is not None}


def _require_snapshot_id(snapshots: Sequence[Snapshot], restored: Snapshot, origin: int) -> int:
    # A snapshot with files is restored as it is. Of the tails on one base, no two end at the same sqn.
    if restored.folds_to == restored.from_sqn:
        return origin
    ends = (s for s in snapshots if s.kind is SnapshotKind.TAIL and (s.base, s.to_sqn) == (origin, restored.folds_to))
    return next((s.id for s in ends), origin)


def local_of(pipeline: Pipeline, log: str) -> tuple[int, ...]:
    """Returns the ids of the snapshots whose copy on this machine may be used."""
    return snapshots_here(pipeline, pipeline.ledger(log).read())


def newest_report(pipeline: Pipeline, log: str, snapshot: int | None = None) -> tuple[Snapshot, str]:
    """Returns the newest judged snapshot, or the requested one, with its report's address. Raises NotFoundError."""
    for found in history(pipeline, log):
        if found.verdict and snapshot in (None, found.id):
            return found, pipeline.store.uri(found.verdict.path)
    which = "snapshot" if snapshot is None else f"snapshot {snapshot}"
    raise NotFoundError(
        "REPORT_NOT_FOUND",
        f"There is no quality report: no {which} of `{log}` was judged.",
        hint=f"`tidefold quality {log}` judges the staged snapshot.",
    )
