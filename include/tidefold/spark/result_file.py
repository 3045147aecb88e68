"""The file by which a Spark job hands its outcomes back to whoever started it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tidefold.operations.outcome import Outcome
from tidefold.storage.safe_files import make_private_folder


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Whoever reads the file sees all of it or none."""
    make_private_folder(path.parent)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(msgspec.json.encode({"outcomes": outcomes}))
    os.replace(part, path)


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes that a job wrote, and removes the file; none when the job died before it could write."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return []
    path.unlink()
    return msgspec.json.decode(written, type=dict[str, list[Outcome]])["outcomes"]
