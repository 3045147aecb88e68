"""How much CPU time the machine takes for a fixed piece of work while tests run: seconds compare between machines."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass, field

# What tests do most: start a process, import modules, make and sort many small objects.
_WORK = """
import asyncio, decimal, email.mime.text, http.client, json, logging.config, multiprocessing, sqlite3, unittest
import xml.dom.minidom
rows = json.loads(json.dumps([{"id": number, "text": str(number)} for number in range(30_000)]))
rows.sort(key=lambda row: row["text"])
by_text = {row["text"]: row for row in rows}
"""
# CPU seconds of that work where the budgets were set, while two lanes ran beside it.
_REFERENCE = 0.16


@dataclass
class Pace:
    """Times a process of fixed work, as often as it is asked. What slows the tests slows it: other guests of the host,
    caches that other processes fill.
    """

    _taken: list[float] = field(default_factory=list)

    def measure(self) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.run([sys.executable, "-c", _WORK], check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode == 0:
            self._taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    @property
    def cpu(self) -> float:
        """Returns the CPU seconds that measuring took."""
        return sum(self._taken)

    @property
    def slowness(self) -> float:
        """Returns how many times the CPU seconds of the reference this machine takes; 1 without a measurement."""
        return statistics.fmean(self._taken) / _REFERENCE if self._taken else 1.0
