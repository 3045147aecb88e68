"""When the files of a log were proved and a restore was drilled, for people: old proofs are marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tidefold.domain.verify.scrub_round import is_old
from tidefold.domain.wording import count_noun, format_minute, in_units
from tidefold.presentation.tables import describe_drill

if TYPE_CHECKING:
    from tidefold.domain.verify.scrub_round import ProofRecord
    from tidefold.operations.inspect.status import LogStatus

_OLD = " OLD"


def describe_status(status: LogStatus) -> dict[str, Any]:
    """The JSON of a status: the proof with the share that its round has read, an error as every command shows it."""
    from tidefold.ledger.stored_form import to_document

    proof = status.proof
    return {
        **to_document(replace(status, error=None)),
        "error": status.error.to_dict() if status.error else None,
        "proof": {**asdict(proof), "share": proof.share} if proof else None,
    }


def is_proof_old(status: LogStatus, now: str) -> bool:
    """Whether the last proof of all files is old. A log that was never proved is not old."""
    return status.proof is not None and bool(status.proof.proved) and is_old(status.proof.proved, now)


def is_drill_old(status: LogStatus, now: str) -> bool:
    """Whether the last drill is old. A log without a drill is not old."""
    drill = status.drilled.drill if status.drilled else None
    return drill is not None and is_old(drill.instant, now)


def proof_lines(status: LogStatus, now: str) -> Iterator[str]:
    """Returns the lines of `status` about a log that has a snapshot."""
    if status.error or not status.latest:
        return
    log, proof = status.log, status.proof
    old = f"{_OLD}: `tidefold scrub {log}` reads the next files" if is_proof_old(status, now) else ""
    yield f"{log}: {_describe_proof(proof)}{old}." if proof else f"{log}: files never proved; `tidefold scrub {log}`."
    if proof and proof.damaged:
        yield f"{log}: {describe_damage(proof)}; `tidefold scrub {log}` names the files."
    if status.drilled and status.drilled.drill:
        again = f"{_OLD}: `tidefold drill {log}` repeats it" if is_drill_old(status, now) else ""
        yield f"{log}: snapshot {status.drilled.id}: {describe_drill(status.drilled.drill)}{again}."
    else:
        yield f"{log}: restore never drilled; `tidefold drill {log}`."


def describe_damage(proof: ProofRecord) -> str:
    """How many files the newest proof found damaged."""
    count = len(proof.damaged)
    return f"{count_noun(count, 'damaged file')} at the proof of {format_minute(proof.instant)}"


def _describe_proof(proof: ProofRecord) -> str:
    proved = f"files proved {format_minute(proof.proved)}" if proof.proved else "files not all proved yet"
    size = in_units(proof.bytes)
    if proof.position:
        return f"{proved}, the round since then has read {proof.share:.0%} of {size}"
    return f"{proved}, the last round read all {size} ({proof.by})"
