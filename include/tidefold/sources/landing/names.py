"""Reads topic, partition and first offset from the names of landed files.

A sink of Confluent's form writes `<topic>+<partition>+<start offset>.<ext>`: no other name looks like that. The dash
form of other sinks, `<topic>-<partition>-<start offset>.<ext>`, looks like a name with a date, such as
`orders-2026-11-01.jsonl`. It is used only if the configuration says so. A log keeps the reading of its first file.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import IMPORTED, NameReading
from tidefold.errors import InvalidInputError, RefusedError

# Aiven's sink adds nothing but `.gz`.
LINES = ("jsonl", "json", "jsonl.gz", "json.gz", "gz")
_TAIL = r"\.(?P<extension>[a-z]+(?:\.[a-z]+)?)"
# Kafka allows a topic letters, digits and `._-`, so the plus form is never ambiguous.
_PLUS = re.compile(r"(?P<topic>[\w.-]{1,249})\+(?P<partition>\d{1,9})\+(?P<start>\d{10,18})" + _TAIL, re.ASCII)
_DASH = re.compile(r"(?P<topic>[\w.-]{1,249})-(?P<partition>\d{1,9})-(?P<start>\d{1,18})" + _TAIL, re.ASCII)


@dataclass(frozen=True, slots=True)
class LandedName:
    """The parts of a file name of a Kafka sink."""

    topic: str
    partition: int
    start: int
    extension: str = "jsonl"

    def __str__(self) -> str:
        return f"{self.topic}+{self.partition}+{self.start:010d}.{self.extension}"

    @classmethod
    def parse(
        cls, name: str, extensions: Collection[str] = LINES, reading: NameReading = NameReading.KAFKA
    ) -> LandedName:
        """Raises InvalidInputError if a Kafka sink does not give such a name to files with these extensions."""
        found = _PLUS.fullmatch(name) or (_DASH.fullmatch(name) if reading is NameReading.KAFKA_DASH else None)
        if not found or found["extension"] not in extensions:
            raise InvalidInputError("FOREIGN_FILE", f"`{name}` is not a file name of a Kafka sink.")
        return cls(found["topic"], int(found["partition"]), int(found["start"]), found["extension"])

    @property
    def gzip(self) -> bool:
        return self.extension.split(".")[-1] == "gz"


_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def pattern_for(name: str) -> str:
    """A pattern for the names of files of the same kind: `*.log.gz` for `1793520000.log.gz`."""
    own = PurePosixPath(name).name
    suffixes = [part for part in PurePosixPath(own).suffixes if not any(map(str.isdigit, part))]
    ending = "".join(suffixes[-2:] if own.endswith(".gz") else suffixes[-1:])
    if ending and own.endswith(ending):
        return f"*{ending}"
    # Dates, numbers and random ids differ from file to file; the words stay.
    return re.sub(rf"{_UUID}|[^\W_]*\d[^\W_]*", "*", own.replace("[", "[[]"))


def is_dash_name(name: str, extensions: Collection[str] = LINES) -> bool:
    """Whether a name has the dash form."""
    found = _DASH.fullmatch(name)
    return bool(found) and found["extension"] in extensions if found else False


def start_in(name: str) -> int:
    """The offset in a name of either form; -1 for any other name."""
    found = _PLUS.fullmatch(name) or _DASH.fullmatch(name)
    return int(found["start"]) if found else -1


def reading_of(state: LogState) -> NameReading | None:
    """How a log reads the names of its files; None before its first file.

    A log of an older version read both forms of Kafka's: it keeps the dash form if it took a file of that form.
    """
    if state.names is not None or not state.landed:
        return state.names
    names = (entry.name.rpartition("/")[2] for entry in state.landed)
    plus = all(_PLUS.fullmatch(name) or name.endswith(IMPORTED) for name in names)
    return NameReading.KAFKA if plus else NameReading.KAFKA_DASH


def choose_reading(state: LogState, configured: NameReading | None) -> NameReading | None:
    """How the names of new files are read; None if neither the log nor the configuration decides it.

    Raises RefusedError if the configuration reads the names of taken files in another way.
    """
    frozen = reading_of(state)
    # Both read every name of the plus form alike.
    widened = (frozen, configured) == (NameReading.KAFKA, NameReading.KAFKA_DASH)
    if frozen is None or configured is None or frozen is configured or widened:
        return configured or frozen
    raise RefusedError(
        "NAMES_CHANGED",
        f"Log `{state.log}` was started with `names: {frozen}`, but the configuration now has `names: {configured}`.",
        hint=f"Set `names: {frozen}`, or feed the files to a new log.",
    )
