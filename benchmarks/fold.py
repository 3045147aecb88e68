"""How long folding changes into a Delta table takes, by tidefold and by its peers, side by side on the same changes.

`make bench` writes docs/benchmarks/fold.md and fold.svg. ROWS, ROUNDS: how large the table is, how often each way runs.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from fold_chart import chart
from fold_data import Case, append, begin, case, changes, connection, fold, link_tree, opened
from fold_measured import Way, measure
from fold_page import page
from fold_peers import lone_peers, spark_peers, spark_session
from fold_phases import shares
from tables import PAGES, Row, folder, ratios, seconds, write_page
from tidefold.fold.distribute import in_threads, on_spark
from tidefold.lifecycle.kinds import Rule

ROWS, ROUNDS = int(os.environ.get("ROWS", "2000000")), int(os.environ.get("ROUNDS", "3"))
SHARES = (0.0001, 0.01, 0.1, 0.5, 1.0)
_WAYS = [
    "| way | median | lowest to highest | times the fastest | written | files | peak memory |",
    "|---|" + "---|" * 6,
]


def incremental_in_process(root: Path, case: Case) -> None:
    fold(opened(root), "measured", Rule.INCREMENTAL, in_threads())


def ours(spark: SparkSession) -> list[Way]:
    def by_spark(root: Path, case: Case, kind: Rule) -> None:
        fold(opened(root), "measured", kind, on_spark(spark))

    return [
        Way("tidefold on Spark, incremental", partial(by_spark, kind=Rule.INCREMENTAL)),
        Way("tidefold on Spark, full", partial(by_spark, kind=Rule.FULL)),
        Way("tidefold without Spark, incremental", incremental_in_process, alone=True),
    ]


def rounds(ways: list[Way], made: Case, scratch: Path) -> list[Way]:
    """Each way so many times, the one that begins rotated."""
    for number in range(ROUNDS):
        start = number * 2 % len(ways)
        for way in ways[start:] + ways[:start]:
            measure(way, made, scratch)
            print(f"{way.name}: {way.seconds[-1]:.2f} s", flush=True)
    return ways


def warm_up(spark: SparkSession, base: Path, scratch: Path) -> None:
    """Classes loaded, code compiled, Python workers forked: once through every way of Spark's, not counted."""
    made = case(base, scratch / "warm", ROWS, 0.001)
    for way in (*ours(spark)[:2], *spark_peers(spark)):
        measure(way, made, scratch)


def by_share(spark: SparkSession, base: Path, scratch: Path) -> dict[float, list[Way]]:
    found = {}
    for share in SHARES:
        made = case(base, scratch / f"share-{share}", ROWS, share)
        print(f"{share:.2%}: {made.changes:,} changes", flush=True)
        found[share] = rounds([*ours(spark), *spark_peers(spark), *lone_peers()], made, scratch)
    return found


def pairs(spark: SparkSession, cases: dict[str, Case], scratch: Path) -> dict[str, list[Way]]:
    """Several cases by the same few ways, case by case in turns."""
    found = {name: [ours(spark)[0], ours(spark)[2], spark_peers(spark)[1]] for name in cases}
    for number in range(ROUNDS):
        for name in sorted(cases, reverse=number % 2 == 1):
            for way in found[name]:
                measure(way, cases[name], scratch)
    return found


def growing(spark: SparkSession, scratch: Path) -> list[Row]:
    """Changes in 4 key groups of a small table, of one four times as large, and of that with four times the groups."""
    small, large = ROWS // 2, ROWS * 2
    cases = {}
    for name, rows, groups in (("small", small, 128), ("large", large, 128), ("finer", large, 512)):
        base = begin(scratch / f"base-{name}", rows, buckets=groups, key_groups=groups)
        cases[name] = case(base, scratch / f"case-{name}", rows, 0.1 * small / rows * groups / 128, groups=4)
    found = pairs(spark, cases, scratch)
    lines = []
    for index, way in enumerate(found["small"]):
        what = f"{way.name}: changes in 4 of 128 key groups, {small:,} rows"
        lines.append(Row(what, way.seconds, "s"))
        for name, said in (("large", f"{large:,} rows"), ("finer", f"{large:,} rows in 512 groups")):
            values = ratios(found[name][index].seconds, way.seconds)
            goal = {"goal": "<= 1.15 x", "limit": 1.15} if way.name.startswith("tidefold") else {}
            lines.append(Row(f"... {said}, against it", values, "x", **goal))
    return lines


def many_segments(spark: SparkSession, base: Path, scratch: Path) -> list[Row]:
    cases = {str(n): case(base, scratch / f"segments-{n}", ROWS, 0.01, segments=n) for n in (16, 1000)}
    found = pairs(spark, cases, scratch)
    return [
        Row(
            f"{many.name}: 1,000 segments against 16",
            ratios(many.seconds, few.seconds),
            "x",
            **({"goal": "<= 3 x", "limit": 3} if few.name.startswith("tidefold") else {}),
        )
        for few, many in zip(found["16"], found["1000"], strict=True)
    ]


def in_a_row(base: Path, scratch: Path, count: int = 20) -> Row:
    """So many incremental snapshots, each of 1 % changes: the last one against the second."""
    lasts = []
    for number in range(ROUNDS):
        root = scratch / f"row-{number}"
        link_tree(base, root)
        pipeline, taken = opened(root), []
        for step in range(count):
            with connection() as db:
                append(pipeline, [changes(db, ROWS, 0.01, step + 10)])
            taken.append(seconds(lambda p=pipeline, s=step: fold(p, f"row-{s}", Rule.INCREMENTAL, in_threads())))
        lasts.append(taken[-1] / taken[1])
        shutil.rmtree(root)
    return Row(
        f"{count} incremental snapshots in a row: the last against the second", lasts, "x", "<= 1.2 x", limit=1.2
    )


def goals(found: dict[float, list[Way]]) -> list[Row]:
    rows = []
    for name, least in (
        ("row_number + Delta MERGE, defaults", 5.0),
        ("squash, then MERGE, tuned, with deletion vectors", 3.0),
        ("DuckDB script + deltalake commit", 1.0),
    ):
        for mine in (found[0.01][0], found[0.01][2]):
            other = next(way for way in found[0.01] if way.name == name)
            values = ratios(other.seconds, mine.seconds)
            rows.append(Row(f"1 %: {mine.name}, times faster than {name}", values, "x", f">= {least:g} x", least=least))
    for share, ways in found.items():
        by_name = {way.name: way for way in ways}
        limits = [
            by_name["Spark: anti join, union, overwrite"],
            by_name["squash, then MERGE, tuned, with deletion vectors"],
        ]
        better = min(limits, key=lambda way: way.median)
        values = ratios(ways[0].seconds, better.seconds)
        rows.append(Row(f"{share:.2%} changed: on Spark against {better.name}", values, "x", "<= 1.1 x", limit=1.1))
    return rows


def profiled(spark: SparkSession, base: Path, scratch: Path) -> list[str]:
    lines = ["## Where the time goes", "", "One thread, no Spark; each step brought to its end before the next begins."]
    for share in (0.01, 0.1):
        made = case(base, scratch / f"phases-{share}", ROWS, share)
        table = ["", f"| {share:.0%} changed | time | share |", "|---|---|---|", *shares(spark, made, scratch)]
        lines += table
    return lines


def main() -> None:
    with folder() as scratch:
        base = begin(scratch / "base", ROWS)
        sessions: list[SparkSession] = []
        start = seconds(lambda: sessions.append(spark_session(opened(base).config)))
        [spark] = sessions
        warm_up(spark, base, scratch)
        phases = profiled(spark, base, scratch)
        found = by_share(spark, base, scratch)
        lines = {way.name: [found[share][i].median for share in SHARES] for i, way in enumerate(found[SHARES[0]])}
        (PAGES / "fold.svg").write_text(chart(f"Folding changes into {ROWS:,} rows: seconds", SHARES, lines))
        rows = goals(found)
        # Written after each part: what comes next takes long.
        for part in (lambda: growing(spark, scratch), lambda: many_segments(spark, base, scratch)):
            rows += part()
            write_page("fold.md", page(ROWS, ROUNDS, start, found, rows, phases))
        rows.append(in_a_row(base, scratch))
        spark.stop()
    write_page("fold.md", page(ROWS, ROUNDS, start, found, rows, phases))


if __name__ == "__main__":
    main()
