"""Plans a restore: for each bucket every way in which its rows can be had again, the cheapest first (L6, I17).

First the snapshot's own files, each from the local copy, then from the store; then an older snapshot and the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain

from tidefold.fold.plan import Places, files_of, near
from tidefold.fold.task import Address, FoldTask, Recipe, Untouched
from tidefold.ledger import read_manifest
from tidefold.lifecycle.copies import Where
from tidefold.lifecycle.errors import CorruptError
from tidefold.lifecycle.key_groups import KeyGroups, bucket_ranges
from tidefold.lifecycle.lineage import Older, older
from tidefold.lifecycle.manifest import Manifest, home
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import ChangeSet, LogState, Snapshot
from tidefold.operations.pipeline import Pipeline

_log = logging.getLogger(__name__)
# One way to make all the rows: a manifest (None: the empty table) and the change sets to fold into it.
_Way = tuple[Manifest | None, tuple[ChangeSet, ...]]


def plan_restore(
    pipeline: Pipeline, state: LogState, snapshot: Snapshot, base: Manifest, places: Places, copy: bool
) -> tuple[FoldTask, ...]:
    """One task for each bucket of the snapshot `base`, whose rows come back as the attempt `snapshot`."""
    table = LogPaths(state.log).table
    target = Address(Where.STORE, places.store, home(state.log, snapshot.kind, snapshot.id))
    tail = state.between(snapshot.from_sqn, snapshot.folds_to)
    below = state.snapshot(base.snapshot)
    further = older(state, below) if below else iter(())
    ways = [(base, tail), *_older_ways(pipeline, state, further, tail)]
    tasks = []
    for bucket in bucket_ranges(base.shape.key_groups, base.shape.buckets):
        recipes = tuple(recipe_of(way, bucket, places, table) for way in ways)
        if recipes[0].base or recipes[0].change_sets:
            tasks.append(
                FoldTask(
                    *(state.log, base.shape, snapshot.id, snapshot.epoch, bucket, target, places.logs, recipes),
                    untouched=Untouched.TAKE,
                    table=table,
                    expire=snapshot.expire,
                    copy=copy,
                )
            )
    return tuple(sorted(tasks, key=lambda task: -task.weight))


def recipe_of(way: _Way, bucket: KeyGroups, places: Places, table: str) -> Recipe:
    """What one bucket is made from. The table's own file comes before a full snapshot's: it need not be put there."""
    manifest, change_sets = way
    inputs = places.inputs(manifest, files_of(bucket, manifest), table, manifest.home) if manifest else ()
    return Recipe(manifest.snapshot if manifest else None, inputs, near(change_sets, bucket))


def _older_ways(
    pipeline: Pipeline, state: LogState, found: Iterator[Older], tail: tuple[ChangeSet, ...]
) -> Iterator[_Way]:
    for snapshot, change_sets in found:
        try:
            manifest = read_manifest(pipeline.store, state.log, snapshot) if snapshot else None
        except CorruptError as error:
            _log.warning("%s: snapshot %s cannot serve: %s", state.log, snapshot and snapshot.id, error)
            continue
        yield manifest, tuple(chain(change_sets, tail))
