"""Why an attempt was aborted. The ledger stores the cause as one line of text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SUPERSEDED = re.compile(r"superseded by attempt (\d+)(?:, which saw no heartbeat after number \d+)?")


@dataclass(frozen=True, slots=True)
class AbortCause:
    """The cause of one abort.

    `text`: for people.
    `superseded_by`: epoch of the attempt that replaced it; None: a person or an error ended it.
    """

    text: str
    superseded_by: int | None = None

    @classmethod
    def supersede(cls, epoch: int, heartbeats: int | None = None) -> AbortCause:
        """Returns the cause for an attempt that the attempt of this epoch replaced.

        heartbeats: how many the newer attempt saw before it took over; None: a person or the same run replaced it.
        """
        seen = "" if heartbeats is None else f", which saw no heartbeat after number {heartbeats}"
        return cls(f"superseded by attempt {epoch}{seen}", epoch)

    @classmethod
    def parse(cls, text: str) -> AbortCause:
        """Parses the text that a ledger stores."""
        found = _SUPERSEDED.fullmatch(text)
        return cls(text, int(found[1]) if found else None)
