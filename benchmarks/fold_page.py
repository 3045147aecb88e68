"""What docs/benchmarks/fold.md says around its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fold_measured import Way
from fold_peers import VERSIONS
from tables import HEAD, Row, machine

_WAYS = [
    "| way | median | lowest to highest | times the fastest | CPU | written | files | peak memory |",
    "|---|---|---|---|---|---|---|---|",
]
_HOW = """
From segments on disk to a synced Delta commit with statistics. tidefold reads its 16 segments and proves the sha256 of
everything that it reads; no gate looks at the rows, as with the others. The peers read the same changes as Parquet,
exported before the clock starts, and begin with the same files of the table. Of 100 changed keys 5 are deleted, to
these come 10 new ones, and 10 are changed twice. The rows that came out of each run were compared by a checksum that
sees no order. Ways without Spark run in a process of their own, whose imports are not counted.

CPU: seconds of all processes, which say more than the clock where other work runs on the same machine.
Memory: the most resident bytes of the whole process tree; pages that two processes share are counted twice. The ways
on Spark share one JVM (6 GB heap) and one driver, so theirs is also what the ways before them needed.

- defaults: 200 shuffle partitions, 50 partitions of the Delta log, `row_number` in the source of the MERGE.
- tuned: changes squashed into a Parquet file first (MERGE refuses a cached source), 4 shuffle partitions, 2 of the
  Delta log, the source not materialized again, zstd.
- The DuckDB script finds the files that have a changed key and writes these anew on both threads. Its rows are not
  sorted, its inputs not proved, and nobody can go back.

![seconds against the share of changed rows](fold.svg)
"""


def page(
    rows: int,
    rounds: int,
    start: float,
    found: Mapping[float, list[Way]],
    lines: Iterable[Row],
    phases: Iterable[str],
) -> list[str]:
    """The whole page; `start`: seconds that the start of Spark's session took."""
    said = [
        "# What a fold costs",
        "",
        f"Written by `make bench` (benchmarks/fold.py): a table of {rows:,} rows of about 100 bytes in 16 files,",
        f"medians of {rounds} rounds, the order of the ways rotated. Local disk, everything in the page cache.",
        machine(),
        f"{VERSIONS}; `local[2]`, driver memory 6 GB.",
        *_HOW.splitlines(),
    ]
    for share, ways in found.items():
        best = min(way.median for way in ways)
        said += ["", f"## {share:.2%} changed", "", *_WAYS, *(way.line(best) for way in ways)]
    session = f"| start of Spark's session, in none of the times above | {start:,.3g} s | | | |"
    return [*said, "", "## Goals", "", *HEAD, session, *(line.text for line in lines), "", *phases]
