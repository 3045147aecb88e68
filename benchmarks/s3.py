"""What snapshots in S3 cost in requests, bytes and seconds. `make bench-s3` writes docs/contributors/benchmarks/s3.md.

The server is moto on this machine. It answers each request DELAY seconds later, so that waiting costs what it costs
across a network. Tasks run in this process, so its client counts every request but those of deltalake.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from support.pipelines import judge_all, put
from support.s3_server import ENVIRONMENT, S3Bucket, S3Server
from tables import machine, write_page
from tidefold.compute.runners import in_threads
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.traffic import CloudTraffic, traffic
from tidefold.wiring import open_pipeline

DELAY, BUCKETS = 0.03, 200
CONFIG = """
version: 1
store: {store}
snapshots: {{threads: {threads}}}
logs:
  orders:
    order: arrival
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: {buckets}
    buckets: {buckets}
"""
LOG = "orders"


def open_at(folder: Path, store: str, threads: int) -> Pipeline:
    config = folder / f"tidefold-{threads}.yaml"
    config.write_text(CONFIG.format(store=store, threads=threads, buckets=BUCKETS))
    return open_pipeline(config)


def measure(act: Callable[[], object]) -> tuple[float, CloudTraffic]:
    before, begun = replace(traffic), time.perf_counter()
    act()
    seconds = time.perf_counter() - begun
    return seconds, CloudTraffic(
        traffic.requests - before.requests, traffic.sent - before.sent, traffic.received - before.received
    )


def fold(pipeline: Pipeline, run: str, kind: KindPolicy) -> None:
    [done] = materialize(pipeline, [LOG], Fold(run, kind=kind), in_threads(lambda done, total: None))
    assert done.status == "staged", done


def line(what: str, seconds: float, exchanged: CloudTraffic) -> str:
    return f"| {what} | {exchanged.requests:,} | {exchanged.sent:,} | {exchanged.received:,} | {seconds:.1f} |"


def measure_snapshots(bucket: S3Bucket, folder: Path) -> list[str]:
    full, incremental = KindPolicy.FULL, KindPolicy.INCREMENTAL
    pipeline = open_at(folder, bucket.address, 64)
    put(pipeline, [{"id": number, "text": "a" * 20} for number in range(BUCKETS * 50)], LOG)
    lines = [line(f"first full snapshot: {BUCKETS} files", *measure(partial(fold, pipeline, "run-0", full)))]
    publish = "confirm and publish it"
    judge_all(pipeline, LOG)
    lines.append(line(publish, *measure(partial(confirm, pipeline, LOG))))
    rounds = ((full, 1), (full, 8), (full, 64), (incremental, 64), (incremental, 64))
    for number, (kind, threads) in enumerate(rounds, 1):
        pipeline = open_at(folder, bucket.address, threads)
        put(pipeline, [{"id": 7, "text": f"run {number}"}], LOG)
        done = measure(partial(fold, pipeline, f"run-{number}", kind))
        lines.append(line(f"{kind} snapshot, one key changed, {threads} at once", *done))
        judge_all(pipeline, LOG)
        lines.append(line(publish, *measure(partial(confirm, pipeline, LOG))))
    lines.append(line("a run without news", *measure(partial(fold_nothing, pipeline))))
    lines.append(line("subsume", *measure(partial(subsume, pipeline, LOG))))
    return lines


def fold_nothing(pipeline: Pipeline) -> None:
    [done] = materialize(pipeline, [LOG], Fold("idle"), in_threads(lambda done, total: None))
    assert done.status == "nothing"


def compare_links(bucket: S3Bucket, folder: Path) -> list[str]:
    """One file: `link`, which any name may use, and `link_unique`, which data files use."""
    from tidefold.storage import link_data_file

    store = open_at(folder, bucket.address, 1).store
    store.put_if_absent("one", b"x" * 1000)
    linked = measure(lambda: store.link("one", "two"))[1]
    unique = measure(lambda: link_data_file(store, "one", "three", 1000))[1]
    return [
        f"| before: any name | {linked.requests} |",
        f"| now: a name that only these bytes get | {unique.requests} |",
    ]


def main() -> None:
    os.environ.update(ENVIRONMENT)
    server = S3Server(DELAY)
    os.environ["AWS_ENDPOINT_URL"] = server.url
    try:
        bucket = S3Bucket(server, "bench")
        bucket.client.create_bucket(Bucket=bucket.name)
        with tempfile.TemporaryDirectory() as folder:
            lines: Sequence[str] = measure_snapshots(bucket, Path(folder))
            links = compare_links(bucket, Path(folder))
    finally:
        server.stop()
    write_page("s3.md", [
        "# What snapshots in S3 cost",
        "",
        f"Written by `make bench-s3` (benchmarks/s3.py). {machine()}",
        f"The server is moto on this machine. Each answer takes {DELAY * 1000:.0f} ms longer.",
        "Requests of deltalake are not counted. The first incremental snapshot after a full one reads the files of the",
        "table, to prove that they are those of the snapshot. The next one carries them without a request.",
        "",
        "| what | requests | bytes sent | bytes received | seconds |",
        "|---|---|---|---|---|",
        *lines,
        "",
        "Requests to copy one file inside S3:",
        "",
        "| way | requests |",
        "|---|---|",
        *links,
    ])  # fmt: skip


if __name__ == "__main__":
    main()
