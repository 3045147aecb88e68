"""Counts the refused records of a log by reason, or lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import groupby, islice

from tidefold.domain.ingest.quarantine_retry import quarantine_files
from tidefold.domain.log_state import LandedFileRecord, LogState
from tidefold.errors import CorruptError, NotFoundError, RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import require_state
from tidefold.operations.quarantine.key_changes import key_in
from tidefold.sources.quarantine.reparse import Refused, read_refused

# So many refused records are searched for a key that their texts do not show as one.
SEARCHED = 10_000


@dataclass(slots=True)
class ReasonCount:
    """The refused records of a log for one reason.

    files: the number of their landed files.
    oldest, newest: when the first and the last of these files were ingested (ISO 8601; None: not recorded).
    file, line, offset, detail: the place and detail of the first record, as an example.
    """

    log: str
    reason: str
    count: int
    files: int
    oldest: str | None
    newest: str | None
    file: str
    line: int
    offset: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """One refused record. `record`: its stored text, which comes from the source and may contain anything."""

    file: str
    line: int
    topic: str
    partition: int
    offset: int | None
    reason: str
    detail: str
    taken: str | None
    stored_in: str
    record: str


def count_refused(pipeline: Pipeline, log: str) -> list[ReasonCount]:
    """Returns one count for each reason, the most frequent first. Empty for an unknown log.

    Raises CorruptError if a quarantine file is missing or damaged.
    """
    pipeline.log(log)
    state = pipeline.ledger(log).find()
    counts: dict[str, ReasonCount] = {}
    files: set[tuple[str, str]] = set()
    for one in _all(pipeline, state) if state else ():
        entry, taken = one.entry, ingest_time(one.landed)
        total = counts.get(entry.reason)
        if total is None:
            total = counts[entry.reason] = ReasonCount(
                log=log,
                reason=entry.reason,
                count=0,
                files=0,
                oldest=taken,
                newest=taken,
                file=entry.file,
                line=entry.line,
                offset=entry.offset,
                detail=entry.detail,
            )
        if total.file == entry.file and entry.line < total.line:
            total.line, total.offset, total.detail = entry.line, entry.offset, entry.detail
        total.count += 1
        if (entry.reason, entry.file) not in files:
            files.add((entry.reason, entry.file))
            total.files += 1
            instants = [instant for instant in (total.oldest, total.newest, taken) if instant]
            total.oldest, total.newest = min(instants, default=None), max(instants, default=None)
    return sorted(counts.values(), key=lambda c: (-c.count, c.reason))


def show_refused(pipeline: Pipeline, log: str, reason: str | None, limit: int) -> tuple[list[RefusedRecord], bool]:
    """Returns the first `limit` refused records in the order of arrival and place, and whether there are more.

    Raises NotFoundError for an unknown log, RefusedError if only records for other reasons are refused, CorruptError as
    `count_refused` does.
    """
    state = require_state(pipeline, log)
    wanted = _by_place((one for one in _all(pipeline, state) if reason in (None, one.entry.reason)), limit + 1)
    records = [_describe(one) for one in islice(wanted, limit + 1)]
    if not records:
        require_none_refused(state)
    return records[:limit], len(records) > limit


def _by_place(records: Iterable[Refused], most: int) -> Iterator[Refused]:
    """Yields the first `most` records of each landed file in the order of their lines."""
    for _, ones in groupby(records, key=lambda one: (one.landed.number, one.entry.file)):
        yield from nsmallest(most, ones, key=lambda one: one.entry.line)


def require_none_refused(state: LogState) -> None:
    """Raises RefusedError if the log has refused records. Call it if none of them was chosen."""
    if names := [f"`{entry.name}`" for entry in state.landed if entry.quarantined]:
        raise RefusedError(
            "NO_SUCH_RECORD",
            f"No refused record of `{state.log}` has the file and code that you named.",
            hint=f"Name another code, or one of these files: {', '.join(names[:5])}. "
            f"`tidefold quarantine list {state.log}` has their codes.",
        )


def find_refused_of(pipeline: Pipeline, state: LogState, key: Sequence[str]) -> tuple[RefusedRecord, ...]:
    """Returns the refused records whose text shows that they are of one key. `key`: its values as text."""
    wanted = tuple(key)
    return tuple(_describe(one) for one in _all(pipeline, state) if key_in(one.entry.record, state.shape) == wanted)


def find_refused_with(pipeline: Pipeline, state: LogState, values: Sequence[str]) -> tuple[RefusedRecord, ...]:
    """Returns refused records, among the first ones, whose text has all these values and shows no key."""
    words = [re.compile(rf"(?<!\w){re.escape(value)}(?!\w)") for value in values]
    first = islice(_all(pipeline, state), SEARCHED)
    unkeyed = (one for one in first if all(word.search(one.entry.record) for word in words))
    return tuple(_describe(one) for one in unkeyed if key_in(one.entry.record, state.shape) is None)


def find_refused_keys(pipeline: Pipeline, state: LogState) -> dict[tuple[str, ...], str]:
    """Returns the reason of the last refused record of each key that the text of a record shows."""
    keys = ((key_in(one.entry.record, state.shape), one.entry.reason) for one in _all(pipeline, state))
    return {key: reason for key, reason in keys if key is not None}


def _all(pipeline: Pipeline, state: LogState) -> Iterator[Refused]:
    for path in quarantine_files(state):
        try:
            yield from read_refused(pipeline.store, state, path)
        except NotFoundError as error:
            now = pipeline.ledger(state.log).find()
            if now is None or path not in quarantine_files(now):
                continue  # A retry has replaced the file; the next call lists what is left.
            message = f"`{path}` is missing, and the ledger needs it."
            raise CorruptError("FILE_MISSING", message, hint="Restore the file from a backup.") from error


def _describe(one: Refused) -> RefusedRecord:
    entry, landed = one.entry, one.landed
    return RefusedRecord(
        file=entry.file,
        line=entry.line,
        topic=landed.topic,
        partition=landed.partition,
        offset=entry.offset,
        reason=entry.reason,
        detail=entry.detail,
        taken=ingest_time(landed),
        stored_in=landed.quarantine or "",
        record=entry.record,
    )


def ingest_time(landed: LandedFileRecord) -> str | None:
    """Returns when a file was ingested; None: before an import or a rebuild."""
    return landed.instant or None
