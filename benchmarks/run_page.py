"""Renders docs/benchmarks/run.md from the measured runs."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from typing import Any

import run_airflow
from tables import PAGES, write_page

RESULTS = PAGES / "run.json"
NAMES = {
    "tidefold": "tidefold, as it decides itself",
    "spark": "tidefold, every step on Spark",
    "usual": "the usual job",
}
Run = dict[str, Any]


def write() -> None:
    """Prints the page and writes it."""
    measured: list[Run] = json.loads(RESULTS.read_text())
    rows = max(run["rows"] for run in measured)
    runs = [run for run in measured if run["way"] == "sample" or run["rows"] == rows]
    write_page("run.md", [*_head(runs), *_sample(runs), *_sizes(runs), *_goals(runs), *run_airflow.describe()])


def _head(runs: Sequence[Run]) -> list[str]:
    loads = [run["load"] for run in runs]
    return [
        "# A whole run",
        "",
        f"`ROWS=1000000 ROUNDS=5 SIZES=10kB,1MB,1%,100MB make bench-run`, {os.cpu_count()} processors, "
        f"Python {runs[0]['python']},",
        "Spark local[2] with 2 GB, Delta 4.4.0. A run is one process, from its start to its end: landed Debezium JSON",
        "in, gate passed, table published. [run.json](run.json) has every run; the next `make bench-run` adds to it;",
        "the column `runs` says how many there are so far.",
        "",
        f"**Other work ran on the machine** (load average {min(loads):.0f} to {max(loads):.0f} on 2 processors), so",
        "wall seconds are several times those of a quiet machine. CPU seconds (user and system, all children) suffer",
        "less: compare those, and the ratios of one table.",
        "",
    ]


def _sample(runs: Sequence[Run]) -> list[str]:
    lines = [
        "## The sample",
        "",
        "`tidefold run` over the sample: 3 logs with their suites.",
        "",
        "| run | runs | wall | CPU | lowest CPU |",
        "|---|---|---|---|---|",
    ]
    for size, what in (("phase 1", "first landing, 5,054 changes"), ("phase 2", "second landing"), ("nothing new", "")):
        mine = _of(runs, "sample", size)
        if mine:
            lines.append(f"| {what or 'nothing new'} | {_cells(mine)} | {min(r['cpu'] for r in mine):.1f} s |")
    return [*lines, ""]


def _sizes(runs: Sequence[Run]) -> list[str]:
    rows = max((run["rows"] for run in runs if run["way"] != "sample"), default=0)
    if not rows:
        return []
    lines = [
        f"## Changes of {rows:,} rows of 10 columns, 20 checks",
        "",
        "The usual job is one spark-submit with the same Spark settings: `from_json`, `row_number`, MERGE into a Delta",
        "table with deletion vectors, then Great Expectations with the same expectations over the whole table",
        "([usual_job.py](../../benchmarks/peers/usual_job.py)). It has no ledger, no quarantine, no checksums, and its",
        "table is live before it is judged.",
        "",
        "| landed | way | runs | wall | CPU | CPU against the usual job | wall against it | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in dict.fromkeys(run["size"] for run in runs if run["way"] != "sample"):
        usual = _of(runs, "usual", size)
        for way, name in NAMES.items():
            mine = _of(runs, way, size)
            if mine:
                landed = statistics.median(r["landed"] for r in mine)
                ratios = [_ratio(mine, usual, what) for what in ("cpu", "wall")]
                shown = f"{size}: {landed / 1e6:,.2f} MB"
                load = statistics.median(r["load"] for r in mine)
                lines.append(f"| {shown} | {name} | {_cells(mine)} | {' | '.join(ratios)} | {load:.0f} |")
    return [*lines, ""]


def _goals(runs: Sequence[Run]) -> list[str]:
    goals = [
        ("the sample's first landing by the command line", _of(runs, "sample", "phase 1"), 4),
        ("1 % of the rows changed, 20 checks, by the command line", _of(runs, "tidefold", "1%"), 8),
    ]
    lines = ["## Goals", "", "| what | wall, median | CPU, median | goal (wall, quiet) | |", "|---|---|---|---|---|"]
    for what, mine, goal in goals:
        if mine:
            wall, cpu = (statistics.median(r[name] for r in mine) for name in ("wall", "cpu"))
            verdict = "met" if wall <= goal else "**missed**"
            lines.append(f"| {what} | {wall:.1f} s | {cpu:.1f} s | <= {goal} s | {verdict} |")
    for size in dict.fromkeys(run["size"] for run in runs):
        ours, usual = _of(runs, "tidefold", size), _of(runs, "usual", size)
        if ours and usual:
            ratio = statistics.median(r["cpu"] for r in usual) / statistics.median(r["cpu"] for r in ours)
            wall = statistics.median(r["wall"] for r in usual) / statistics.median(r["wall"] for r in ours)
            verdict = "met" if min(ratio, wall) > 1 else "**missed**"
            lines.append(
                f"| {size} changed: times faster than the usual job | {wall:.1f} x | {ratio:.1f} x "
                f"| > 1 x | {verdict} |"
            )
    return [*lines, ""]


def _of(runs: Sequence[Run], way: str, size: str) -> list[Run]:
    return [run for run in runs if (run["way"], run["size"]) == (way, size)]


def _cells(runs: Sequence[Run]) -> str:
    return f"{len(runs)} | {_spread(runs, 'wall')} | {_spread(runs, 'cpu')}"


def _spread(runs: Sequence[Run], what: str) -> str:
    values = [run[what] for run in runs]
    return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"


def _ratio(mine: Sequence[Run], usual: Sequence[Run], what: str) -> str:
    if not usual:
        return ""
    return f"{statistics.median(r[what] for r in mine) / statistics.median(r[what] for r in usual):.2f}"


if __name__ == "__main__":
    write()
