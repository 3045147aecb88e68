"""What a log is fed from, as plain values: it is made of the configuration, and goes to Spark tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Feed:
    """A format, the folder (absolute) or address where its input lies, and what only the format has, as JSON has it."""

    format: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
