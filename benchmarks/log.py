"""What the changelog writer and the ledger cost on a local disk, measured against plain files in the same run.

`make bench-log` prints a Markdown table and writes it to docs/contributors/benchmarks/log.md.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tables import HEAD, Row, folder, machine, ratios, seconds, write_page
from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.segment import write_parts
from tidefold.changelog.writer.changelog import Changelog
from tidefold.changelog.writer.rows_to_arrow import change_table
from tidefold.changelog.writer.settings import WriterSettings
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import (
    ChangeSet,
    ChangeSetLocation,
    Column,
    LandedFileRecord,
    LogState,
    Position,
    TableSpec,
)
from tidefold.domain.source_progress import StreamPosition
from tidefold.ledger import Ledger
from tidefold.operations.inspect.log_status import status_of
from tidefold.storage import Store
from tidefold.storage.local_store import LocalStore

SHAPE = TableSpec(("id",), (Column("id", "long"), Column("text", "string")), "arrival", 128, 16)
ROUNDS = 7
CHUNKS = 20


def tables(rows: int, width: int) -> list[pa.Table]:
    """`CHUNKS` tables of user columns with texts of about `width` bytes, half of them alike."""
    each, filler = rows // CHUNKS, "the quick brown fox jumps over the lazy dog " * (width // 44 + 1)
    made = []
    for start in range(0, rows, each):
        texts = [f"{i * 2654435761 % 2**32:08x}{filler[: width - 8]}" for i in range(start, start + each)]
        made.append(pa.table({"id": pa.arange(start, start + each), "text": texts}))
    return made


def write_plain(path: Path, given: list[pa.Table], compress: bool) -> float:
    begun = time.perf_counter()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compress else None)
    with path.open("xb") as file, pa.ipc.new_stream(file, given[0].schema, options=options) as writer:
        for table in given:
            writer.write_table(table)
        writer.close()
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - begun


def write_log(root: Path, given: list[pa.Table], compress: bool) -> float:
    """From the first append until everything is durable; opening and closing the writer are not counted."""
    with Changelog(LocalStore(root), WriterSettings(compress=compress)) as changelog:
        log = changelog.log("bench", SHAPE)
        begun = time.perf_counter()
        for table in given:
            log.append(table)
        log.persist(0).result()
        return time.perf_counter() - begun


def throughput(rows: int, width: int, compress: bool) -> list[Row]:
    """The same changes, with all their system columns, through the writer and as a plain Arrow stream."""
    users = tables(rows, width)
    full = [change_table(table, SHAPE, i * table.num_rows, 0) for i, table in enumerate(users)]
    size = sum(table.nbytes for table in full) / 1e6
    rates: dict[str, list[float]] = {"writer": [], "plain": []}
    for number in range(ROUNDS + 1):
        with folder() as root:
            ways = {
                "writer": lambda root=root: write_log(root, users, compress),
                "plain": lambda root=root: write_plain(root / "plain.arrow", full, compress),
            }
            for name in sorted(ways, reverse=number % 2 == 0):
                rates[name].append(size / ways[name]())
    # The first round warms up imports and the disk.
    writer, plain = rates["writer"][1:], rates["plain"][1:]
    what = f"{rows:,} changes of {size * 1e6 / rows:.0f} B, {'zstd' if compress else 'not compressed'}"
    return [
        Row(f"append + persist: {what}", writer, "MB/s"),
        Row("... plain Arrow stream + fsync", plain, "MB/s"),
        Row("... ratio", ratios(writer, plain), "x", ">= 0.7 x", least=0.7),
        *shares(rows, width, compress),
    ]


def shares(rows: int, width: int, compress: bool) -> list[Row]:
    """What each step of a segment costs on one core, so that the distance to a plain file can be explained."""
    table = change_table(pa.concat_tables(tables(rows, width)[:2]), SHAPE, 0, 0)
    size = table.nbytes / 1e6
    found: dict[str, list[float]] = {"key groups (md5 of each key)": [], "sort, encode, sha256": []}
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        filled = with_key_groups(table, SHAPE)
        middle = time.perf_counter()
        write_parts(io.BytesIO(), "bench.seg", [("bench", filled)], compress=compress)
        found["key groups (md5 of each key)"].append(size / (middle - begun))
        found["sort, encode, sha256"].append(size / (time.perf_counter() - middle))
    return [Row(f"... one core: {what}", rates, "MB/s") for what, rates in found.items()]


def many_logs(logs: int, changes: int) -> list[Row]:
    taken, files = [], []
    for _ in range(3):
        with folder() as root:
            store = LocalStore(root)

            def write(store: Store = store) -> None:
                with Changelog(store) as changelog:
                    for number in range(logs):
                        rows = [{"id": i, "text": "a small change"} for i in range(changes)]
                        changelog.log(f"log_{number:03d}", SHAPE).append(rows)

            taken.append(seconds(write))
            files.append(float(sum(entry.path.endswith(".seg") for entry in store.list("changelog"))))
    what = f"{logs} logs x {changes} changes"
    return [
        Row(f"{what}: segments", files, "files", "few", limit=10),
        Row(f"{what}: open, append, persist, confirm", taken, "s"),
    ]


def arrival(offset: int) -> IngestedFile:
    """One change in a segment of its own, as the ledger is told of it."""
    landed = LandedFileRecord(
        number=0,
        name=f"writer+0+{offset:010d}",
        length=1000,
        checksum="0" * 64,
        topic="writer",
        partition=0,
        first_offset=offset,
        next_offset=offset + 1,
        records=1,
        changes=1,
        tombstones=0,
        repeated=0,
        quarantined=0,
        ignored=0,
        sqn=None,
    )
    segment = f"changelog/2026-01-01/{offset:032x}.seg"
    change_set = ChangeSet(0, ChangeSetLocation(segment, 0, 8, 1000, "0" * 64), 1, KeyGroups(0, 127), (offset,))
    return IngestedFile(landed, change_set, Position("writer", 0, offset + 1, StreamPosition((offset,))))


def long_log(state: LogState, count: int) -> LogState:
    """The state after so many arrivals, made at once: one move at a time copies the lists each time."""
    arrivals = [arrival(offset) for offset in range(count)]
    change_sets = tuple(replace(a.change_set, sqn=i + 1) for i, a in enumerate(arrivals) if a.change_set)
    landed = tuple(replace(a.landed, sqn=i + 1, number=i + 1) for i, a in enumerate(arrivals))
    return replace(state, change_sets=change_sets, landed=landed, positions=(arrivals[-1].position,))


def commits(store: Store, first: int, count: int) -> list[float]:
    ledger = Ledger(store, "bench")
    ledger.read()

    def one(offset: int) -> Callable[[], object]:
        return lambda: ledger.commit(lambda state: append(state, [arrival(offset)]))

    return [seconds(one(first + number)) * 1000 for number in range(count)]


def ledger(versions: int, segments: int) -> list[Row]:
    rows = []
    with folder() as root:
        store = LocalStore(root)
        Ledger(store, "bench").begin(SHAPE)
        commits(store, 0, versions)
        values = commits(store, versions, 50)
        rows.append(commit_row(f"ledger commit, {versions:,} versions and change sets there", values))
    with folder() as root:
        store = LocalStore(root)
        Ledger(store, "bench").begin(SHAPE)
        Ledger(store, "bench").commit(lambda state: long_log(state, segments))
        looks = [seconds(lambda: status_of(Ledger(store, "bench").read())) for _ in range(9)]
        rows.append(Row(f"status of a log with {segments:,} segments", looks, "s", "< 1 s", limit=1))
        rows.append(commit_row(f"ledger commit, {segments:,} change sets there", commits(store, segments, 50)))
    return rows


def commit_row(what: str, values: list[float]) -> Row:
    return Row(what, values, "ms", "< 10 ms", limit=10)


def main() -> None:
    rows = [
        *throughput(1_000_000, 40, compress=False),
        *throughput(1_000_000, 40, compress=True),
        *throughput(150_000, 1000, compress=False),
        *throughput(150_000, 1000, compress=True),
        *many_logs(500, 20),
        *ledger(1_000, 10_000),
    ]
    head = [
        "# What the log costs",
        "",
        "Written by `make bench-log` (benchmarks/log.py). Local disk, medians, order of the two ways rotated.",
        machine(),
        "",
        "The plain file has the same columns and compression, and none of what a segment needs: a key group for each",
        "change, batches sorted by it, checksums, an announcement, files of bounded size. Where the disk takes more",
        "than these steps give (two lines below each ratio), they are the limit and not the disk.",
        "",
        *HEAD,
    ]
    write_page("log.md", [*head, *(row.text for row in rows)])


if __name__ == "__main__":
    main()
