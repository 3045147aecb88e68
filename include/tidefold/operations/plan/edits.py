"""Which logs can be planned, and what an edited configuration changes in the definition of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tidefold.config import LogConfig
from tidefold.domain.ingest.append import differences
from tidefold.domain.ingest.quarantine_retry import find_skipped_ranges
from tidefold.domain.log_state import LogState
from tidefold.domain.plan import ColumnEdits
from tidefold.domain.source_progress import IMPORTED
from tidefold.domain.table.table_spec import TableSpec
from tidefold.errors import RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quarantine.next_step import has_extracts

_NO_FILES = {
    "delta": "it follows the versions of a Delta table, and no landed file has them",
    "delta-cdf": "it follows the versions of a Delta table, and no landed file has them",
    "state-json": "it follows the polls of a state, and each depends on the one before",
}


def require_plannable(pipeline: Pipeline, state: LogState) -> None:
    """Raises RefusedError if landed files alone do not show the rows that the log has."""
    log = pipeline.log(state.log)
    reasons = [*_find_obstacles(log), *_find_gaps(state)]
    reasons += ["only its own source knows what it has read"] if log.feed and log.feed.own else []
    if (chosen := pipeline.config.set_of(state.log)) is not None:
        reasons.append(f"it is in set `{chosen.name}`, whose tables are published together")
    if reasons:
        raise RefusedError("PLAN_UNSUPPORTED", f"Log `{state.log}` cannot be planned: {'; '.join(reasons)}.")


def require_sampled(log: LogConfig) -> None:
    """Raises RefusedError if no folder of sample files can take the place of the log's source."""
    reasons = [*_find_obstacles(log)]
    if reasons:
        message = f"Log `{log.id}` cannot be tried with files: {'; '.join(reasons)}."
        raise RefusedError("PLAN_UNSUPPORTED", message, hint="Try it with another `store` in a copy of the file.")


def _find_obstacles(log: LogConfig) -> Iterator[str]:
    if log.source is None:
        yield "a program writes it, so there are no landed files"
    elif log.source.format in _NO_FILES:
        yield _NO_FILES[log.source.format]
    elif has_extracts(log.source):
        yield "its landings are full extracts, and each is compared with the rows before it"


def _find_gaps(state: LogState) -> Iterator[str]:
    """Yields why the landed files of a log are not all that its rows were made of."""
    if state.lost_from or any(e.name.endswith(IMPORTED) for e in state.landed) or any(
        one.external and not one.reshape for one in state.snapshots if one.published
    ):  # fmt: skip
        yield "its first rows were imported, or its ledger was rebuilt"
    elif find_skipped_ranges(state):
        yield "a restore left changes out, and the landed files would bring them back"
    if state.names is not None and not state.names.has_offsets:
        grown = [name for name, parts in Counter(e.name for e in state.landed).items() if parts > 1]
        if grown:
            yield f"`{grown[0]}` grew while it was ingested, and each part has a number of its own"


def describe_edits(state: LogState, shape: TableSpec) -> tuple[str, ...]:
    """Returns what the configuration changes of the log's table definition, for people; nothing: it has this one."""
    told = differences(state.shape, shape, "before", "now")
    old, new = dict(state.shape.reading or ()), dict(shape.reading or ())
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            told.append(f"{name}: {old.get(name, 'the default')} before, {new.get(name, 'the default')} now")
    if state.shape.buckets != shape.buckets:
        told.append(f"buckets: {state.shape.buckets} before, {shape.buckets} now")
    return tuple(told)


def find_column_edits(before: TableSpec, after: TableSpec) -> ColumnEdits:
    """Compares the columns by their names."""
    old, new = ({column.name: column.type for column in shape.columns} for shape in (before, after))
    retyped = (f"{name}: {old[name]} before, {new[name]} now" for name in old if new.get(name, old[name]) != old[name])
    return ColumnEdits(tuple(n for n in new if n not in old), tuple(n for n in old if n not in new), tuple(retyped))
