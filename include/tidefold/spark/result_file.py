"""The form and the file in which a Spark job returns its outcomes to the process that started it."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tidefold.operations.outcome import Details, Outcome
from tidefold.storage.safe_files import make_private_folder
from tidefold.typed_json import decode_json


class _StoredOutcome(msgspec.Struct):
    """An outcome without its details, the place of their class (`module:class`), and the details as JSON."""

    outcome: Outcome
    details_type: str = f"{Details.__module__}:{Details.__name__}"
    details: msgspec.Raw = msgspec.Raw(b"{}")


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """Returns the stored form of outcomes."""
    stored = [
        _StoredOutcome(
            outcome=replace(outcome, details=Details()),
            details_type=f"{type(outcome.details).__module__}:{type(outcome.details).__name__}",
            details=msgspec.Raw(msgspec.json.encode(outcome.details)),
        )
        for outcome in outcomes
    ]
    return msgspec.json.encode({"outcomes": stored})


def decode_outcomes(written: bytes) -> list[Outcome]:
    """Returns the outcomes of a stored form."""
    stored = decode_json(written, dict[str, list[_StoredOutcome]])["outcomes"]
    return [replace(one.outcome, details=decode_json(one.details, _find_details(one.details_type))) for one in stored]


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Writes the file at once: a reader sees all of it or nothing."""
    make_private_folder(path.parent)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(encode_outcomes(outcomes))
    os.replace(part, path)


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes that a job wrote; the file is removed. None if the job died before it wrote them."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return []
    path.unlink()
    return decode_outcomes(written)


def _find_details(place: str) -> type[Details]:
    """The class of details at a place. Raises TypeError if there is another thing."""
    kind = pkgutil.resolve_name(place) if place.startswith("tidefold.operations.") else None
    if not isinstance(kind, type) or not issubclass(kind, Details):
        raise TypeError(f"`{place}` is no class of details")
    return kind
