"""How much of what is random or systematic the tests play: a part in `make test`, the whole in `make test-thorough`."""

from __future__ import annotations

import os
from enum import Enum

THOROUGH = os.environ.get("TIDEFOLD_THOROUGH") == "1"


def choose(part: int, whole: int) -> int:
    """Returns the number for this run of the tests."""
    return whole if THOROUGH else part


def list_moments(calls: int, fault: Enum | None = None) -> range:
    """Returns the calls at which a fault strikes: in `make test` each third one, and for another fault other ones."""
    if THOROUGH:
        return range(calls)
    return range(list(type(fault)).index(fault) % 3 if fault else 0, calls, 3)
