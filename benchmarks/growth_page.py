"""The page of benchmarks/growth.py, from the results that are stored beside it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fold_chart import chart
from tables import PAGES, machine, write_page

RESULTS = PAGES / "growth.json"
STEPS = ("ingest", "fold", "gate", "confirm", "subsume", "truncate", "status")
_Run = dict[str, Any]
# A kind is listed if some size has so many calls or bytes of it.
_CALLS, _BYTES = 5, 20_000


def write() -> None:
    """Writes the page. The newest result of each measurement counts."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    lives = {one["rows"]: one for one in kept if one["what"] == "runs"}
    lines = [
        "# What grows with the table",
        "",
        "Written by `make bench-growth` (benchmarks/growth.py). " + machine(),
        "",
        "One run of a log: 10,000 Debezium records (85 % updates, 5 % deletes, 10 % inserts), spread evenly over the",
        "keys of tables of several sizes. The key is a long, there are ten columns and 20 checks. The log is ordered",
        "by its source, merged by `last`, with `snapshots: {kind: auto}`, `deletion_vectors: true`,",
        "`retention: {snapshots: 3}`, and the buckets that [tuning](../../how-to/tune.md#buckets) advises.",
        "`doctor` advises none.",
        "",
        "Everything runs in one process: the tasks one after the other, the gate as on Spark, with its stored counts.",
        "So CPU seconds and counts are exact, but no JVM is in them. Files are in the page cache, nothing waits for a",
        "disk. No wall time is given: other work ran on the machine.",
        "",
        *_list_machines(kept),
        "",
        *_list_steps(lives),
        "![CPU seconds of one run by the rows of its table](growth.svg)",
        "",
        *_list_reads(lives),
        *_list_kinds(lives),
        *_list_gates([one for one in kept if one["what"] in ("one of 20 buckets", "1 % evenly")]),
        *_list_search([one for one in kept if one["what"] == "search"]),
    ]
    write_page("growth.md", lines)
    (PAGES / "growth.svg").write_text(_draw(lives))


def _draw(lives: dict[int, _Run]) -> str:
    """Draws the steps that grow, a whole run, and twice what a run of 1,000,000 rows takes: the goal at 100 times."""
    sizes = sorted(lives)
    runs = [sum(_median(lives[rows], step, "cpu") for step in STEPS) for rows in sizes]
    lines = {
        "one run": runs,
        **{step: [_median(lives[rows], step, "cpu") for rows in sizes] for step in ("ingest", "fold", "gate")},
        "goal at 100,000,000 rows": [2 * runs[sizes.index(1_000_000)]] * len(sizes) if 1_000_000 in sizes else runs,
    }
    return chart("10,000 changes: CPU seconds", "rows of the table", [f"{rows:,}" for rows in sizes], lines)


def _list_machines(kept: Sequence[_Run]) -> Iterator[str]:
    yield "| measured | rows | when (UTC) | load average |"
    yield "|---|---|---|---|"
    for one in kept:
        yield f"| {one['what']} | {one['rows']:,} | {one['at']} | {one['load']} |"


def _list_steps(lives: dict[int, _Run]) -> Iterator[str]:
    yield "## CPU seconds of each step"
    yield ""
    yield "Medians of the first ten runs after the load. The eleventh run is the full snapshot that"
    yield "`snapshots.full_every: 10` asks for: it rewrites every file, and its gate reads every row."
    yield ""
    yield from _head("step", lives)
    for step in STEPS:
        yield _line(step, lives, lambda life, step=step: f"{_median(life, step, 'cpu'):.2f}")
    yield _line("**one run**", lives, lambda life: f"**{sum(_median(life, s, 'cpu') for s in STEPS):.2f}**")
    yield _line("the full snapshot", lives, lambda life: _sum_full(life))
    yield _line("buckets", lives, lambda life: str(life["buckets"]))
    yield ""


def _list_reads(lives: dict[int, _Run]) -> Iterator[str]:
    yield "## Rows and bytes of each step"
    yield ""
    yield "Rows are those that Parquet and Arrow decoded, of any number of columns. Bytes are those of the whole"
    yield "process, of Delta's reader too."
    yield ""
    for title, name in (("rows decoded", "rows"), ("bytes read", "read"), ("bytes written", "written")):
        yield from _head(title, lives)
        for step in STEPS:
            yield _line(step, lives, lambda life, step=step, name=name: f"{_median(life, step, name):,.0f}")
        yield ""


def _list_kinds(lives: dict[int, _Run]) -> Iterator[str]:
    yield "## Calls and bytes of the store, by the kind of file"
    yield ""
    yield "Calls: reads, ranges, writes, lists, links, deletes and files opened. Delta's own reader does not use the"
    yield "store. Kinds with few calls and few bytes at all sizes are left out."
    yield ""
    yield from _head("step: kind", lives, ": calls / read / written")
    for step in STEPS:
        for kind in sorted({kind for life in lives.values() for run in life["runs"] for kind in run[step]["kinds"]}):
            cells = {rows: _of_kind(life, step, kind) for rows, life in lives.items()}
            if any(one[0] >= _CALLS or max(one[1:]) >= _BYTES for one in cells.values()):
                texts = " | ".join(
                    f"{c:,.0f} / {_size(r)} / {_size(w)}" for c, r, w in (cells[n] for n in sorted(cells))
                )
                yield f"| {step}: {kind} | {texts} |"
    yield ""


def _list_gates(gates: Sequence[_Run]) -> Iterator[str]:
    if not gates:
        return
    yield "## The gate against a full one"
    yield ""
    yield "One staged snapshot, judged twice in one process: as usual, and with `--recount`. Each line is one snapshot."
    yield ""
    yield "| changed | rows | changes | rows read | CPU | full gate | goal | |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in gates:
        few = one["what"] == "one of 20 buckets"
        most = 0.5 + 0.3 * one["full"] if few else one["full"] / 2
        goal = f"at most {most:.2f} s: {'0.5 s + 0.3 x' if few else 'half of'} the full gate"
        met = "met" if one["taken over"] <= most else "**missed**"
        yield (
            f"| {one['what']} | {one['rows']:,} | {one['changes']:,} | {one['taken over, rows']:,} "
            f"| {one['taken over']:.2f} s | {one['full']:.2f} s | {goal} | {met} |"
        )
    yield ""


def _list_search(searches: Sequence[_Run]) -> Iterator[str]:
    if not searches:
        return
    yield "## Base files in the fold"
    yield ""
    yield "What the fold does to the base files before it marks rows, and what finer checksums or an index could save."
    yield "CPU seconds, the least of three; counts of row groups, and of pages if they had so many rows."
    yield ""
    newest = {one["rows"]: one for one in searches}
    yield from _head("part", newest)
    for name in next(iter(newest.values()), {}):
        if name not in ("at", "load", "what", "rows"):
            yield _line(name, newest, lambda one, name=name: f"{one[name]:,}")
    yield ""


def _head(name: str, lives: dict[int, _Run], unit: str = "") -> Iterator[str]:
    yield f"| {name} | {' | '.join(f'{rows:,} rows{unit}' for rows in sorted(lives))} |"
    yield f"|{'---|' * (len(lives) + 1)}"


def _line(name: str, lives: dict[int, _Run], show: Callable[[_Run], str]) -> str:
    return f"| {name} | {' | '.join(show(lives[rows]) for rows in sorted(lives))} |"


def _median(life: _Run, step: str, name: str) -> float:
    return float(statistics.median(run[step][name] for run in life["runs"][:10]))


def _sum_full(life: _Run) -> str:
    full = [run for run in life["runs"] if ", incremental:" not in run["fold"]["told"]]
    return f"{sum(full[-1][step]['cpu'] for step in STEPS):.2f}" if full else "not measured"


def _of_kind(life: _Run, step: str, kind: str) -> list[float]:
    taken = [run[step]["kinds"].get(kind, [0, 0, 0]) for run in life["runs"][:10]]
    return [float(statistics.median(some)) for some in zip(*taken, strict=True)]


def _size(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB" if count >= 1e3 else f"{count:,.0f} B"


if __name__ == "__main__":
    write()
