"""Finds files that topics and loads landed in the store, and that nothing reads any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise

from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths, SetPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.sources.debezium.loaded_rows import list_left
from tidefold.sources.kafka.landed import list_landed_files
from tidefold.sources.landing.folders import folder_at


def find_old_landed(pipeline: Pipeline, state: LogState, instant: str) -> Iterator[str]:
    """Yields files of the topic of a log, and with the first log of a set those of its transaction topic.

    They were ingested, or landed before the point of the set, as long before an instant (ISO 8601) as
    `retention.landed` says. The files of a partition that stay have no gap, so that a log that starts again knows what
    is gone.
    """
    span, paths = pipeline.config.retention.landed, LogPaths(state.log)
    if not span:
        return
    limit = datetime.fromisoformat(instant) - timedelta(microseconds=span)
    taken = {(entry.name, entry.length): entry for entry in state.landed if entry.complete and not entry.quarantined}
    for _, members in groupby(list_landed_files(pipeline.store, paths), key=lambda one: one[0].partition):
        for name, size in list(members)[:-1]:
            entry = taken.get((str(name), size))
            if entry is None or not entry.instant or datetime.fromisoformat(entry.instant) >= limit:
                break
            yield f"{paths.landed}/{name}"
    of_set = pipeline.config.set_of(state.log)
    if of_set and of_set.kafka and state.log == of_set.logs[0]:
        yield from _find_old_ends(pipeline, SetPaths(of_set.name), of_set.topic, limit.timestamp())


def find_old_loads(pipeline: Pipeline, state: LogState, instant: str) -> Iterator[str]:
    """Yields files of loads that broke off or were replaced, and old ones as those of a topic."""
    if state.log not in pipeline.config.logs:
        return
    keeps, at = pipeline.config.retention, datetime.fromisoformat(instant)
    old = at - timedelta(microseconds=keeps.landed) if keeps.landed else datetime.min.replace(tzinfo=UTC)
    done = {one.name for one in state.landed if one.instant and datetime.fromisoformat(one.instant) < old}
    for name in list_left(pipeline.log(state.log).loaded, at - timedelta(days=keeps.scratch_days), done):
        yield f"{LogPaths(state.log).landed}/{name}"


def _find_old_ends(pipeline: Pipeline, paths: SetPaths, address: str, limit: float) -> Iterator[str]:
    """Yields files of a transaction topic that landed before a time, all of it before the point of the set."""
    point = pipeline.set_ledger(paths.name).read().point
    landed = {file.name: file.stamp.changed for file in folder_at(address).list_files()} if point else {}
    for (name, _), (after, _) in pairwise(list_landed_files(pipeline.store, paths)):
        if not point or after.start > point.read_to + 1 or landed.get(str(name), limit) >= limit:
            return
        yield f"{paths.landed}/{name}"
