"""Work that tests give to Spark's workers, which import it by this module's name."""

from __future__ import annotations

import importlib
import json
import os
import signal
from pathlib import Path

from tidefold.errors import CorruptError


def double(text: str) -> str:
    if text == "bad":
        raise CorruptError("SEGMENT_CORRUPT", "It is damaged.", hint="Restore it.")
    return text * 2


def breaks(text: str) -> str:
    raise ZeroDivisionError(text)


def loses_its_first_answer(text: str) -> str:
    """Does the work of the task, and kills its process after the first time.

    The task is JSON: `work` (a function by its full name), `task` (its text), `marks` (a folder), `number`.
    """
    asked = json.loads(text)
    module, _, name = asked["work"].rpartition(".")
    answer: str = getattr(importlib.import_module(module), name)(asked["task"])
    tries = Path(asked["marks"]) / str(asked["number"])
    with tries.open("a") as stream:
        stream.write("x")
    if tries.stat().st_size == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
