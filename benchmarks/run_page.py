"""Renders docs/contributors/benchmarks/run.md from the measured runs."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from typing import Any

import run_airflow
import run_cost
from tables import PAGES, write_page

RESULTS = PAGES / "run.json"
NAMES = {
    "tidefold": "tidefold, as it decides itself",
    "warm": "tidefold, every step on the warm server of `tidefold spark start`",
    "spark": "tidefold, every step on Spark",
    "fold": "`tidefold step materialize` alone on Spark: the fold and one start of a JVM",
    "usual": "the usual job",
}
Run = dict[str, Any]


def write() -> None:
    """Prints the page and writes it."""
    runs: list[Run] = json.loads(RESULTS.read_text())
    samples = [run for run in runs if run["way"] == "sample"]
    tables = [[run for run in runs if run["way"] != "sample" and run["rows"] == rows] for rows in _list_rows(runs)]
    sections = [line for table in tables for line in _sizes(table)]
    write_page(
        "run.md",
        [
            *_head(runs),
            *_sample(samples),
            *sections,
            *_goals(samples, tables),
            *run_airflow.describe(),
            *run_cost.describe(),
        ],
    )


def _list_rows(runs: Sequence[Run]) -> list[int]:
    return sorted({run["rows"] for run in runs if run["way"] != "sample"})


def _head(runs: Sequence[Run]) -> list[str]:
    loads = [run["load"] for run in runs]
    return [
        "# A whole run",
        "",
        f"`ROWS=1000000 ROUNDS=5 SIZES=10kB,1MB,1%,100MB make bench-run`, {os.cpu_count()} processors, "
        f"Python {runs[0]['python']},",
        "Spark local[2] with 2 GB, Delta 4.4.0. A run is one process, from its start to its end: landed Debezium JSON",
        "in, gate passed, table published. The CPU of a warm server counts. [run.json](run.json) has every run; the",
        "next `make bench-run` adds to it; the column `runs` says how many there are so far.",
        "",
        f"**Other work ran on the machine** (load average {min(loads):.0f} to {max(loads):.0f} on 2 processors), so",
        "wall seconds are several times those of a quiet machine. CPU seconds (user and system, all children) suffer",
        "less: compare those, and the ratios of one table.",
        "",
        *_PACE,
        "",
    ]


# Of the newest runs of the sample and of 1,000,000 rows; remove it with the next ones.
_PACE = [
    "The runs of the sample and of 1,000,000 rows are of 2026-11-26, when this machine took 1.7 to 2.4 times the CPU",
    "seconds of the days before. A first landing of 5,000 rows took 8.2, 8.5 and 7.6 CPU seconds with the code of",
    "62e2f306, and 7.8, 7.5 and 8.3 with that of the day, in turn; a run with nothing new 2.6 to 2.8, and 1.7 to 2.2.",
    "So are the single runs of 10,000,000 rows, beside other work; those on Spark alone are older. Python workers of",
    "the warm server that ended during a run are missing in its CPU seconds.",
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
    lines = [
        f"## Changes of {runs[0]['rows']:,} rows of 10 columns, 20 checks",
        "",
        "| landed | way | runs | wall | CPU | CPU against the usual job | wall against it | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in dict.fromkeys(run["size"] for run in runs):
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


def _goals(samples: Sequence[Run], tables: Sequence[Sequence[Run]]) -> list[str]:
    lines = ["## Goals", "", "| what | wall, median | CPU, median | goal (wall, quiet) | |", "|---|---|---|---|---|"]
    first = _of(samples, "sample", "phase 1")
    if first:
        lines.append(_goal("the sample's first landing by the command line", first, 4))
    for runs in tables:
        rows = f"{runs[0]['rows']:,} rows"
        one = _of(runs, "tidefold", "1%")
        if one and runs[0]["rows"] == 1_000_000:
            lines.append(_goal(f"1 % of {rows} changed, 20 checks, by the command line", one, 8))
        for size in dict.fromkeys(run["size"] for run in runs):
            named = f"{size} changed of {rows}: "
            spark, fold = _of(runs, "spark", size), _of(runs, "fold", size)
            if spark and fold:
                times = "whole run on Spark against its fold and one start of a JVM"
                lines.append(_goal_of_ratio(named + times, spark, fold, at_most=2))
            ours, usual = _of(runs, "tidefold", size), _of(runs, "usual", size)
            if ours and usual:
                lines.append(_goal_of_ratio(f"{named}the usual job against ours", usual, ours, above=1))
    return [*lines, ""]


def _goal(what: str, runs: Sequence[Run], seconds: int) -> str:
    wall, cpu = (statistics.median(r[name] for r in runs) for name in ("wall", "cpu"))
    return f"| {what} | {wall:.1f} s | {cpu:.1f} s | <= {seconds} s | {_verdict(wall <= seconds)} |"


def _goal_of_ratio(
    what: str, over: Sequence[Run], under: Sequence[Run], at_most: float | None = None, above: float = 0
) -> str:
    wall, cpu = (
        statistics.median(r[name] for r in over) / statistics.median(r[name] for r in under) for name in ("wall", "cpu")
    )
    if at_most is None:
        return f"| {what} | {wall:.1f} x | {cpu:.1f} x | > {above} x | {_verdict(min(wall, cpu) > above)} |"
    return f"| {what} | {wall:.2f} x | {cpu:.2f} x | <= {at_most} x | {_verdict(max(wall, cpu) <= at_most)} |"


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


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
