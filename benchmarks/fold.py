"""How long folding changes into a Delta table takes, by tidefold and by its peers, side by side on the same changes.

`make bench` writes fold.md and fold.svg. ROWS, ROUNDS: how large the table is, how often each way runs;
SHARES: of the rows that change; PEERS: any of delta, iceberg, hudi, paimon and ducklake; HEAP: of each JVM. PARTS=lakes
prints one table: 1 % changed, by the peers with an environment of their own and by ways without Spark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from fold_chart import chart
from fold_data import Case, begin, case, open_bench
from fold_measured import Way, measure
from fold_ours import MINE, SPARK, SPARK_VECTORS, ours, ours_alone
from fold_page import WAYS, page
from fold_peers import HEAP, lone_peers, spark_peers, spark_session
from fold_phases import shares
from fold_sizes import growing, hot, large
from peer_environment import Peer, PeerError, read_peers
from peer_process import COMPACTED, COPY, COW, READ, PeerProcess
from tables import PAGES, Row, folder, ratios, seconds, write_page

ROWS, ROUNDS = int(os.environ.get("ROWS", "2000000")), int(os.environ.get("ROUNDS", "3"))
SHARES = tuple(float(share) for share in os.environ.get("SHARES", "0.0001,0.01,0.1,0.5,1").split(","))
# Iceberg, Hudi, Paimon and DuckLake run with this one only: each round of theirs takes minutes.
LAKE_SHARE = 0.01
# Never much slower than the better of these.
_LIMITS = ("Spark: anti join, union, overwrite", "squash, then MERGE, tuned, with deletion vectors")
PEERS = os.environ.get("PEERS", "delta,iceberg,hudi,paimon,ducklake").split(",")


def rounds(ways: list[Way], made: Case, scratch: Path) -> list[Way]:
    """Each way so many times, the one that begins rotated."""
    for number in range(ROUNDS):
        start = number * 2 % len(ways)
        for way in ways[start:] + ways[:start]:
            measure(way, made, scratch)
            print(f"{way.name}: {way.seconds[-1]:.2f} s", flush=True)
    return ways


def delta_peers(spark: SparkSession) -> list[Way]:
    return spark_peers(spark) if "delta" in PEERS else []


def other_lakes(base: Path, scratch: Path) -> tuple[list[PeerProcess], list[str]]:
    """The peers with an environment of their own, and why others are not among them."""
    lakes, absent = [], []
    made = case(base, scratch / "warm-lakes", ROWS, 0.001)
    for peer in (peer for name, peer in read_peers().items() if name in PEERS):
        try:
            lakes.append(warm_lake(peer, base, made, scratch))
        except PeerError as error:
            absent.append(f"{peer.title} on {peer.engine} did not run: {error}.")
            print(absent[-1], flush=True)
            shutil.rmtree(scratch / COPY, ignore_errors=True)
    return lakes, absent


def warm_lake(peer: Peer, base: Path, made: Case, scratch: Path) -> PeerProcess:
    if peer.rows < ROWS:
        raise PeerError(f"tables of more than {peer.rows:,} rows take it too long")
    lake = PeerProcess(peer, scratch, HEAP)
    try:
        lake.load(base)
        for way in lake.ways():
            measure(way, made, scratch)
    except PeerError:
        lake.close()
        raise
    return lake


def warm_up(spark: SparkSession, base: Path, scratch: Path) -> None:
    """Classes loaded, code compiled, Python workers forked: once through every way of Spark's, not counted."""
    made = case(base, scratch / "warm", ROWS, 0.001)
    for way in (*ours(spark), *delta_peers(spark)):
        measure(way, made, scratch)


def with_share(share: float, spark: SparkSession, lakes: list[PeerProcess], base: Path, scratch: Path) -> list[Way]:
    made = case(base, scratch / f"share-{share}", ROWS, share)
    print(f"{share:.2%}: {made.changes:,} changes", flush=True)
    others = [way for lake in lakes for way in lake.ways()] if share == LAKE_SHARE else []
    alone = lone_peers() if "delta" in PEERS else []
    return rounds([*ours(spark), *delta_peers(spark), *alone, *others], made, scratch)


def everywhere(found: dict[float, list[Way]]) -> list[Way]:
    """The ways that ran with every share: they come first."""
    return min(found.values(), key=len)


def draw_chart(found: dict[float, list[Way]]) -> None:
    lines = {way.name: [ways[i].median for ways in found.values()] for i, way in enumerate(everywhere(found))}
    PAGES.mkdir(parents=True, exist_ok=True)
    title = f"Folding changes into {ROWS:,} rows: seconds"
    points = [f"{share:.2%}".replace(".00", "") for share in found]
    (PAGES / "fold.svg").write_text(chart(title, "share of the rows that changed", points, lines))


def goals(found: dict[float, list[Way]]) -> list[Row]:
    rows = []
    least = {
        "row_number + Delta MERGE, defaults": 5.0,
        "squash, then MERGE, tuned, with deletion vectors": 3.0,
        "DuckDB script + deltalake commit": 1.0,
        **{f"{peer.title}: {name}": 2.0 for peer in read_peers().values() for name in (COW, READ, COMPACTED)},
    }
    ways = found.get(LAKE_SHARE, [])
    for other in (way for way in ways if way.name in least):
        for mine in (way for way in ways if way.name in MINE):
            said, goal = f"1 %: {mine.name}, times faster than {other.name}", least[other.name]
            rows.append(Row(said, ratios(other.seconds, mine.seconds), "x", f">= {goal:g} x", least=goal))
    for share, ways in found.items():
        limits = [way for way in ways if way.name in _LIMITS]
        if limits:
            better = min(limits, key=lambda way: way.median)
            for mine in (way for way in ways if way.name in (SPARK, SPARK_VECTORS)):
                said, values = f"{share:.2%} changed: {mine.name}, against", ratios(mine.seconds, better.seconds)
                rows.append(Row(f"{said} {better.name}", values, "x", "<= 1.1 x", limit=1.1))
    return rows


def profile_phases(spark: SparkSession, base: Path, scratch: Path) -> list[str]:
    lines = ["## Where the time goes", "", "One thread, no Spark; each step brought to its end before the next begins."]
    for share in (0.01, 0.1):
        made = case(base, scratch / f"phases-{share}", ROWS, share)
        table = ["", f"| {share:.0%} changed | time | share |", "|---|---|---|", *shares(spark, made, scratch)]
        lines += table
    return lines


def publish(
    starts: dict[str, float],
    absent: list[str],
    phases: list[str],
    found: dict[float, list[Way]],
    more: Sequence[Row] = (),
) -> None:
    """Writes the page with what was measured so far: all of it takes long."""
    ordered = dict(sorted(found.items()))
    if len(ordered) > 1:
        draw_chart(ordered)
    write_page("fold.md", page(ROWS, ROUNDS, starts, absent, ordered, [*goals(ordered), *more], phases))


def print_lakes(base: Path, scratch: Path) -> None:
    """Measures the peers with an environment of their own, without a Spark session of ours."""
    lakes, _ = other_lakes(base, scratch)
    made = case(base, scratch / "lakes", ROWS, LAKE_SHARE)
    alone = lone_peers() if "delta" in PEERS else []
    ways = rounds([*ours_alone(), *alone, *(way for lake in lakes for way in lake.ways())], made, scratch)
    for lake in lakes:
        lake.close()
    best = min(way.median for way in ways)
    print("\n".join([*WAYS, *(way.line(best) for way in ways)]))


def main() -> None:
    with folder() as scratch:
        base = begin(scratch / "base", ROWS)
        if os.environ.get("PARTS") == "lakes":
            print_lakes(base, scratch)
            return
        sessions: list[SparkSession] = []
        start = seconds(lambda: sessions.append(spark_session(open_bench(base).config)))
        [spark] = sessions
        warm_up(spark, base, scratch)
        lakes, absent = other_lakes(base, scratch)
        starts = {"Spark's": start, **{f"{lake.peer.title}'s": lake.seconds for lake in lakes}}
        phases = profile_phases(spark, base, scratch)
        written = partial(publish, starts, absent, phases)
        found: dict[float, list[Way]] = {}
        for share in SHARES:
            found[share] = with_share(share, spark, lakes, base, scratch)
            written(found)
        for lake in lakes:
            lake.close()
        rows: list[Row] = []
        for more in (
            growing(spark, scratch, ROWS, ROUNDS, delta_peers(spark)[1:3]),
            hot(spark, scratch, ROWS // 4, ROUNDS),
            large(spark, scratch, ROWS),
        ):
            rows += more
            written(found, rows)
        spark.stop()


if __name__ == "__main__":
    main()
