"""Work that tests give to Spark's workers, which import it by this module's name."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tidefold.compute.runners import Work
from tidefold.errors import CorruptError


def double(text: str) -> str:
    if text == "bad":
        raise CorruptError("SEGMENT_CORRUPT", "It is damaged.", hint="Restore it.")
    return text * 2


def breaks(text: str) -> str:
    raise ZeroDivisionError(text)


class LosesItsFirstAnswer:
    """Does some work, and kills its process after the first time. A task is JSON: `task` (its text) and `number`."""

    def __init__(self, work: Work, marks: str) -> None:
        self._work, self._marks = work, marks

    def __call__(self, text: str) -> str:
        asked = json.loads(text)
        answer = self._work(asked["task"])
        tries = Path(self._marks) / str(asked["number"])
        with tries.open("a") as stream:
            stream.write("x")
        if tries.stat().st_size == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
