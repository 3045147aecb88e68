"""Shows the refused records of a log: counts by reason, and the first records one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.errors import InvalidInputError
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.quarantine.inspect import ReasonCount, RefusedRecord, count_refused, show_refused

LISTED = 100
_REASON = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """Counts of all reasons, and records of one `reason` or of all.

    more: there are more records than the listed ones.
    """

    counts: Sequence[ReasonCount]
    reason: str | None
    records: Sequence[RefusedRecord]
    more: bool


def view_quarantine(pipeline: Pipeline, log: str, reason: str | None) -> QuarantineView:
    """Builds the page of the quarantine. Raises InvalidInputError if the reason is not a code."""
    if reason is not None and not _REASON.fullmatch(reason):
        raise InvalidInputError("REASON_INVALID", "This is not a reason code.", hint="Choose one from the list.")
    records, more = show_refused(pipeline, log, reason, LISTED)
    return QuarantineView(count_refused(pipeline, log), reason, records, more)
