"""What every benchmark needs: a clock, a scratch folder, lines of a table, and a page in docs/benchmarks."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

PAGES = Path(__file__).parents[1] / "docs" / "benchmarks"
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
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tidefold-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def machine() -> str:
    return f"Python {platform.python_version()}, pyarrow {pa.__version__}, {os.cpu_count()} cores, {sys.platform}."


def write_page(name: str, lines: Iterable[str]) -> None:
    """Prints the page and writes it to docs/benchmarks."""
    page = "\n".join([*lines, ""])
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / name).write_text(page)
    print(page)
