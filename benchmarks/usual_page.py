"""The page and the picture of benchmarks/usual.py, from the results that are stored beside them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from fold_chart import chart
from tables import PAGES, machine, write_page

RESULTS = PAGES / "usual.json"
WAYS = ("tidefold", "the usual job", "MERGE")
_NAMES = {
    "tidefold": "tidefold, its gate included",
    "the usual job": "MERGE, then its gate",
    "MERGE": "MERGE alone",
}
_Run = dict[str, Any]


def write() -> None:
    """Writes the page. All results count: the medians of each way."""
    runs: list[_Run] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    lines = [
        "# Beside the usual job",
        "",
        "Written by `make bench-usual` (benchmarks/usual.py). " + machine(),
        "",
        "Debezium's JSON of one file (85 % updates, 5 % deletes, 10 % inserts, spread evenly) goes into a table with",
        "ten columns, deletion vectors and 20 checks; 8 buckets, 64 for 100,000,000 rows. The usual job parses the",
        "same file, keeps the last change of each key, merges into the same Delta files on Spark 4.2.0 with Delta",
        "4.4.0, and judges the same expectations with Great Expectations on Spark. `local[2]` for both; 12 GB of heap",
        "for the usual job (2 GB at 20,000 rows), 2 GB for tidefold. Numbers of rows and sums of columns were equal.",
        "",
        "*Cold* is from the start of a process; *warm* is a second run: of the usual job in its session, of tidefold",
        "by a new command on the server of `tidefold spark start`. CPU seconds are those of all processes. Other work",
        "ran on the machine, so wall seconds say little: compare CPU seconds.",
        "",
        "| rows | changes | way | cold: CPU | times ours | wall | warm: CPU | times ours | wall | load | runs |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            line
            for rows, share in sorted({(run["rows"], run["share"]) for run in runs})
            for line in _list_ways(runs, rows, share)
        ),
        "",
        "![CPU seconds of a run by the rows of its table](usual.svg)",
        "",
    ]
    write_page("usual.md", lines)
    _draw([run for run in runs if run["share"] == 0.01 and not run["warm"]])


def _list_ways(runs: Sequence[_Run], rows: int, share: float) -> Iterator[str]:
    mine = [run for run in runs if (run["rows"], run["share"]) == (rows, share)]
    for way in WAYS:
        cells, loads = [], [load for run in mine if run["way"] == way for load in run["load"]]
        for warm in (False, True):
            ours, its = (_median(mine, name, warm, "cpu") for name in ("tidefold", way))
            wall = _median(mine, way, warm, "wall")
            times = f"{its / ours:.1f}" if its and ours else ""
            cells += [f"{its:.1f} s" if its else "not measured", times, f"{wall:.0f} s" if wall else ""]
        if loads:
            count = sum(run["way"] == way and not run["warm"] for run in mine)
            head = f"{rows:,} | {int(rows * share):,} ({share:.0%}) | {_NAMES[way]}"
            yield f"| {head} | {' | '.join(cells)} | {min(loads):.0f} to {max(loads):.0f} | {count} |"


def _median(runs: Sequence[_Run], way: str, warm: bool, what: str) -> float:
    found = [run[what] for run in runs if run["way"] == way and run["warm"] == warm]
    return statistics.median(found) if found else 0.0


def _draw(runs: Sequence[_Run]) -> None:
    """One line for each way, by the rows of the table at which all of them were measured."""
    sizes = sorted(set.intersection(*({run["rows"] for run in runs if run["way"] == way} for way in WAYS)))
    if len(sizes) < 2:
        return
    lines = {
        _NAMES[way]: [_median([r for r in runs if r["rows"] == rows], way, False, "cpu") for rows in sizes]
        for way in WAYS
    }
    title = "1 % of a table changed: CPU seconds of a run"
    (PAGES / "usual.svg").write_text(chart(title, "rows of the table", [f"{rows:,}" for rows in sizes], lines))


if __name__ == "__main__":
    write()
