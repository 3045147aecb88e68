"""What docs/contributors/benchmarks/fold.md says around its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fold_measured import Way
from fold_peers import HEAP, VERSIONS
from peer_environment import read_peers
from tables import HEAD, Row, machine

WAYS = [
    "| way | median | lowest to highest | times the fastest | CPU | written | files | peak memory |",
    "|---|---|---|---|---|---|---|---|",
]
_LAKES = ", ".join(f"{peer.title} on {peer.engine}" for peer in read_peers().values())
_HOW = """
From segments on disk to a synced Delta commit with statistics. tidefold reads its 16 segments and proves the sha256 of
everything that it reads; no gate looks at the rows, as with the others. The peers read the same changes as Parquet,
exported before the clock starts, and begin with the same files of the table. Of 100 changed keys 5 are deleted, to
these come 10 new ones, and 10 are changed twice. The rows that came out of each run were compared by a checksum that
sees no order. Ways without Spark run in a process of their own, whose imports are not counted. Sessions are warm: what
Spark ended meanwhile of tidefold's Python workers (a minute without work) is started again before the clock.

CPU: seconds of all processes, which say more than the clock where other work runs on the same machine.
Memory: the most resident bytes of the whole process tree; pages that two processes share are counted twice. The ways
on Spark share one JVM and one driver, so theirs is also what the ways before them needed. Iceberg, Hudi
and Paimon have one each.

- tidefold, deletion vectors: with `deletion_vectors: true`, where the fold marks rows of a file if few
  change, and writes the file again otherwise. Readers of these tables, and of the MERGE with deletion vectors, must
  support them.
- defaults: 200 shuffle partitions, 50 partitions of the Delta log, `row_number` in the source of the MERGE.
- tuned: changes squashed into a Parquet file first (MERGE refuses a cached source), 4 shuffle partitions, 2 of the
  Delta log, the source not materialized again, zstd.
- The DuckDB script finds the files that have a changed key and writes these again on both threads. Its rows are not
  sorted, its inputs not proved, and nobody can go back.

Iceberg, Hudi, Paimon and DuckLake run in environments of their own below var/bench (benchmarks/peers, everything pinned
by checksum), one process each, whose session stays warm. Their tables are loaded once from the files of ours and copied
back before each run: 16 buckets by key as ours, zstd. They end like the others with everything synced, and the rows of
every run are compared as those of the others; their `.crc` files count as files. One that cannot be had, or for which
the table has too many rows (`rows` in benchmarks/peers/pins.toml), is left out, and this page says so above. With other
shares of changes than 1 % they do not run: a round of theirs takes minutes.

- Iceberg: format version 3, `bucket(16, id)`. The changes are squashed into an Iceberg table bucketed alike, which
  counts, and merged by a storage-partitioned join (`v2.bucketing.enabled`, `pushPartValues.enabled`,
  `requireAllClusterKeysForCoPartition=false`, `preserve-data-grouping`), so the table is not shuffled; written with
  `write.merge.distribution-mode=none` and fanout writers. Merge-on-read writes deletion vectors;
  compaction is `rewrite_data_files` of every file that has one.
- Hudi: bucket index of 16, `COMMIT_TIME_ORDERING` with squashed changes, `combine.before.upsert=false`, deletes by
  `_hoodie_is_deleted`, metadata table and column statistics on as by default. Compaction is inline, after each commit.
- Paimon: a primary key, 16 fixed buckets, Parquet and zstd. Changes are plain inserts without a join; `rowkind.field`
  marks the deletes. Compaction is `sys.compact`. (Its copy-on-write, `full-compaction.delta-commits=1`, compacted
  nothing in batch writes of Spark.)
- DuckLake: DuckDB 1.5.5 with the extension from PyPI (the extension of DuckDB 2.0 could not be had), catalog in a
  DuckDB file, `bucket(16, id)`, sorted by `id`, zstd, two threads. One MERGE may do one kind of change to rows that
  match, so a MERGE of deletes and one of the rest are one transaction. Each call attaches the catalog again. Compaction
  is `ducklake_rewrite_data_files` with threshold 0, then `ducklake_merge_adjacent_files`.
- Merge-on-read leaves work to its readers. It stands here alone, charged with the first full read of all columns, and
  charged with its compaction.
"""
_PICTURE = ["", "![seconds against the share of changed rows](fold.svg)"]


def page(
    rows: int,
    rounds: int,
    starts: Mapping[str, float],
    absent: Iterable[str],
    found: Mapping[float, list[Way]],
    lines: Iterable[Row],
    phases: Iterable[str],
) -> list[str]:
    """The whole page; `starts`: seconds that the start of each session took; `absent`: why peers are missing."""
    said = [
        "# What a fold costs",
        "",
        f"Written by `make bench` (benchmarks/fold.py): a table of {rows:,} rows of about 100 bytes in 16 files,",
        f"medians of {rounds} rounds, the order of the ways rotated. Local disk, everything in the page cache.",
        machine(),
        f"{VERSIONS}; {_LAKES}; `local[2]`, driver memory {HEAP} each.",
        *(f"**{reason}**" for reason in absent),
        *_HOW.splitlines(),
        *(_PICTURE if len(found) > 1 else []),
    ]
    for share, ways in found.items():
        best = min(way.median for way in ways)
        said += ["", f"## {share:.2%} changed", "", *WAYS, *(way.line(best) for way in ways)]
    sessions = [
        f"| start of {whose} session, in none of the times above | {taken:,.3g} s | | | |"
        for whose, taken in starts.items()
    ]
    return [*said, "", "## Goals", "", *HEAD, *sessions, *(line.text for line in lines), "", *phases]
