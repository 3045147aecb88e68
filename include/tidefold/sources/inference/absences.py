"""Tells rows that are older than a column from rows that do not bring its value."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tidefold.sources.inference.operations import Data, OpCandidate
from tidefold.sources.inference.proposal import ProposedColumn


class Lack(Enum):
    """What rows without a column show: only deletes lack it, or only older files, or nobody can tell."""

    NEVER = "never"
    OLDER = "older"
    UNCLEAR = "unclear"


def find_lacks(columns: Sequence[ProposedColumn], parts: Sequence[Data], op: OpCandidate | None) -> dict[str, Lack]:
    """Returns what each optional column shows. parts: the rows of each file, the oldest first."""
    kept = [[row for row in part if not (op and op.is_delete(row))] for part in parts]
    return {column.name: _find_lack(column.name, [part for part in kept if part]) for column in columns if column.optional}


def _find_lack(name: str, parts: Sequence[Data]) -> Lack:
    shares = [sum(name in row for row in part) / len(part) for part in parts]
    first = next((at for at, share in enumerate(shares) if share), len(shares))
    if any(share < 1 for share in shares[first:]):
        return Lack.UNCLEAR
    return Lack.OLDER if first else Lack.NEVER
