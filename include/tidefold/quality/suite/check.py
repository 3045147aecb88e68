"""A check as a frozen value, and how its content is written so that equal content is equal text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

# The prefix of types that tidefold computes itself. No expectation of Great Expectations has it.
OWN = "tidefold_"
ROW_COUNT_DRIFT = f"{OWN}row_count_drift"
SUM_DRIFT = f"{OWN}sum_drift"
MEAN_DRIFT = f"{OWN}mean_drift"
FRESHNESS = f"{OWN}freshness"
DISTRIBUTION = f"{OWN}distribution"
REFERENCES = f"{OWN}references"
REFUSED_RECORDS = f"{OWN}refused_records"
COUNTED = f"{OWN}counted"
SOURCE_SNAPSHOT = f"{OWN}source_snapshot"
STORED_COUNTS = f"{OWN}stored_counts"

# Column -> type.
Types = Mapping[str, str]
_FAMILIES = {"int": "number", "long": "number", "float": "number", "double": "number"}


def family(type_: str) -> str:
    """Returns the types that a type can be compared with: number, string, boolean, date, timestamp, or itself."""
    return "number" if type_.startswith("decimal") else _FAMILIES.get(type_, type_)


class Severity(StrEnum):
    """What a failed check does: `fail` fails the gate, `warn` is only reported."""

    FAIL = "fail"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation of Great Expectations, or one check that tidefold computes itself.

    name: for people.
    type: the name of the expectation in snake case, or `tidefold_...`.
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
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_format_instant)


def _format_instant(value: object) -> str:
    if isinstance(value, date):  # datetime is a date, too
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no canonical form")
