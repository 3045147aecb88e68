"""Plans an import: for each bucket where its rows lie in the original. Pure but for one look at the description."""

from __future__ import annotations

import logging
from dataclasses import replace

from tidefold.domain.external_snapshot import External, Layout, Ownership
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import LogState, Snapshot, State, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import home
from tidefold.domain.snapshot.savepoint import SavedFile
from tidefold.domain.verify.expected_files import Where
from tidefold.errors import CorruptError, TidefoldError
from tidefold.fold.plan import Places
from tidefold.fold.task import Address, FoldTask, Input, Recipe, Untouched
from tidefold.operations.savepoint.external import Original, original_at

_log = logging.getLogger(__name__)


def plan_import(
    snapshot: Snapshot, external: External, log: str, configured: TableSpec, places: Places, copy: bool
) -> tuple[TableSpec, tuple[FoldTask, ...]]:
    """The shape of the new snapshot and one task for each bucket with rows, the largest first.

    Raises CorruptError when the original is not what was claimed any more (I6).
    """
    original = original_at(external.address)
    if original.digest != external.description:
        raise CorruptError(
            "ORIGINAL_CHANGED",
            f"The snapshot at {external.address} changed since the import began.",
            hint="Import again.",
        )
    native = external.layout is Layout.NATIVE
    # A native one's files are taken over as they are, in the buckets that they were written for.
    shape = replace(configured, buckets=original.savepoint.shape.buckets) if native else configured
    everything = KeyGroups(0, shape.key_groups - 1)
    target = Address(Where.STORE, places.store, home(log, snapshot.kind, snapshot.id))
    whole = FoldTask(
        *(log, shape, snapshot.id, snapshot.epoch, everything, target, places.logs, ()),
        untouched=Untouched.TAKE if native else Untouched.REWRITE,
        table=LogPaths(log).table,
        expire=snapshot.expire,
        copy=copy or external.ownership is Ownership.NO_CLAIM,
        token=snapshot.token,
    )
    cleared = original.savepoint.cleared
    found = [(bucket, _inputs(original, bucket, shape)) for bucket in bucket_ranges(shape.key_groups, shape.buckets)]
    tasks = [replace(whole, bucket=b, recipes=(Recipe(None, inputs, (), cleared),)) for b, inputs in found if inputs]
    return shape, tuple(sorted(tasks, key=lambda task: -task.weight))


def _inputs(original: Original, bucket: KeyGroups, shape: TableSpec) -> tuple[Input, ...]:
    everything = KeyGroups(0, shape.key_groups - 1)
    same = original.savepoint.shape.key_groups == shape.key_groups
    files = [(f, f.data_file(None if same else everything)) for f in original.savepoint.files]
    return tuple(Input(data, (original.place(file),)) for file, data in files if data.key_groups.meets(bucket))


def with_originals(state: LogState, places: Places) -> Places:
    """The places with those of originals that imported snapshots left where they were: more copies of their files."""
    found: dict[str, Address] = {}
    for snapshot in state.snapshots:
        external = snapshot.external
        if external is None or external.ownership is Ownership.NO_CLAIM or snapshot.state is not State.COMPLETED:
            continue
        found |= {file.sha256: place for file, place in _places(external)}
    return replace(places, external=found)


def _places(external: External) -> list[tuple[SavedFile, Address]]:
    try:
        original = original_at(external.address)
    except TidefoldError as error:
        _log.warning("the original at %s cannot serve: %s", external.address, error)
        return []
    if original.digest != external.description:
        return []
    return [(file, original.place(file)) for file in original.savepoint.files]
