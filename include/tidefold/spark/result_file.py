"""The form and the file in which a Spark job returns its outcomes to the process that started it."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tidefold.operations.ground.outcome import Details, Outcome
from tidefold.storage.safe_files import make_private_folder
from tidefold.typed_json import decode_json


class _StoredOutcome(msgspec.Struct):
    """An outcome without its details, the place of their class (`module:class`), and the details as JSON."""

    outcome: Outcome
    details_type: str = f"{Details.__module__}:{Details.__name__}"
    details: msgspec.Raw = msgspec.Raw(b"{}")


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Writes the file at once: a reader sees all of it or nothing."""
    stored = [
        _StoredOutcome(
            outcome=replace(outcome, details=Details()),
            details_type=f"{type(outcome.details).__module__}:{type(outcome.details).__name__}",
            details=msgspec.Raw(msgspec.json.encode(outcome.details)),
        )
        for outcome in outcomes
    ]
    make_private_folder(path.parent)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(msgspec.json.encode(stored))
    os.replace(part, path)


def read_outcomes(path: Path) -> list[Outcome]:
    """Returns the outcomes that a job wrote, and removes the file. Empty: the job died before it wrote them."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return []
    path.unlink()
    stored = decode_json(written, list[_StoredOutcome])
    return [replace(one.outcome, details=decode_json(one.details, _find_details(one.details_type))) for one in stored]


def _find_details(place: str) -> type[Details]:
    """The class of details at a place. Raises TypeError if there is another thing."""
    kind = pkgutil.resolve_name(place) if place.startswith("tidefold.operations.") else None
    if not isinstance(kind, type) or not issubclass(kind, Details):
        raise TypeError(f"`{place}` is no class of details")
    return kind
