"""The refused records of a log: counted by reason, and the first of them one by one."""

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
    """Counts of all reasons; records of one (`reason`) or of all; `more`: there are others than those listed."""

    counts: Sequence[ReasonCount]
    reason: str | None
    records: Sequence[RefusedRecord]
    more: bool


def view_quarantine(pipeline: Pipeline, log: str, reason: str | None) -> QuarantineView:
    """What was refused. Raises InvalidInputError for what cannot be a reason."""
    if reason is not None and not _REASON.fullmatch(reason):
        raise InvalidInputError("REASON_INVALID", "This is not a reason code.", hint="Choose one from the list.")
    records, more = show_refused(pipeline, log, reason, LISTED)
    return QuarantineView(count_refused(pipeline, log), reason, records, more)
