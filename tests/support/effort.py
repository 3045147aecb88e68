"""How much of what is random or systematic the tests play: a part in `make test`, the whole in `make test-thorough`."""

from __future__ import annotations

import os

THOROUGH = os.environ.get("TIDEFOLD_THOROUGH") == "1"


def choose(part: int, whole: int) -> int:
    """Returns the number for this run of the tests."""
    return whole if THOROUGH else part
