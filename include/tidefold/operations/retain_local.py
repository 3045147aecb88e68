"""Removes local copies that are of no more use; starts no JVM. Its rule is its own: one copy, the newest (L5, I18)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tidefold.changelog.intents import announced
from tidefold.changelog.segment import read_index
from tidefold.ledger import Ledger
from tidefold.lifecycle.errors import CorruptError, NotFoundError, TidefoldError, unforeseen
from tidefold.lifecycle.local_copies import CopyName, segment_of, segments_needed, stays
from tidefold.operations.outcome import Outcome, each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.storage import Entry, Store
from tidefold.storage.local import LocalStore
from tidefold.storage.local_copies import copies, discard_files

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _SegmentCopy:
    """A segment's local files, whole or half. No `logs`: the copy cannot be read."""

    path: str
    logs: frozenset[str]
    files: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What lay there before any ledger was read: so it is no newer than what the ledgers say."""

    snapshots: Mapping[CopyName, tuple[Entry, ...]]
    segments: tuple[_SegmentCopy, ...]


def retain_local(pipeline: Pipeline, logs: Sequence[str], plan: bool = False) -> list[Outcome]:
    """Keeps of each log the copy of its newest completed snapshot, and of one that is being judged. Older ones go, as
    do those of aborted snapshots, what dead writers left, and copies of segments that every log in them has folded.

    With `plan` nothing changes. What cannot be looked at or removed is a warning in the outcome.
    """
    if pipeline.local is None:
        return [Outcome(log, "nothing", "local copies are disabled") for log in logs]
    local = pipeline.local
    try:
        seen = _Seen(copies(local), _idle_segments(pipeline.store, local))
    except Exception as error:
        why = _warned("local copies cannot be looked at", error)
        return [Outcome(log, "nothing", why, facts={"warnings": [why]}) for log in logs]
    unneeded = _unneeded(pipeline.store, seen.segments, logs)

    def act(log: str) -> Outcome:
        state = pipeline.ledger(log).find()
        old = {name: seen.snapshots[name] for name in seen.snapshots if name.log == log and not stays(state, name)}
        going = [*old.values(), *(segment.files for segment in unneeded.get(log, ()))]
        failed = {} if plan else {files: why for files in going if (why := _removed(local, files))}
        return _outcome(log, old, [files for files in going if files not in failed], list(failed.values()), plan)

    return each_log(logs, act)


def _idle_segments(store: Store, local: LocalStore) -> tuple[_SegmentCopy, ...]:
    """Copies of segments, but for those that a run is writing: a log may still be told of them."""
    files: dict[str, list[Entry]] = {}
    for entry in local.list("", unfinished=True):
        path = segment_of(entry.path)
        if path:
            files.setdefault(path, []).append(entry)
    on_their_way = {path for run in announced(store) for path in run.files} if files else set()
    idle = [path for path in files if path not in on_their_way]
    return tuple(_SegmentCopy(path, _logs_in(local, path), tuple(files[path])) for path in idle)


def _logs_in(local: LocalStore, path: str) -> frozenset[str]:
    try:
        return frozenset(entry.log for entry in read_index(local, path))
    except (NotFoundError, CorruptError):
        return frozenset()


def _unneeded(store: Store, segments: Sequence[_SegmentCopy], logs: Sequence[str]) -> dict[str, list[_SegmentCopy]]:
    """The segment copies that may go, each under the log that its removal is told of: one of its own if it is asked."""

    @cache
    def needed_by(log: str) -> frozenset[str] | None:
        try:
            state = Ledger(store, log).find()
        except TidefoldError:
            return None  # Nobody knows what it needs.
        return segments_needed(state) if state else frozenset()

    found: dict[str, list[_SegmentCopy]] = {}
    for segment in segments:
        owner = next((log for log in logs if log in segment.logs), next(iter(logs)))
        needs = [needed_by(log) for log in sorted(segment.logs)]
        if all(need is not None and segment.path not in need for need in needs):
            found.setdefault(owner, []).append(segment)
    return found


def _removed(local: LocalStore, files: Sequence[Entry]) -> str:
    """Removes the files of one copy; answers what went wrong, if anything did."""
    try:
        discard_files(local, [file.path for file in files])
    except Exception as error:
        return _warned(f"the local copy `{files[0].path}` is left for the next time", error)
    return ""


def _warned(what: str, error: Exception) -> str:
    found = unforeseen(error)
    _log.warning("%s: %s", what, found, exc_info=None if found is error else error)
    return f"{what}: {found.code}: {found.message}"


def _outcome(
    log: str,
    old: Mapping[CopyName, tuple[Entry, ...]],
    going: Sequence[tuple[Entry, ...]],
    warnings: Sequence[str],
    plan: bool,
) -> Outcome:
    files = [file for copy in going for file in copy]
    facts = {
        "snapshots": sorted({name.snapshot for name, copy in old.items() if copy in going}),
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "paths": [file.path for file in files],
        "warnings": list(warnings),
    }
    verb = "would remove" if plan else "removed"
    done = f"{verb} {len(files):,} local {'file' if len(files) == 1 else 'files'}, {facts['bytes']:,} bytes"
    message = "; ".join([done if files or warnings else "no local copy is to be removed", *warnings])
    return Outcome(log, ("planned" if plan else "removed") if files else "nothing", message, facts=facts)
