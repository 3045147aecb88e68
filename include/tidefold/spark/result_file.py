"""The file in which a Spark job returns its outcomes to the process that started it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tidefold.operations.ingest.ingest_outcome import IngestDetails, RefusedDetails
from tidefold.operations.outcome import Details, Outcome, UntypedDetails
from tidefold.operations.quality.judge import JudgementDetails
from tidefold.operations.verify.result import ReadersDetails
from tidefold.storage.safe_files import make_private_folder

# The details of the steps that a job runs, by the name under which the file stores them.
_DETAILS = {
    kind.__name__: kind
    for kind in (Details, UntypedDetails, IngestDetails, RefusedDetails, JudgementDetails, ReadersDetails)
}


class _StoredOutcome(msgspec.Struct):
    """An outcome without its details, the name of their class, and the details as JSON."""

    outcome: Outcome
    details_type: str = Details.__name__
    details: msgspec.Raw = msgspec.Raw(b"{}")


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Writes the file at once: a reader sees all of it or nothing."""
    make_private_folder(path.parent)
    part = path.with_name(f"{path.name}.part")
    stored = [
        _StoredOutcome(
            outcome=replace(outcome, details=Details()),
            details_type=type(outcome.details).__name__,
            details=msgspec.Raw(msgspec.json.encode(outcome.details)),
        )
        for outcome in outcomes
    ]
    part.write_bytes(msgspec.json.encode({"outcomes": stored}))
    os.replace(part, path)


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes that a job wrote; the file is removed. None if the job died before it wrote them."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return []
    path.unlink()
    stored = msgspec.json.decode(written, type=dict[str, list[_StoredOutcome]])["outcomes"]
    return [
        replace(one.outcome, details=msgspec.json.decode(one.details, type=_DETAILS[one.details_type]))
        for one in stored
    ]
