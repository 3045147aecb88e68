"""Deletes old local copies. Its rule does not depend on `retention`: only the newest snapshot has a copy (L5, I18)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import chain

from tidefold.domain.retention.local_copies import CopyName, LocalFile, bytes_on_disk, stays
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import wrap_unexpected
from tidefold.operations.local_copies.inventory import Seen, SegmentCopy, find_unneeded, look
from tidefold.operations.outcome import Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.details import LocalRetentionDetails, WarningDetails
from tidefold.storage import Store
from tidefold.storage.local_copies.copies import discard_files
from tidefold.storage.local_copies.roots import LocalRoots

_log = logging.getLogger(__name__)


def retain_local(pipeline: Pipeline, logs: Sequence[str], plan: bool = False) -> list[Outcome]:
    """Keeps the copy of each log's newest completed snapshot, and of a snapshot that is being judged.

    Deletes older copies, copies of aborted snapshots, files of dead writers, and copies of segments that every log in
    them has folded. With `plan` nothing changes. A file that cannot be read or deleted is a warning in the outcome.
    """
    if pipeline.local is None:
        return [Outcome(log, Status.NOTHING, "local copies are disabled") for log in logs]
    local = pipeline.local
    try:
        seen = look(pipeline.store, local)
    except Exception as error:
        why = _warn("local copies cannot be looked at", error)
        return [Outcome(log, Status.NOTHING, why, details=WarningDetails(warnings=[why])) for log in logs]
    segments = _find_unneeded(pipeline.store, seen, logs)
    left_out = [f"local copies in `{root}` cannot be looked at: {why}" for root, why in local.unreadable.items()]

    def act(log: str) -> Outcome:
        state = pipeline.ledger(log).find()
        old = {name: seen.snapshots[name] for name in seen.snapshots if name.log == log and not stays(state, name)}
        going = [*old.values(), *(segment.files for segment in segments.get(log, ()))]
        failed = {} if plan else {files: why for files in going if (why := _remove(local, files))}
        gone = [files for files in going if files not in failed]
        return _describe(log, _details(seen, old, gone, [*left_out, *failed.values()]), plan)

    return for_each_log(logs, act)


def _find_unneeded(store: Store, seen: Seen, logs: Sequence[str]) -> dict[str, list[SegmentCopy]]:
    """Returns the segment copies to delete, each with the log that reports it: a requested log if possible."""
    found: dict[str, list[SegmentCopy]] = {}
    for segment in find_unneeded(store, seen.segments):
        owner = next((log for log in logs if log in segment.logs), next(iter(logs)))
        found.setdefault(owner, []).append(segment)
    return found


def _remove(local: LocalRoots, files: Sequence[LocalFile]) -> str:
    """Deletes the files of one copy. Returns the warning if that failed, else an empty text."""
    try:
        discard_files(local, [file.path for file in files])
    except Exception as error:
        return _warn(f"the local copy `{files[0].path}` could not be deleted; the next call tries again", error)
    return ""


def _warn(what: str, error: Exception) -> str:
    found = wrap_unexpected(error)
    _log.warning("%s: %s", what, found, exc_info=None if found is error else error)
    return f"{what}: {found.code}: {found.message}"


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
    )


def _describe(log: str, details: LocalRetentionDetails, plan: bool) -> Outcome:
    files, warnings = details.files, details.warnings
    verb = "would remove" if plan else "removed"
    done = f"{verb} {count_noun(files, 'local file')}, {in_units(details.bytes or 0)}"
    message = "; ".join([done if files or warnings else "no local copy is to be removed", *warnings])
    done_status = Status.PLANNED if plan else Status.REMOVED
    return Outcome(log, done_status if files else Status.NOTHING, message, details=details)
