"""Stages a snapshot: takes over the files that no task replaced, writes the manifest, and says what was made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

from tidefold.delta.publish import create_snapshot_table, provide_new_files
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import describe_replayed, name_span
from tidefold.domain.snapshot.manifest import DataFile, Manifest, data_folder
from tidefold.domain.wording import count_noun, describe_ties
from tidefold.fold.merge.arrow_merge import LISTED, PARTED
from tidefold.fold.plan import FoldResult
from tidefold.fold.plan_fold import find_carried_files
from tidefold.ledger import write_manifest
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.snapshot_details import LocalCopyDetails, StagedDetails, StagedImport, StagedRestore
from tidefold.operations.local_copies.manage import copy_staged
from tidefold.operations.snapshot.attempt import Attempt, RestoreInfo
from tidefold.operations.snapshot.task_results import describe_reads, find_failed_reads, read_from
from tidefold.storage import Store, compute_sha256, files_at_once, link_data_file


def stage(pipeline: Pipeline, attempt: Attempt, results: Sequence[FoldResult]) -> Outcome:
    """Takes over the files that no task replaced, and records the snapshot as staged. Raises TidefoldError."""
    snapshot, store = attempt.snapshot, pipeline.store
    carried = tuple(replace(f, carried=True) for f in find_carried_files(attempt.base, results))
    staying = tuple(f for r in results for f in r.files if f.name == r.stays)
    copied = _carry(pipeline, attempt, (*carried, *staying)) + sum(r.bytes_copied for r in results)
    clears = max((r.clears for r in results), default=0)
    manifest = Manifest(
        log=attempt.log,
        snapshot=snapshot.id,
        epoch=snapshot.epoch,
        kind=snapshot.kind,
        base=snapshot.base,
        from_sqn=snapshot.from_sqn,
        to_sqn=snapshot.to_sqn,
        shape=attempt.shape,
        files=tuple(sorted((*carried, *(f for r in results for f in r.files)), key=lambda f: f.name)),
        bytes_copied=copied,
        expired=sum(r.expired for r in results),
        cleared=max([r.cleared for r in results] + [attempt.base.cleared if attempt.base else ()]),
        ties=sum(r.ties.count for r in results),
        tied=tuple(islice((one for r in results for one in r.ties.listed), LISTED)),
        schema=snapshot.schema,
        token=snapshot.token,
        claim=snapshot,
        schemas=attempt.schemas,
        progress=attempt.progress,
        redistribution=attempt.redistribution,
        clears=clears,
        cleared_rows=max(sum(r.cleared_rows for r in results), attempt.base.rows if attempt.base else 0)
        if clears
        else 0,
    )
    if manifest.kind is SnapshotKind.FULL:
        create_snapshot_table(store, manifest)
        if not snapshot.as_of:
            provide_new_files(store, manifest, pipeline.config.snapshots.copies, pipeline.config.snapshots.threads)
    digest = write_manifest(store, manifest)
    ledger = pipeline.ledger(attempt.log)
    state = ledger.commit(lambda state: transitions.stage(state, manifest, digest, read_from(results)))
    on_hosts = [copied for r in results for copied in r.copied]
    copy = None if snapshot.as_of else copy_staged(pipeline, manifest, digest, on_hosts)
    outcome = _describe_staged(attempt, manifest, results, copy)
    return replace(outcome, message=f"{outcome.message}{_describe_ended(state, snapshot)}")


def _carry(pipeline: Pipeline, attempt: Attempt, files: Sequence[DataFile]) -> int:
    """Links or copies unchanged files into the snapshot (N1), several at a time. Returns the copied bytes."""
    target = data_folder(attempt.log, attempt.snapshot.kind, attempt.snapshot.id)
    if not files or attempt.base is None or attempt.base.data_folder == target:
        return 0
    source, copy, store = attempt.base.data_folder, pipeline.config.snapshots.copies, pipeline.store
    # If the store can only copy, a file that the table already has is verified instead of copied.
    present = set() if store.links else {entry.path for entry in store.list(f"{target}/_data")}

    def take(file: DataFile) -> int:
        path = data_path(target, file.name)
        if path in present and _is_proved(store, path, file):
            return 0
        if path in present:  # Other bytes have the name, which `link` refuses.
            store.link(data_path(source, file.name), path, copy=copy)
            return 0
        done = link_data_file(store, data_path(source, file.name), path, file.bytes, copy)
        return file.bytes if done == "copy" else 0

    with ThreadPoolExecutor(files_at_once(store, pipeline.config.snapshots.threads)) as pool:
        return sum(pool.map(take, files))


def _is_proved(store: Store, path: str, file: DataFile) -> bool:
    with store.open(path) as stream:
        return compute_sha256(stream) == file.sha256


def _describe_staged(
    attempt: Attempt, manifest: Manifest, results: Sequence[FoldResult], copy: LocalCopyDetails | None
) -> Outcome:
    snapshot, restored = attempt.snapshot, attempt.restored
    details = _details(attempt, manifest, results, copy)
    message = f"snapshot {manifest.snapshot}{_which(snapshot)}: {count_noun(manifest.rows, 'row')}"
    # Restored or imported rows are often taken over unchanged.
    if details.changes or not (restored or snapshot.as_of):
        keys = f"{count_noun(details.upserts + details.deletes, 'key')} ({details.deletes:,} deleted)"
        message += f" after {count_noun(details.changes, 'change')} of {keys}"
    message += (
        f"; cleared {_times(manifest.clears)}, {count_noun(manifest.cleared_rows, 'row')} before"
        if manifest.clears
        else ""
    )
    message += f"; {count_noun(details.expired, 'row')} expired" if details.expired else ""
    message += f"; {describe_ties(details.ties)}" if details.ties else ""
    message += f"; {details.files_carried:,} of {count_noun(details.files, 'file')} taken over unchanged"
    message += f"{_describe_restore(restored) if restored else ''}{_describe_left_out(manifest)}"
    if copy and (copy.warning or copy.bytes):
        message += f"; no local copy: {copy.warning}" if copy.warning else "; with a local copy"
    return Outcome(manifest.log, Status.STAGED, message, manifest.snapshot, details=details)


def _details(
    attempt: Attempt, manifest: Manifest, results: Sequence[FoldResult], copy: LocalCopyDetails | None
) -> StagedDetails:
    snapshot, restored, restore, imported = attempt.snapshot, attempt.restored, None, None
    own = None if snapshot.external else snapshot.parent
    if restored and restored.snapshot is not None:
        restore = StagedRestore(
            restored=restored.snapshot,
            mode=restored.mode,
            skipped=restored.skipped,
            as_of=restored.as_of or None,
            replayed=restored.replayed,
            columns_gone=list(restored.dropped_columns) or None,
            recorded=attempt.expected_rows,
        )
    elif restored:
        imported = StagedImport(
            imported=restored.address,
            mode=restored.mode,
            skipped=restored.skipped,
            replayed=restored.replayed,
            older_by=restored.older_by,
        )
    return StagedDetails(
        kind=manifest.kind,
        because=snapshot.kind_reason,
        rows=manifest.rows,
        **{name: sum(getattr(r, name) for r in results) for name in ("changes", "upserts", "deletes", "replaced")},
        expired=manifest.expired,
        clears=manifest.clears,
        cleared_rows=manifest.cleared_rows,
        ties=manifest.ties,
        ties_apart=sum(r.ties.apart for r in results),
        parted=[one for one in map(json.loads, manifest.tied) if one.pop(PARTED, False)] or None,
        unresolved=manifest.unresolved,
        unresolved_keys=[json.loads(one) for one in manifest.unresolved_keys],
        files=len(manifest.files),
        files_carried=sum(f.carried for f in manifest.files),
        bytes_full=manifest.bytes_full,
        bytes_written=manifest.bytes_written,
        bytes_copied=manifest.bytes_copied,
        buckets=manifest.shape.buckets,
        # Only a restore reports where each file came from.
        read=describe_reads(attempt.tasks, results, own, places=restored is not None),
        manifests=find_failed_reads(restored.unread) if restored and restore else None,
        as_of=str(snapshot.as_of) if snapshot.as_of else None,
        restore=restore,
        imported=imported,
        local=copy,
    )


def _describe_left_out(manifest: Manifest) -> str:
    """Describes the keys that the snapshot lacks, and how to get them in."""
    if not manifest.unresolved:
        return ""
    first = json.loads(manifest.unresolved_keys[0])
    return (
        f"; keys left out: {manifest.unresolved:,} (UNAVAILABLE_VALUE), the first: {json.dumps(first['key'])}, whose "
        f"{', '.join(first['columns'])} was not sent and is in no earlier row. An incremental snapshot of Debezium of "
        "these keys, or a retry of their refused records, adds them"
    )


def _describe_ended(state: LogState, snapshot: Snapshot) -> str:
    """Says which attempts of other runs its claim has aborted."""
    causes = ((one, transitions.AbortCause.parse(one.abort_reason).superseded_by) for one in state.snapshots)
    ended = [one for one, by in causes if by == snapshot.epoch and one.run != snapshot.run]
    return "".join(f"; took over from run {one.run}, whose {one.title} is aborted" for one in ended)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _which(snapshot: Snapshot) -> str:
    if snapshot.as_of:
        return f" as of {snapshot.as_of}"
    return "" if snapshot.kind is SnapshotKind.FULL else f", {snapshot.kind}"


def _describe_restore(restored: RestoreInfo) -> str:
    said = f"; the rows of {restored.address or f'snapshot {restored.snapshot}'}"
    if restored.dropped_columns:
        said += f"; without columns that the log has no more: {', '.join(restored.dropped_columns)}"
    if restored.newest:
        said += f" instead of the {restored.newest_rows:,} rows of snapshot {restored.newest}"
    if restored.older_by:
        said += f"; older than that snapshot, without its {name_span(*restored.older_by)}"
    if left_out := restored.describe_left_out():
        said += f"; left out for good: {left_out}"
    if restored.replayed:
        said += f"; {describe_replayed(restored.mode, *restored.replayed)}"
    return said
