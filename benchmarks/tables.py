"""What every benchmark needs: a clock, a scratch folder, lines of a table, and a page in benchmarks."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

PAGES = Path(__file__).parents[1] / "docs" / "contributors" / "benchmarks"
# Separate runs and notes stand below this line of a page. A benchmark that writes the page again keeps them.
KEPT = "<!-- Kept: a benchmark writes what is above this line, and nothing below it. -->"
HEAD = ["| what | median | lowest to highest | goal | |", "|---|---|---|---|---|"]


class Row:
    """One line of the table. A goal is met or not by the median: at most `limit`, at least `least`."""

    def __init__(
        self,
        what: str,
        values: Sequence[float],
        unit: str,
        goal: str = "",
        *,
        limit: float | None = None,
        least: float | None = None,
    ) -> None:
        middle = statistics.median(values)
        met = (limit is None or middle <= limit) and (least is None or middle >= least)
        verdict = "" if limit is None and least is None else ("met" if met else "**missed**")
        self.text = f"| {what} | {middle:,.3g} {unit} | {spread(values)} | {goal} | {verdict} |"


def spread(values: Sequence[float]) -> str:
    """The lowest and the highest of several values."""
    return f"{min(values):,.3g} to {max(values):,.3g}" if len(values) > 1 else ""


def seconds(act: Callable[[], object]) -> float:
    """Returns the seconds that the call took. With CLOCK=cpu: CPU seconds of this process and its ended children."""
    clock = _cpu_seconds if os.environ.get("CLOCK") == "cpu" else time.perf_counter
    begun = clock()
    act()
    return clock() - begun


def _cpu_seconds() -> float:
    found = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


def ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


@contextmanager
def folder() -> Iterator[Path]:
    # Not named as tidefold's own scratch folders: a test with a clock of its own may delete those.
    path = Path(tempfile.mkdtemp(prefix="bench-tidefold-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def machine() -> str:
    return f"Python {platform.python_version()}, pyarrow {pa.__version__}, {os.cpu_count()} cores, {sys.platform}."


def write_page(name: str, lines: Iterable[str]) -> None:
    """Prints the page and writes it to benchmarks, above what is kept. With WRITE=0 it only prints."""
    page = "\n".join([*lines, ""])
    print(page)
    if os.environ.get("WRITE") == "0":
        return
    PAGES.mkdir(parents=True, exist_ok=True)
    path = PAGES / name
    _, line, kept = (path.read_text() if path.exists() else "").partition(KEPT)
    path.write_text(f"{page}\n{line}{kept}" if line else page)
