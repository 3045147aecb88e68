"""Manages local copies during the steps of the life cycle, and deletes those that are no longer kept.

No error here fails a step: it is a warning in the log and in the outcome (I15).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import CHANGELOG
from tidefold.domain.retention.local_copies import CopyName, LocalFile, bytes_on_disk, leftover, stays
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import CorruptError, TidefoldError, wrap_unexpected
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.removal_details import EVERYTHING, Approved, LocalRetentionDetails, WarningDetails
from tidefold.operations.ground.snapshot_details import LocalCopyDetails
from tidefold.operations.local_copies.hosts import note_copied, retain_on_hosts, with_hosts
from tidefold.operations.local_copies.inventory import Seen, SegmentCopy, find_unneeded, look
from tidefold.storage import Store
from tidefold.storage.local_copies.copies import copies, copy_snapshot, discard, discard_files, gaps
from tidefold.storage.local_copies.host_copies import HostCopied
from tidefold.storage.local_copies.roots import LocalRoots

if TYPE_CHECKING:
    from tidefold.fold.inputs import SourcePlaces

_log = logging.getLogger(__name__)


def copy_staged(
    pipeline: Pipeline, manifest: Manifest, digest: str, on_hosts: Sequence[HostCopied] = ()
) -> LocalCopyDetails | None:
    """Makes the local copy of a staged snapshot. Returns None if no local copies are configured.

    on_hosts: the copies that the tasks made on their hosts.
    Raises CorruptError if the files in the store are not those that were staged.
    """
    if pipeline.hosts:
        return note_copied(pipeline.store, CopyName(manifest.log, manifest.snapshot), on_hosts)
    if pipeline.local is None:
        return None
    try:
        # Imported here, because `status` must not load these modules.
        from tidefold.delta.publish import build_table
        from tidefold.operations.local_copies.inventory import provide_room

        provide_room(pipeline, manifest)
        # Made from the manifest, because shared files are in the table's folder, whose Delta log does not have this
        # snapshot.
        commit = build_table(manifest)[1]
    except Exception as error:
        return _report_no_copy(manifest, error)
    try:
        copied = copy_snapshot(pipeline.store, pipeline.local, manifest, digest, commit, pipeline.config.local.threads)
    except CorruptError:
        raise
    except Exception as error:
        return _report_no_copy(manifest, error)
    return LocalCopyDetails(**asdict(copied), warning=None)


def _report_no_copy(manifest: Manifest, error: Exception) -> LocalCopyDetails:
    return LocalCopyDetails(warning=_warn(f"{manifest.log}: snapshot {manifest.snapshot} has no local copy", error))


def prune(pipeline: Pipeline, log: str, snapshot: int) -> None:
    """Removes the local copy of exactly this aborted snapshot (C7)."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [CopyName(log, snapshot), CopyName(log, snapshot, ongoing=True)])
    except Exception as error:
        _warn(f"{log}: the local copy of snapshot {snapshot} stays until `tidefold retain clean --local`", error)


def clear_leftovers(pipeline: Pipeline, log: str, state: LogState) -> None:
    """Deletes abandoned copies and copies of aborted snapshots (L4), before a snapshot is made. `state`: the newest."""
    if pipeline.local is None:
        return
    try:
        old = [name for name in copies(pipeline.local) if leftover(state, name)]
        if old:
            discard(pipeline.local, old)
            _log.info("%s: deleted left-over local copies: %s", log, ", ".join(map(str, old)))
    except Exception as error:
        _warn(f"{log}: left-over local copies stay until `tidefold retain clean --local`", error)


def forget(pipeline: Pipeline, log: str, segments: Sequence[str]) -> None:
    """Deletes the local copies of a dropped log, and of its deleted segments."""
    if pipeline.local is None:
        return
    try:
        discard(pipeline.local, [name for name in copies(pipeline.local) if name.log == log])
        pipeline.local.delete(segments)
    except Exception as error:
        _warn(f"{log}: local copies are left", error)


def places_of(pipeline: Pipeline, log: str) -> SourcePlaces:
    """Returns where the files of a log may be read. Incomplete copies serve the files that they have (L7)."""
    from tidefold.fold.inputs import SourcePlaces

    store = pipeline.store.address
    if pipeline.hosts:
        return SourcePlaces(store, hosts=with_hosts(pipeline))
    if pipeline.local is None:
        return SourcePlaces(store)
    try:
        here = [name for name in copies(pipeline.local) if name.log == log and not name.ongoing]
    except TidefoldError as error:
        _warn(f"{log}: local copies cannot be looked at", error)
        return SourcePlaces(store)
    roots = {name.snapshot: pipeline.local.root_of(str(name)) for name in here}
    return SourcePlaces(store, roots, pipeline.local.root_of(CHANGELOG))


@dataclass(frozen=True, slots=True)
class CopiesHere:
    """Ids of completed snapshots with a local copy, oldest first: `whole` ones are usable, `partial` ones not."""

    whole: tuple[int, ...] = ()
    partial: tuple[int, ...] = ()


def copies_here(pipeline: Pipeline, state: LogState) -> CopiesHere:
    """Returns the completed snapshots of a log that have a copy. Ignores copies that cannot be read."""
    if pipeline.local is None:
        return CopiesHere()
    try:
        ids = {name.snapshot for name in copies(pipeline.local) if name.log == state.log and not name.ongoing}
    except TidefoldError as error:
        _warn(f"{state.log}: local copies cannot be looked at", error)
        return CopiesHere()
    completed = [s for s in state.snapshots if s.id in ids and s.state is State.COMPLETED]
    lacking = {s.id: _find_missing(pipeline.local, state.log, s) for s in completed}
    return CopiesHere(
        tuple(i for i, paths in lacking.items() if paths == ()), tuple(i for i, paths in lacking.items() if paths)
    )


def _find_missing(local: LocalRoots, log: str, snapshot: Snapshot) -> tuple[str, ...] | None:
    try:
        return gaps(local, CopyName(log, snapshot.id), snapshot.manifest or "")
    except TidefoldError as error:
        _warn(f"{log}: the local copy of snapshot {snapshot.id} cannot be looked at", error)
        return None


def snapshots_here(pipeline: Pipeline, state: LogState) -> tuple[int, ...]:
    """Returns the ids of the snapshots whose copy on this machine may be used, oldest first."""
    return copies_here(pipeline, state).whole


def _warn(what: str, error: Exception) -> str:
    failure = wrap_unexpected(error)
    _log.warning("%s: %s", what, failure, exc_info=None if failure is error else error)
    return f"{failure.code}: {failure.message}"


def retain_local(
    pipeline: Pipeline, logs: Sequence[str], plan: bool = False, approved: Approved = EVERYTHING
) -> list[Outcome]:
    """Keeps the copy of each log's newest completed snapshot, and of a snapshot that is being judged.

    Deletes older copies, copies of aborted snapshots, files of dead writers, and copies of segments that every log in
    them has folded. With `plan` nothing changes. A file that cannot be read or deleted is a warning in the outcome.

    approved: delete nothing else.
    """
    if pipeline.hosts:
        return retain_on_hosts(pipeline, pipeline.hosts, logs, plan, approved)
    if pipeline.local is None:
        return [Outcome(log, Status.NOTHING, "local copies are disabled") for log in logs]
    local = pipeline.local
    try:
        seen = look(pipeline.store, local)
    except Exception as error:
        why = _warn_about("local copies cannot be looked at", error)
        return [Outcome(log, Status.NOTHING, why, details=WarningDetails(warnings=[why])) for log in logs]
    segments = _find_unneeded(pipeline.store, seen, logs)
    left_out = [f"local copies in `{root}` cannot be looked at: {why}" for root, why in local.unreadable.items()]

    def act(log: str) -> Outcome:
        state = pipeline.ledger(log).find()
        old = {name: seen.snapshots[name] for name in seen.snapshots if name.log == log and not stays(state, name)}
        whole = [*old.values(), *(segment.files for segment in segments.get(log, ()))]
        going = [files for files in whole if all(file.path in approved.of(log) for file in files)]
        failed = {} if plan else {files: why for files in going if (why := _remove(local, files))}
        gone = [files for files in going if files not in failed]
        return _describe(log, _details(seen, old, gone, [*left_out, *failed.values()]), plan)

    return for_each_log(logs, act)


def _find_unneeded(store: Store, seen: Seen, logs: Sequence[str]) -> dict[str, list[SegmentCopy]]:
    """Returns the segment copies to delete, each with the log that reports it: a requested log if possible."""
    unneeded: dict[str, list[SegmentCopy]] = {}
    for segment in find_unneeded(store, seen.segments):
        owner = next((log for log in logs if log in segment.logs), next(iter(logs)))
        unneeded.setdefault(owner, []).append(segment)
    return unneeded


def _remove(local: LocalRoots, files: Sequence[LocalFile]) -> str:
    """Deletes the files of one copy. Returns the warning if that failed, else an empty text."""
    try:
        discard_files(local, [file.path for file in files])
    except Exception as error:
        return _warn_about(f"the local copy `{files[0].path}` could not be deleted; the next call tries again", error)
    return ""


def _warn_about(what: str, error: Exception) -> str:
    return f"{what}: {_warn(what, error)}"


def _details(
    seen: Seen,
    old: Mapping[CopyName, tuple[LocalFile, ...]],
    gone: Sequence[tuple[LocalFile, ...]],
    warnings: Sequence[str],
) -> LocalRetentionDetails:
    """Returns the details. `bytes` counts every name; `freed` only files that no other copy shares."""
    files = list(chain.from_iterable(gone))
    names = {(file.root, file.path) for file in files}
    rest = [file for file in seen.files if (file.root, file.path) not in names]
    return LocalRetentionDetails(
        snapshots=sorted({name.snapshot for name, copy in old.items() if copy in gone}),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        freed=bytes_on_disk(seen.files) - bytes_on_disk(rest),
        paths=[file.path for file in files],
        warnings=list(warnings),
        hosts=[],
    )


def _describe(log: str, details: LocalRetentionDetails, plan: bool) -> Outcome:
    files, warnings = details.files, details.warnings
    verb = "would remove" if plan else "removed"
    done = f"{verb} {count_noun(files, 'local file')}, {in_units(details.bytes or 0)}"
    message = "; ".join([done if files or warnings else "no local copy is to be removed", *warnings])
    done_status = Status.PLANNED if plan else Status.REMOVED
    return Outcome(log, done_status if files else Status.NOTHING, message, details=details)
