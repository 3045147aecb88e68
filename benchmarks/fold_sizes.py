"""Folds into tables of other sizes and shapes: how time and memory grow, and what one hot key group costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from fold_data import Case, begin, case
from fold_measured import Way, measure
from fold_ours import MINE, ours
from tables import Row, ratios


def growing(spark: SparkSession, scratch: Path, rows: int, rounds: int, peers: list[Way]) -> Iterator[Row]:
    """As many changes in 4 key groups of a table and of one that is thirty times as large, whose files are."""
    small, large = rows // 10, rows * 3
    cases = {}
    for name, size in (("small", small), ("large", large)):
        base = begin(scratch / f"base-{name}", size, buckets=128)
        cases[name] = case(base, scratch / f"case-{name}", size, 0.1 * small / size, where="{group} < 4")
    found = _measure_cases(spark, cases, scratch, rounds, peers)
    for before, after in zip(found["small"], found["large"], strict=True):
        what = f"{before.name}: {cases['small'].changes:,} changes in 4 of 128 key groups, {small:,} rows"
        yield Row(what, before.seconds, "s")
        goal, limit = ("<= 1.15 x", 1.15) if before.name in MINE else ("", None)
        yield Row(f"... {large:,} rows, against it", ratios(after.seconds, before.seconds), "x", goal, limit=limit)


def hot(spark: SparkSession, scratch: Path, rows: int, rounds: int) -> Iterator[Row]:
    """Two tables of as many rows: spread evenly, and with half of them in one key group of 16."""
    # An eighth of these ids: every eighth, or the sixteenth of one group and as many of all others.
    ids = rows * 8
    wheres = {"even": "hash(id, 99) % 8 = 0", "hot": "({group} = 0 OR ({group} > 0 AND hash(id, 99) % 15 = 0))"}
    cases = {}
    for name, where in wheres.items():
        base = begin(scratch / f"base-{name}", ids, buckets=16, key_groups=16, where=where)
        cases[name] = case(base, scratch / f"case-{name}", ids, 0.01, where=where)
    found = _measure_cases(spark, cases, scratch, rounds, [])
    for even, uneven in zip(found["even"], found["hot"], strict=True):
        yield Row(f"{even.name}: 1 % of {rows:,} rows in 16 key groups", even.seconds, "s")
        values = ratios(uneven.seconds, even.seconds)
        yield Row("... with half of the rows in one key group", values, "x", "<= 2 x", limit=2)


def large(spark: SparkSession, scratch: Path, rows: int) -> Iterator[Row]:
    """The memory that a fold into three times as many rows takes."""
    base = begin(scratch / "base-many", rows * 3)
    made = case(base, scratch / "case-many", rows * 3, 0.01)
    for way in (way for way in ours(spark) if way.name in MINE):
        measure(way, made, scratch)
        yield Row(f"{way.name}: 1 % of {rows * 3:,} rows in 16 buckets", way.seconds, "s")
        most = max(use.others for use in way.use) / 2**30
        yield Row("... its memory, beside any JVM", [most], "GiB", "<= 2 GiB", limit=2)


def _measure_cases(
    spark: SparkSession, cases: Mapping[str, Case], scratch: Path, rounds: int, peers: list[Way]
) -> dict[str, list[Way]]:
    """Several cases by the same few ways, case by case in turns."""
    found = {}
    for name in cases:
        again = [Way(way.name, way.act, way.prepare, way.alone, way.checked) for way in peers]
        found[name] = [*(way for way in ours(spark) if way.name in MINE), *again]
    for number in range(rounds):
        for name in sorted(cases, reverse=number % 2 == 1):
            for way in found[name]:
                measure(way, cases[name], scratch)
                print(f"{name}, {way.name}: {way.seconds[-1]:.2f} s", flush=True)
    return found
