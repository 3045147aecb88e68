"""Work that tests give to Spark's workers, which import it by this module's name."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import psutil

from tidefold import errors
from tidefold.compute.runners import TaskWork
from tidefold.errors import CorruptError


def double(text: str) -> str:
    if text == "bad":
        raise CorruptError("SEGMENT_CORRUPT", "It is damaged.", hint="Restore it.")
    return text * 2


def breaks(text: str) -> str:
    raise ZeroDivisionError(text)


def answer_or_fail(text: str) -> str:
    """Fails with the error of tidefold that a task names."""
    raise getattr(errors, text)("CODE", "It failed.", hint="Do this.")


def work_hard(text: str) -> str:
    """Takes some CPU time, then adds a line to a file."""
    task = json.loads(text)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 500_000)
    with open(task["place"], "a", encoding="utf-8") as order:
        order.write(f"{task['name']}\n")
    return str(task["name"])


class LosesItsFirstAnswer:
    """Does some work, and kills its process after the first time. A task is JSON: `task` (its text) and `number`."""

    def __init__(self, work: TaskWork, marks: str) -> None:
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


class KillsOnce:
    """Does some work, and after its first task kills (-9) its own process or the server above it, once."""

    def __init__(self, work: TaskWork, mark: str, victim: str) -> None:
        self._work, self._mark, self._victim = work, mark, victim

    def __call__(self, text: str) -> str:
        answer = self._work(text)
        try:
            Path(self._mark).touch(exist_ok=False)
        except FileExistsError:
            return answer
        processes = [psutil.Process(), *psutil.Process().parents()]
        next(p for p in processes if self._victim == "worker" or p.name() == "java").kill()
        return answer
