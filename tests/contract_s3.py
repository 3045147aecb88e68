"""A bucket of the test server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from s3_server import S3Server


@dataclass(frozen=True)
class S3Bucket:
    server: S3Server
    name: str

    @property
    def address(self) -> str:
        return f"s3://{self.name}/a/store"

    @property
    def client(self) -> Any:
        """A client that is not the store's: what it sees is what others see."""
        return self.server.client()
