"""Counts the requests and bytes between this process and object stores, so that a run can report what it costs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass
class CloudTraffic:
    """What this process and object stores have exchanged so far, without deltalake's and Spark's own requests.

    requests: repeated ones included.
    sent, received: bytes of bodies.
    """

    requests: int = 0
    sent: int = 0
    received: int = 0
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def add(self, requests: int = 0, sent: int = 0, received: int = 0) -> None:
        """Counts what a thread exchanged."""
        with self._lock:
            self.requests += requests
            self.sent += sent
            self.received += received

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests to object stores, {self.sent:,} bytes sent, {self.received:,} bytes received"
        )


traffic = CloudTraffic()
