"""Where a copy of a file is stored."""

from __future__ import annotations

from enum import StrEnum


class StorageTier(StrEnum):
    """The durable store, the local copies on this machine, or a snapshot outside both."""

    STORE = "store"
    LOCAL = "local"
    EXTERNAL = "external"
