"""Settles refused records by hand: a person decides that they need no more."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.domain.ingest.append import require_open
from tidefold.domain.ingest.quarantine_retry import quarantine_files
from tidefold.domain.wording import count_noun, shorten_reason
from tidefold.operations.ground import recovery
from tidefold.operations.ground.outcome import Details, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import require_state
from tidefold.operations.quarantine.commit import SortedRecords, commit_resolved
from tidefold.operations.quarantine.inspect import require_none_refused
from tidefold.sources.quarantine.reparse import read_refused


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledDetails(Details):
    """How many refused records a person settled by hand. `left`: others that stay refused."""

    records: int
    by: str
    why: str
    left: int = 0


def settle(
    pipeline: Pipeline,
    log: str,
    by: str,
    why: str,
    reason: str | None = None,
    file: str | None = None,
    *,
    plan: bool = False,
) -> Outcome:
    """Settles refused records by hand: all, or only those with a `reason` or of a landed `file`.

    They count as ignored. The record of their file stores who did it and why. With `plan` nothing changes.

    Raises NotFoundError for an unknown log, RefusedError if it is stopped, ConflictError if another process was faster.
    """
    if not plan:
        recovery.roll_forward(pipeline.store, [log])
    require_open(require_state(pipeline, log))
    count = left = 0
    for path in quarantine_files(require_state(pipeline, log)):
        state = require_state(pipeline, log)
        # A damaged file can be settled as a whole: nothing of it is read again.
        records = list(read_refused(pipeline.store, state, path, proved=bool(reason or file)))
        gone = [one for one in records if reason in (None, one.entry.reason) and file in (None, one.entry.file)]
        if gone and not plan:
            parts = SortedRecords(settled=[(one, "ignored") for one in gone])
            commit_resolved(pipeline, state, path, parts, records, shorten_reason(f"by {by}: {why}"))
        count, left = count + len(gone), left + len(records) - len(gone)
    details = SettledDetails(records=count, by=by, why=why, left=left)
    if not count:
        require_none_refused(require_state(pipeline, log))
        return Outcome(log, Status.NOTHING, "no record is refused", details=details)
    if plan:
        return Outcome(log, Status.PLANNED, f"would settle {count_noun(count, 'refused record')}", details=details)
    counted = count_noun(count, "refused record")
    more = f"; {left:,} more refused" if left else ""
    return Outcome(log, Status.SETTLED, f"{counted} settled by {by}: {why}{more}", details=details)
