"""Counts the requests and bytes between this process and S3, so that a run can report what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The event loop of s3fs is the only thread that counts.
_requests: Counter[str] = Counter()
_bytes = {"sent": 0, "received": 0}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a process and S3 have exchanged so far. Requests of deltalake and of Spark's own readers are not included.

    requests: how many of each operation, by botocore's names, repeated ones included.
    sent, received: bytes of bodies.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    sent: int = 0
    received: int = 0

    @property
    def total(self) -> int:
        """The number of all requests."""
        return sum(self.requests.values())

    def __str__(self) -> str:
        return f"{self.total:,} requests to S3, {self.sent:,} bytes sent, {self.received:,} bytes received"

    def since(self, earlier: Traffic) -> Traffic:
        """Returns what was added since an earlier count."""
        added = Counter(self.requests)
        added.subtract(earlier.requests)
        return Traffic(dict(+added), self.sent - earlier.sent, self.received - earlier.received)


def read_traffic() -> Traffic:
    """Returns the counts since the process began."""
    return Traffic(dict(_requests), _bytes["sent"], _bytes["received"])


def count_request(method: str, arguments: Mapping[str, Any]) -> None:
    """Counts a request that is about to be sent."""
    _requests[method] += 1
    body = arguments.get("Body")
    _bytes["sent"] += len(body) if isinstance(body, bytes | bytearray | memoryview) else 0


def count_answer(method: str, answer: Mapping[str, Any]) -> None:
    """Counts the bytes of a body that S3 announced."""
    if method == "get_object":
        _bytes["received"] += int(answer.get("ContentLength") or 0)
