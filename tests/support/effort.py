"""How much of what is random or systematic the tests play: a part in `make test`, the whole in `make test-thorough`.

The commit decides which part, so that a week of commits plays all of it (`TIDEFOLD_TEST_SEED`: another part).
"""

from __future__ import annotations

import os
import subprocess
from enum import Enum
from pathlib import Path

THOROUGH = os.environ.get("TIDEFOLD_THOROUGH") == "1"


def _find_seed() -> int:
    """Returns the seed of the environment, which `make test` sets, else that of the commit."""
    if given := os.environ.get("TIDEFOLD_TEST_SEED"):
        return int(given)
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout[:8] or "0", 16)


SEED = _find_seed()


def choose(part: int, whole: int) -> int:
    """Returns the number for this run of the tests."""
    return whole if THOROUGH else part


def rotate(period: int, shift: int = 0) -> int:
    """Returns which of `period` parts this run plays; with another shift, another one."""
    return (SEED + shift) % period


def list_moments(calls: int, fault: Enum | None = None) -> range:
    """Returns the calls at which a fault strikes: in `make test` each third one, and for another fault other ones."""
    if THOROUGH:
        return range(calls)
    number = list(type(fault)).index(fault) if fault else 0
    return range(rotate(3, number), calls, 3)
