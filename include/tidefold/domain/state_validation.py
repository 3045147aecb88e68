"""The rules of every stored state and manifest. If one breaks them, it is damaged or a bug wrote it.

Readers raise a typed error before tidefold plans or deletes anything (I23).
"""

from __future__ import annotations

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind
from tidefold.domain.paths import DataFileName
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import CorruptError


def check_state(state: LogState) -> LogState:
    """Returns the state. Raises CorruptError with the rule that it breaks."""
    _check_change_sets(state)
    _check_snapshots(state)
    for path in (*state.garbage, *(entry.quarantine for entry in state.landed if entry.quarantine)):
        _check_path(state.log, path)
    return state


def check_manifest(manifest: Manifest, snapshot: Snapshot) -> Manifest:
    """Returns the manifest of this snapshot. Raises CorruptError."""
    what = (manifest.snapshot, manifest.epoch, manifest.token, manifest.from_sqn, manifest.to_sqn)
    if what != (snapshot.id, snapshot.epoch, snapshot.token, snapshot.from_sqn, snapshot.to_sqn):
        raise _corrupt(
            "MANIFEST_OF_ANOTHER", manifest.log, f"the manifest of snapshot {snapshot.id} belongs to another snapshot"
        )
    names = [DataFileName.parse(file.name) for file in manifest.files]
    if len(set(names)) < len(names) or any(file.bytes < 0 or file.rows < 0 for file in manifest.files):
        raise _corrupt("MANIFEST_INVALID", manifest.log, f"the manifest of snapshot {snapshot.id} is not valid")
    return manifest


def _check_change_sets(state: LogState) -> None:
    """Checks each list as a whole, because every read of a long log calls this function."""
    sets = state.change_sets
    ends = [state.truncated_to, *(c.sqn for c in sets)]
    gap = next((c for c, end in zip(sets, ends, strict=False) if c.begin != end + 1 or c.sqn < c.begin), None)
    if gap:
        raise _corrupt("SQN_GAP", state.log, f"change set {gap.sqn} does not follow the one before it")
    if any(c.location.offset < 0 or c.location.length < 0 or c.rows < 0 for c in sets):
        raise _corrupt("RANGE_NEGATIVE", state.log, "a change set has a negative size")
    segments = {c.location.segment for c in sets}
    # Only change sets of one segment can be the same one. Without pairs, 10,000 segments take a tenth of the time.
    if len(segments) < len(sets) and len({(c.location.segment, c.location.ordinal) for c in sets}) < len(sets):
        raise _corrupt("SEGMENT_TWICE", state.log, "two of its entries name the same part of one segment")
    for path in segments:
        _check_path(state.log, path)


def _check_snapshots(state: LogState) -> None:
    seen: set[int] = set()
    last = 0
    for snapshot in state.snapshots:
        if snapshot.id <= last:
            raise _corrupt("SNAPSHOT_TWICE", state.log, f"snapshot {snapshot.id} has more than one record")
        head = snapshot.as_of.head if snapshot.as_of else None
        for other in (snapshot.base, snapshot.restored_from, head):
            if other is not None and other not in seen:
                raise _corrupt(
                    "BASE_MISSING", state.log, f"snapshot {snapshot.id} is based on {other}, which does not exist"
                )
        if not 0 <= snapshot.from_sqn <= snapshot.folds_to <= snapshot.to_sqn:
            raise _corrupt("RANGE_NEGATIVE", state.log, f"snapshot {snapshot.id} ends before it begins")
        if snapshot.kind is SnapshotKind.TAIL and snapshot.base is None:
            raise _corrupt("BASE_MISSING", state.log, f"tail-only snapshot {snapshot.id} has no base")
        if snapshot.as_of and (snapshot.kind is not SnapshotKind.FULL or snapshot.published):
            raise _corrupt(
                "AS_OF_PUBLISHED", state.log, f"snapshot {snapshot.id} is as of an instant, but it is published"
            )
        last = snapshot.id
        seen.add(last)


def _check_path(log: str, path: str) -> None:
    if path[:1] == "/" or (".." in path and ".." in path.split("/")):
        raise _corrupt("PATH_OUTSIDE_ROOT", log, f"`{path}` is outside the store")


def _corrupt(code: str, log: str, what: str) -> CorruptError:
    return CorruptError(
        code,
        f"The ledger of `{log}` is damaged: {what}.",
        hint=f"Nothing was changed. Put `logs/{log}/ledger` and `pages` back from a backup, "
        "never an older `snapshots`.",
    )
