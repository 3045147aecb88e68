"""Commits the results of the refused records of one quarantine file: of a retry, or of a person's decision.

One commit appends its records and corrects the counts of their files. So no record is appended twice, even if retries
are killed or run at the same time.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa

from tidefold.changelog import write_intents
from tidefold.changelog.write_intents import Intent, IntentLog
from tidefold.domain.ingest.quarantine_retry import (
    QuarantineRetryCommit,
    RecoveredChangeSet,
    ResolvedCounts,
    find_skipped_ranges,
    retake,
)
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import CHANGELOG, LogPaths
from tidefold.errors import ConflictError, RefusedError
from tidefold.operations.ground import recovery
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.local_copies.segments import write_segment
from tidefold.sources.quarantine.reparse import Refused, SecondLook
from tidefold.sources.quarantine.writer import Quarantined, name_quarantine
from tidefold.sources.records.errors import is_awaiting


@dataclass(slots=True)
class SortedRecords:
    """The records of one quarantine file.

    tables: the changes to append.
    settled: records that are no longer refused, each with its new count.
    staying: records that stay, each with the reason.
    renewed: entries with another reason than before, by file and line.
    """

    tables: list[tuple[SecondLook, pa.Table]] = field(default_factory=list)
    settled: list[tuple[Refused, str]] = field(default_factory=list)
    staying: list[tuple[Refused, str]] = field(default_factory=list)
    renewed: dict[tuple[str, int], Quarantined] = field(default_factory=dict)


def commit_resolved(
    pipeline: Pipeline, state: LogState, path: str, groups: SortedRecords, records: Iterable[Refused], note: str = ""
) -> None:
    """Announces, writes and commits the changes, then deletes the files that the log no longer needs.

    records: all of the file; those that are not settled stay refused.
    """
    store, run = pipeline.store, uuid.uuid4().hex
    gone = {one.landed_line for one, _ in groups.settled}
    segment = f"{CHANGELOG}/{now()[:10]}/{uuid.uuid4().hex}.seg"
    entries = (groups.renewed.get(one.landed_line, one.entry) for one in records if one.landed_line not in gone)
    refused = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    kept = name_quarantine(LogPaths(state.log).quarantine, hashlib.sha256(refused).hexdigest()) if refused else None
    files = tuple(filter(None, (segment, kept, path)))
    write_intents.begin(store, Intent(run, 0, now(), (IntentLog(state.log, state.shape, state.fence),), files))
    if kept:
        store.put_if_absent(kept, refused)
    parts = write_segment(pipeline, segment, [(state.log, t) for _, t in groups.tables]) if groups.tables else []
    brought = tuple(
        RecoveredChangeSet(look.topic, look.partition, part.change_set(()))
        for (look, _), part in zip(groups.tables, parts, strict=True)
    )
    retaken = QuarantineRetryCommit(
        path, kept, _count_settled(groups), brought, state.fence, state.last_sqn, find_skipped_ranges(state), note
    )
    try:
        pipeline.ledger(state.log).commit(lambda current: retake(current, retaken))
    except (RefusedError, ConflictError):
        recovery.end_run(store, run, [state.log], files)
        raise
    recovery.end_run(store, run, [state.log], files)


def _count_settled(parts: SortedRecords) -> tuple[ResolvedCounts, ...]:
    settled: dict[int, ResolvedCounts] = {}
    for one, count in parts.settled:
        number = one.landed.number
        before = settled.get(number, ResolvedCounts(number))
        moved = before.key_changes + is_awaiting(one.entry)
        settled[number] = replace(before, **{count: getattr(before, count) + 1}, key_changes=moved)
    return tuple(settled.values())
