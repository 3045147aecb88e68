"""Compares Delta logs with the manifests that they were made from.

It checks the logs of the snapshots' own tables, of their local copies, and of the published table.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidefold.delta.table_state import COMMIT, DeltaState, build_table, delta_state
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.verify.expected_files import Damage, DamageKind, FileRole, StoredLocation, list_kept
from tidefold.errors import CorruptError, RefusedError
from tidefold.operations.verify.check_files import Stores
from tidefold.operations.verify.repair import clear_halves
from tidefold.storage import Store


def own_logs(stores: Stores, manifest: Manifest, local: bool) -> list[Damage]:
    """Returns the damage of the Delta log of a snapshot's folder, and of its local copy if there is one."""
    paths = LogPaths(manifest.log)
    folders = [StoredLocation(paths.snapshot(manifest.snapshot))] if manifest.kind is SnapshotKind.FULL else []
    folders += [StoredLocation(str(CopyName(manifest.log, manifest.snapshot)), StorageTier.LOCAL)] if local else []
    expected, _ = build_table(manifest)
    harms = [(folder, _harm(stores[folder.where], folder.path, expected)) for folder in folders]
    # A log is made of the manifest alone, so that is its good copy.
    good = (StoredLocation(paths.manifest(manifest.snapshot)),)
    return [
        Damage(
            FileRole.DELTA_LOG,
            harm,
            (StoredLocation(f"{folder.path}/{COMMIT}", folder.where),),
            (manifest.snapshot,),
            good,
        )
        for folder, harm in harms
        if harm
    ]


def _harm(store: Store, folder: str, expected: DeltaState) -> DamageKind | None:
    try:
        found = delta_state(store, folder)
    except CorruptError:
        return DamageKind.UNREADABLE
    if found == expected:
        return None
    return DamageKind.FOREIGN if _others(store, folder) else DamageKind.MISSING if found is None else DamageKind.ALTERED


def _others(store: Store, folder: str) -> list[str]:
    """Returns the files of other programs in the Delta log of a snapshot, which always has exactly one commit."""
    own = f"{folder}/{COMMIT}"
    return [entry.path for entry in store.list(f"{folder}/_delta_log") if entry.path != own]


def repair_own_log(stores: Stores, manifest: Manifest, damage: Damage) -> StoredLocation:
    """Makes a snapshot's Delta log again from its manifest. Raises RefusedError if other programs committed to it."""
    [place] = damage.places
    store, folder = stores[place.where], place.path.removesuffix(f"/{COMMIT}")
    others = _others(store, folder)
    if others:
        raise RefusedError(
            "FOREIGN_COMMIT",
            f"other programs committed to it: {', '.join(path.rpartition('/')[2] for path in others)}",
            hint=f"Remove everything except `{COMMIT}` in `{folder}`, then call again.",
        )
    with store.replace([place.path]) as stream:
        stream.write(build_table(manifest)[1])
    clear_halves(store, [place.path])
    return damage.good[0]


def check_published_table(store: Store, state: LogState, manifests: Mapping[int, Manifest]) -> Damage | None:
    """Returns the damage of the published table, if there is any."""
    shown = find_shown(state)
    if not shown or shown[0].id not in manifests:
        return None
    path = LogPaths(state.log).table
    try:
        found = delta_state(store, path)
        harm = DamageKind.MISSING if found is None else DamageKind.FOREIGN
    except CorruptError:
        found, harm = None, DamageKind.UNREADABLE
    if any(found == build_table(manifests[s.id])[0] for s in shown if s.id in manifests):
        return None
    hint = f"Every snapshot is a table of its own, under `{LogPaths(state.log).snapshots}/`."
    if harm is DamageKind.FOREIGN:
        hint = (
            f"Undo what others committed (RESTORE to version {shown[0].table_version}), or `tidefold confirm "
            f"{state.log} --reconcile` replaces it with the next snapshot."
        )
    place = StoredLocation(f"{path}/_delta_log")
    return Damage(FileRole.TABLE, harm, (place,), (shown[0].id,), why="it is not repaired here", hint=hint)


def find_shown(state: LogState) -> list[Snapshot]:
    """Returns the newest published snapshot, and one after it that is being published."""
    published = [s for s in list_kept(state) if s.published][-1:]
    latest = state.latest
    return [*published, *([latest] if published and latest and latest.id > published[0].id else [])]
