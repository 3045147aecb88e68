"""A check as a frozen value, and how its content is written so that equal content is equal text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from tidefold.quality.suite.suite_file import OWN


class Severity(StrEnum):
    """What a failed check does: `fail` fails the gate, `warn` is only reported."""

    FAIL = "fail"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation of Great Expectations (its type in snake case, its arguments), or one that tidefold computes
    itself (`tidefold_...`). `name` is for people.
    """

    name: str
    type: str
    kwargs: Mapping[str, Any]
    severity: Severity = Severity.FAIL
    built_in: bool = False

    @property
    def own(self) -> bool:
        """Whether tidefold computes it itself."""
        return self.type.startswith(OWN)


def canonical(content: object) -> str:
    """JSON text that is the same for the same content."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_instant)


def _instant(value: object) -> str:
    if isinstance(value, date):  # datetime is a date, too
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no canonical form")
