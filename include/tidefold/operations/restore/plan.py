"""Plans a restore: for each bucket every way in which its rows can be had again, the cheapest first (L6, I17).

First the snapshot's own files, each from the local copy, then from the store; then an older snapshot and the log. Reads
manifests and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import ChangeSet, Expire, LogState, Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.lineage import older
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.table.schema import shape_at
from tidefold.domain.verify.expected_files import Where
from tidefold.errors import CorruptError, TidefoldError
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import Places, files_of, near, require_joined
from tidefold.fold.task import Address, FoldResult, FoldTask, Read, Recipe, Untouched
from tidefold.ledger import read_manifest, read_manifest_at
from tidefold.operations.local_copies.manage import places_of
from tidefold.operations.pipeline import Pipeline

_log = logging.getLogger(__name__)
# One way to make all the rows: a manifest (None: the empty table) and the change sets to fold into it.
_Way = tuple[Manifest | None, tuple[ChangeSet, ...]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows that are to be had again: those of `below` after `tail` was folded into them, in the schema of this id.
    `expire`: which of them go.
    """

    state: LogState
    below: Snapshot
    tail: tuple[ChangeSet, ...]
    schema: int
    expire: Expire | None = None

    @property
    def rows(self) -> int | None:
        """How many there are, if that is known."""
        return None if self.tail else self.below.rows

    @property
    def limit(self) -> Expire | None:
        """What may be dropped in the end without losing a row: what `below` dropped is not in it anyway."""
        own, asked = self.below.expire, self.expire
        if self.tail or own is None or (asked is not None and asked.column != own.column):
            return asked
        return max(asked or own, own, key=lambda one: one.before)


@dataclass(frozen=True, slots=True)
class Into:
    """What the tasks write: the address of a folder, as which snapshot and attempt. `table`: the folder of the table
    that will show what is taken over, if one will; `copy`: that gets bytes of its own; `token`: that of the attempt.
    """

    target: Address
    snapshot: int
    epoch: int
    table: str | None = None
    copy: bool = False
    token: str = ""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The tasks, and the manifest that they begin with: None when no copy of it is good, so that only older ones can
    serve. `failed`: places whose manifests cannot be used.
    """

    base: Manifest | None
    shape: TableSpec
    tasks: tuple[FoldTask, ...]
    failed: tuple[Read, ...]


def wanted_by(state: LogState, attempt: Snapshot) -> Wanted:
    """What the attempt of a restore brings back. Raises CorruptError, RefusedError."""
    return _wanted(state, attempt.source, attempt, attempt.expire)


def wanted_rows(state: LogState, snapshot: Snapshot) -> Wanted:
    """The rows of a completed snapshot, as they are. Raises CorruptError, RefusedError."""
    if snapshot.kind is SnapshotKind.TAIL:
        return _wanted(state, snapshot.base, snapshot, None)
    return Wanted(state, snapshot, (), snapshot.schema)


def _wanted(state: LogState, source: int | None, tail: Snapshot, expire: Expire | None) -> Wanted:
    below = None if source is None else state.snapshot(source)
    if below is None:
        raise CorruptError("BASE_MISSING", f"Snapshot {tail.id} of `{state.log}` has no known base.")
    change_sets = state.between(tail.from_sqn, tail.folds_to)
    require_joined(state.log, tail, change_sets)
    return Wanted(state, below, change_sets, tail.schema, expire)


def plan_restore(
    pipeline: Pipeline, wanted: Wanted, places: Places, into: Into, within: KeyGroups | None = None
) -> RestorePlan:
    """One task for each bucket of the snapshot, or for what of it lies `within`.

    Raises CorruptError when no manifest can be read, neither of the snapshot nor of an older one.
    """
    inputs = Inputs({places.store: pipeline.store})
    own, ways = _ways(wanted, places, inputs)
    buckets = (own.shape if own else wanted.state.shape).buckets
    shape = replace(shape_at(wanted.state, wanted.schema), buckets=buckets)
    tasks = []
    for bucket in bucket_ranges(shape.key_groups, shape.buckets):
        span = bucket if within is None else _overlap(bucket, within)
        recipes = tuple(_recipe(way, span, places, into) for way in ways) if span else ()
        # A bucket without files of the snapshot's own has no rows, whatever older ones had there.
        if span and any(r.base or r.change_sets for r in (recipes[:1] if own else recipes)):
            tasks.append(_task(wanted, places, into, shape, span, recipes))
    failed = tuple(read for read in inputs.reads if read.why)
    return RestorePlan(own, shape, tuple(sorted(tasks, key=lambda task: -task.weight)), failed)


def _task(
    wanted: Wanted, places: Places, into: Into, shape: TableSpec, bucket: KeyGroups, recipes: tuple[Recipe, ...]
) -> FoldTask:
    return FoldTask(
        *(wanted.state.log, shape, into.snapshot, into.epoch, bucket, into.target, places.logs, recipes),
        untouched=Untouched.TAKE,
        table=into.table,
        expire=wanted.limit,
        copy=into.copy,
        schema=wanted.schema,
        schemas=wanted.state.schemas,
        token=into.token,
    )


def _overlap(bucket: KeyGroups, within: KeyGroups) -> KeyGroups | None:
    if not bucket.meets(within):
        return None
    return KeyGroups(max(bucket.first, within.first), min(bucket.last, within.last))


def _recipe(way: _Way, bucket: KeyGroups, places: Places, into: Into) -> Recipe:
    """What one bucket is made from. The table's own file comes before a full snapshot's: it need not be put there."""
    manifest, change_sets = way
    if manifest is None:
        return Recipe(None, (), near(change_sets, bucket))
    table = LogPaths(manifest.log).table
    inputs = places.inputs(manifest, files_of(bucket, manifest), table, manifest.home)
    return Recipe(manifest.snapshot, inputs, near(change_sets, bucket), manifest.cleared, manifest.schema)


def _ways(wanted: Wanted, places: Places, inputs: Inputs) -> tuple[Manifest | None, Sequence[_Way]]:
    own, lost = None, None
    try:
        own = find_manifest(wanted.state.log, wanted.below, places, inputs)
    except CorruptError as error:
        lost = error
        _log.warning("%s: snapshot %d itself cannot serve: %s", wanted.state.log, wanted.below.id, error)
    ways = [*([(own, wanted.tail)] if own else []), *_older_ways(wanted, places, inputs)]
    if not ways and lost:
        raise lost
    return own, ways


def _older_ways(wanted: Wanted, places: Places, inputs: Inputs) -> Iterator[_Way]:
    for found in older(wanted.state, wanted.below):
        if not found.suits(wanted.limit):
            continue
        manifest = None
        try:
            if found.snapshot:
                manifest = find_manifest(wanted.state.log, found.snapshot, places, inputs)
        except TidefoldError as error:
            _log.warning("%s: %s cannot serve: %s", wanted.state.log, found.snapshot and found.snapshot.id, error)
            continue
        yield manifest, (*found.change_sets, *wanted.tail)


def require_rows(log: str, recorded: int | None, results: Sequence[FoldResult]) -> None:
    """Same rows from every source (I17): raises CorruptError unless there are as many as the ledger recorded. Of a tail
    nobody knows how many (None), nor where rows went for their age.
    """
    made = sum(file.rows for result in results for file in result.files if not file.hidden)
    if recorded is not None and made != recorded and not any(result.expired for result in results):
        raise CorruptError(
            "ROWS_DIFFER",
            f"{made:,} rows of `{log}` were made, but {recorded:,} were recorded.",
            hint=f"`tidefold verify {log}` lists what is damaged.",
        )


def manifest_of(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Manifest:
    """The manifest that the ledger names, from the store or from a local copy. Raises CorruptError."""
    try:
        return read_manifest(pipeline.store, log, snapshot)
    except CorruptError as error:
        places = places_of(pipeline, log)
        if snapshot.id not in places.local:
            raise
        _log.warning("%s: the manifest is read from the local copy: %s", log, error)
        return find_manifest(log, snapshot, places, Inputs({places.store: pipeline.store}))


def find_manifest(log: str, snapshot: Snapshot, places: Places, inputs: Inputs) -> Manifest:
    """The manifest that the ledger names: from the store, or else from the local copy. Raises CorruptError."""
    stored = Address(Where.STORE, places.store, LogPaths(log).manifest(snapshot.id))
    root = places.local.get(snapshot.id)
    copied = () if root is None else (Address(Where.LOCAL, root, CopyName(log, snapshot.id).manifest),)

    def read(address: Address) -> Manifest:
        return read_manifest_at(inputs.store(address), address.path, snapshot)

    return inputs.first(f"manifest {snapshot.id}", 0, (stored, *copied), read)
