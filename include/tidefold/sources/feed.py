"""The configured input of a log, as plain values that Spark tasks receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What Debezium writes for a value that did not change and was not sent.
PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class Feed:
    """The configured input of a log.

    path: the absolute folder, or the address.
    options: keys that only this format has, as JSON values.
    """

    format: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def placeholder(self) -> str:
        """What the source writes for a value that it did not send."""
        return str(self.options.get("placeholder", PLACEHOLDER))

    @property
    def own(self) -> str:
        """The name of a source of one's own, as the configuration has it; empty: tidefold brings the source."""
        return str(self.options["name"]) if self.format == "custom" else ""
