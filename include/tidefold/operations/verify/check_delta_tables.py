"""Checks Delta logs against manifests: of the snapshots' own tables, their local copies, and the published table."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tidefold.delta.deletion_vectors import vector_file
from tidefold.delta.publish import build_table
from tidefold.delta.published_table import (
    COMMIT,
    DeltaState,
    Published,
    delta_state,
    explain_way_out,
    list_changes,
)
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.paths import LogPaths, data_path, vector_name
from tidefold.domain.snapshot.manifest import Deletions, Manifest
from tidefold.domain.verify.expected_files import (
    Copy,
    Damage,
    DamageKind,
    Expected,
    FileRole,
    StoredFile,
    StoredLocation,
    list_kept,
)
from tidefold.domain.wording import count_noun
from tidefold.errors import CorruptError, NotFoundError, RefusedError
from tidefold.storage import Store
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.typed_json import decode_json

Stores = Mapping[StorageTier, Store]


def examine_logs(stores: Stores, files: Iterable[StoredFile]) -> dict[StoredFile, list[Copy]]:
    """Returns the copies of the Delta logs among the files: each has one, and is made of a manifest alone."""
    manifests = {file: file.manifest for file in files if file.manifest and file.part is FileRole.DELTA_LOG}
    expected = {m.snapshot: build_table(m)[0] for m in manifests.values()}
    return {file: _examine_log(stores, file, m, expected[m.snapshot]) for file, m in manifests.items()}


def _examine_log(stores: Stores, file: StoredFile, manifest: Manifest, expected: DeltaState) -> list[Copy]:
    logs = [Copy((n,), _harm_of_table(stores[n.place.where], _folder(n.place), expected)) for n in file.names]
    return [*logs, copy_in_manifest(manifest)]


def copy_in_manifest(manifest: Manifest) -> Copy:
    """Returns the copy of a file that is made of a manifest."""
    return Copy((Expected(StoredLocation(LogPaths(manifest.log).manifest(manifest.snapshot)), (), requested=False),))


def _folder(commit: StoredLocation) -> str:
    return commit.path.removesuffix(f"/{COMMIT}")


def _harm_of_table(store: Store, folder: str, expected: DeltaState) -> DamageKind | None:
    try:
        content = delta_state(store, folder)
    except CorruptError:
        return DamageKind.UNREADABLE
    if content == expected:
        return None
    if _others(store, folder):
        return DamageKind.FOREIGN
    return DamageKind.MISSING if content is None else DamageKind.ALTERED


def _others(store: Store, folder: str) -> list[str]:
    """Returns the files of other programs in the Delta log of a snapshot, which always has exactly one commit."""
    own = f"{folder}/{COMMIT}"
    return [entry.path for entry in store.list(f"{folder}/_delta_log") if entry.path != own]


def rewrite_log(store: Store, commit: StoredLocation, manifest: Manifest) -> None:
    """Makes a snapshot's Delta log again from its manifest. Raises RefusedError if other programs committed to it."""
    folder = _folder(commit)
    others = _others(store, folder)
    if others:
        raise RefusedError(
            "FOREIGN_COMMIT",
            f"other programs committed to it: {', '.join(path.rpartition('/')[2] for path in others)}",
            hint=f"Remove everything except `{COMMIT}` in `{folder}`, then call again.",
        )
    with store.replace([commit.path]) as stream:
        stream.write(build_table(manifest)[1])


def check_published_table(store: Store, state: LogState, manifests: Mapping[int, Manifest]) -> Damage | None:
    """Returns the damage of the published table, if there is any."""
    shown = find_shown(state)
    if not shown or shown[0].id not in manifests:
        return None
    path = LogPaths(state.log).table
    try:
        content = delta_state(store, path)
        harm = DamageKind.MISSING if content is None else DamageKind.FOREIGN
    except CorruptError:
        content, harm = None, DamageKind.UNREADABLE
    if any(content == build_table(manifests[s.id])[0] for s in shown if s.id in manifests):
        return None
    again = f"`tidefold move rebuild {state.log} --table --yes` makes it again."
    hint = f"Restore `{path}/_delta_log` from a backup. Without one, move it out of the store. Then {again}"
    if harm is DamageKind.MISSING:
        hint = again
    elif harm is DamageKind.FOREIGN:
        hint = find_way_out(store, manifests[shown[0].id], shown[0]) or hint
    place = StoredLocation(f"{path}/_delta_log")
    return Damage(FileRole.TABLE, harm, (place,), (shown[0].id,), why="verify writes no published table", hint=hint)


def find_way_out(store: Store, manifest: Manifest, shown: Snapshot) -> str | None:
    """Returns the next step if another program changed the table after it showed this snapshot; None: none did."""
    previous, path = Published(manifest, shown.table_version or 0), LogPaths(manifest.log).table
    with convert_errors(path):
        changed = list_changes(store, open_table(store, path), manifest, previous)
    again = f"`tidefold run {manifest.log} --kind full --reconcile`"
    return explain_way_out(manifest.log, changed, previous, again) if changed else None


def find_log_differences(store: Store, manifest: Manifest) -> Iterator[str]:
    """Yields how the files in the Delta log of the published table differ from those of a snapshot, for people.

    Readers take paths, deleted rows and statistics from the log: they skip files by bounds, and count without reading.
    """
    shown, wanted = delta_state(store, LogPaths(manifest.log).table), build_table(manifest)[0].files
    files = shown.files if shown else {}
    yield from name_files("that the Delta log adds at another place", files.keys() - wanted.keys())
    pairs = [(path, files[path], file) for path, file in wanted.items() if path in files]
    vectors = [path for path, one, other in pairs if one.get("deleted") != other.get("deleted")]
    yield from name_files("with another deletion vector", vectors)
    rest = [path for path, one, other in pairs if path not in vectors and one != other]
    yield from name_files("with other statistics in the Delta log", rest)


def name_files(what: str, names: Collection[str]) -> Iterator[str]:
    """Yields how many files are so, and an example."""
    if names:
        yield f"{count_noun(len(names), 'file')} {what}, such as {min(names)}"


def find_shown(state: LogState) -> list[Snapshot]:
    """Returns the newest published snapshot, and one after it that is being published."""
    published = [s for s in list_kept(state) if s.published][-1:]
    latest = state.latest
    return [*published, *([latest] if published and latest and latest.id > published[0].id else [])]


def list_vectors(
    kept: Iterable[Snapshot], manifests: Mapping[int, Manifest], requested: Collection[int]
) -> tuple[StoredFile, ...]:
    """Returns the deletion vectors that versions of the published table have in files."""
    named: dict[Deletions, list[Manifest]] = {}
    for snapshot in kept:
        if snapshot.published and snapshot.id in requested and snapshot.id in manifests:
            for deleted in {file.deletions for file in manifests[snapshot.id].files if file.deletions}:
                named.setdefault(deleted, []).append(manifests[snapshot.id])
    return tuple(_vector_file(deleted, naming) for deleted, naming in named.items())


def _vector_file(deleted: Deletions, naming: Sequence[Manifest]) -> StoredFile:
    content, manifest = vector_file(deleted), naming[-1]
    place = StoredLocation(data_path(LogPaths(manifest.log).table, vector_name(deleted.vector)))
    names = (Expected(place, tuple(one.snapshot for one in naming)),)
    digest = hashlib.sha256(content).hexdigest()
    return StoredFile(FileRole.VECTOR, digest, len(content), names, manifest=manifest, vector=deleted)


def list_change_files(
    store: Store, log: str, snapshots: Iterable[Snapshot], requested: Collection[int]
) -> tuple[StoredFile, ...]:
    """Returns the change files of the requested snapshots."""
    versions = {s.table_version: s.id for s in snapshots if s.table_version is not None and s.id in requested}
    return tuple(
        StoredFile(
            FileRole.CHANGE_DATA,
            (action.get("tags") or {}).get("sha256", ""),
            action["size"],
            (Expected(StoredLocation(f"{LogPaths(log).table}/{action['path']}"), (snapshot,)),),
        )
        for version, snapshot in sorted(versions.items())
        for action in _read_change_actions(store, log, version)
    )


def _read_change_actions(store: Store, log: str, version: int) -> list[Mapping[str, Any]]:
    """Returns none if Delta's retention has deleted the commit, or if it is damaged: no reader finds its feed then.

    The check of the published table reports a damaged commit.
    """
    try:
        lines = store.read(f"{LogPaths(log).table}/_delta_log/{version:020d}.json").splitlines()
        actions = [decode_json(line, dict[str, Any]) for line in lines]
    except (NotFoundError, msgspec.DecodeError):
        return []
    return [action["cdc"] for action in actions if "cdc" in action]
