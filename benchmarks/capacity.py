"""What a fold costs in CPU by changed and by rewritten rows, and what that means for larger tables.

`make bench-capacity` measures folds at some sizes, fits a model with least squares, checks it at sizes that it has not
seen, and writes capacity.md above the line. A simulator deals the tasks of larger tables to executors.
"""

from __future__ import annotations

import heapq
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.pipelines import judge_all, put
from tables import KEPT, machine
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

PAGE = Path(__file__).parents[1] / "docs" / "contributors" / "capacity.md"
LOG, BUCKETS = "orders", 8
CONFIG = f"""
version: 1
store: store
logs:
  {LOG}:
    order: arrival
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 64
    buckets: {BUCKETS}
"""
S3 = "[S3](benchmarks/s3.md)"
FITTED = ((200_000, 1_000), (200_000, 100_000), (800_000, 4_000), (800_000, 400_000), (1_600_000, 16_000))
CHECKED = ((400_000, 40_000), (1_200_000, 30_000), (1_600_000, 400_000))
ROUNDS, ROW_BYTES = 3, 100
# Measured by `make bench-s3` and `make bench-scale`.
PLAN_BYTES, REQUEST_SECONDS, AT_ONCE = 340, 0.03, 64


@dataclass(frozen=True)
class Model:
    """CPU seconds of the tasks of a fold: `fixed` for each bucket, and for each changed and each rewritten row."""

    fixed: float
    changed: float
    rewritten: float

    def predict(self, buckets: int, changed: float, rewritten: float) -> float:
        return self.fixed * buckets + self.changed * changed + self.rewritten * rewritten


def measure(rows: int, changes: int) -> float:
    """Returns the CPU seconds of a fold of changes that reach every bucket, the least of some rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-tidefold-") as made:
        (Path(made) / "tidefold.yaml").write_text(CONFIG)
        pipeline = open_pipeline(Path(made) / "tidefold.yaml", lambda text: None)
        put(pipeline, [{"id": n, "text": os.urandom(40).hex()} for n in range(rows)], LOG)
        materialize(pipeline, [LOG], Fold("run-0"), in_process)
        judge_all(pipeline, LOG)
        confirm(pipeline, LOG)
        found = []
        for number in range(1, ROUNDS + 1):
            step = rows // changes
            put(pipeline, [{"id": n * step, "text": os.urandom(40).hex()} for n in range(changes)], LOG)
            begun = time.process_time()
            [done] = materialize(pipeline, [LOG], Fold(f"run-{number}", kind=KindPolicy.INCREMENTAL), in_process)
            found.append(time.process_time() - begun)
            assert done.status == "staged", done
            judge_all(pipeline, LOG)
            confirm(pipeline, LOG)
    return min(found)


def fit(measured: Sequence[tuple[int, int, float]]) -> Model:
    """Fits with equal weight for equal shares of error."""
    left = np.array([[BUCKETS / cpu, changes / cpu, rows / cpu] for rows, changes, cpu in measured])
    found, *_ = np.linalg.lstsq(left, np.ones(len(measured)), rcond=None)
    return Model(*(max(0.0, float(one)) for one in found))


def simulate(tasks: Sequence[float], cores: int) -> float:
    """Returns the seconds until all tasks have ended, dealt longest first to the core that is free first."""
    free = [0.0] * cores
    for seconds in sorted(tasks, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def describe_case(
    model: Model, what: str, buckets: int, rows: float, changed: float, touched: float, cores: int
) -> str:
    """touched: the share of the buckets that the changes reach."""
    reached = max(1, round(buckets * touched))
    each = model.predict(1, changed / reached, rows / buckets)
    # Sizes of buckets differ: by a factor of two between the smallest and the largest.
    tasks = [each * (0.67 + 0.67 * number / max(1, reached - 1)) for number in range(reached)]
    cpu, wall = sum(tasks), simulate(tasks, cores)
    copies = (buckets - reached) * REQUEST_SECONDS / AT_ONCE
    moved = 2 * ROW_BYTES * rows * reached / buckets
    cells = [what, f"{buckets:,}", f"{reached:,}", f"{moved / 1e9:,.0f} GB", f"{cpu:,.0f} s", f"{cores:,}"]
    cells.append(f"{wall:,.0f} s")
    return f"| {' | '.join([*cells, f'{copies:,.0f} s'])} |"


def main() -> None:
    measured = [(rows, changes, measure(rows, changes)) for rows, changes in FITTED]
    model = fit(measured)
    lines = [
        "| rows | changes | CPU measured | CPU by the model | difference | |",
        "|---|---|---|---|---|---|",
    ]
    differences: list[float] = []
    for rows, changes in (*FITTED, *CHECKED):
        known = {(r, c): cpu for r, c, cpu in measured}
        cpu = known.get((rows, changes)) or measure(rows, changes)
        said = model.predict(BUCKETS, changes, rows)
        if (rows, changes) not in known:
            differences.append(said / cpu - 1)
        role = "fitted" if (rows, changes) in known else "**checked**"
        lines.append(f"| {rows:,} | {changes:,} | {cpu:.3f} s | {said:.3f} s | {said / cpu - 1:+.0%} | {role} |")
    ten_tb = 10e12 / 100
    cases = [
        describe_case(
            model, "10 TB, 0.1 % of the rows change in 1 % of the buckets", 40_000, ten_tb, ten_tb / 1e3, 0.01, 64
        ),
        describe_case(model, "10 TB, 0.1 % of its rows, anywhere", 40_000, ten_tb, ten_tb / 1e3, 1.0, 512),
        describe_case(model, "100,000 files of 64 MB, changes in 2 %", 100_000, 100_000 * 640_000, 1e8, 0.02, 64),
        describe_case(model, "1 GB/s of changes for 60 s, into 1 TB", 4_000, 1e10, 6e8, 1.0, 256),
    ]
    worst = max((abs(one) for one in differences), default=0.0)
    lines += [
        "",
        f"At the sizes that it has not seen, the model is wrong by up to {worst:.0%}. Other programs ran on the",
    ]
    lines += ["machine meanwhile."]
    text = "\n".join([*page_head(model), *lines, "", *page_cases(cases)])
    print(text)
    if os.environ.get("WRITE") != "0":
        _, line, kept = (PAGE.read_text() if PAGE.exists() else "").partition(KEPT)
        PAGE.write_text(f"{text}\n{line}{kept}" if line else f"{text}\n")


def page_head(model: Model) -> list[str]:
    return [
        "# How large it can be",
        "",
        "A model of what tidefold needs, with measured coefficients. `make bench-capacity` writes this page",
        f"(benchmarks/capacity.py). {machine()}",
        "",
        "## Coefficients",
        "",
        "| what | costs | measured by |",
        "|---|---|---|",
        f"| a bucket that a change reaches | {model.fixed * 1e3:.1f} ms of CPU | this page |",
        f"| a changed row | {model.changed * 1e6:.2f} µs of CPU | this page |",
        f"| a row that is rewritten unchanged | {model.rewritten * 1e6:.2f} µs of CPU | this page |",
        "| a row in a file that no change reaches | no CPU | |",
        f"| such a file in an incremental snapshot | none; after a full one, its bytes are read once | {S3} |",
        f"| such a file in a full snapshot in S3 | one request (a copy), 64 at once | {S3} |",
        f"| a new file of a full snapshot in S3 | one request for each 16 MiB; one to copy it | {S3} |",
        f"| a change set that waits | about {PLAN_BYTES} bytes for each executor | [dealing](benchmarks/scale.md) |",
        "| a bucket | about 1.4 kB from the driver, once | [dealing](benchmarks/scale.md) |",
        "| a log without news | three requests a run, 64 logs at the same time | [many logs](benchmarks/scale.md) |",
        "",
        "The rows have an integer key and a text of 80 random digits, about 100 bytes. Other rows cost more or less:",
        "measure yours with `make bench`. The gate reads all rows once more ([quality](benchmarks/quality.md)).",
        "",
        "## The model against measurements",
        "",
        "CPU = buckets x fixed + changed x changes + rewritten x rows, in one process. The model is fitted to some",
        "sizes and checked at three that it has not seen. The least of three rounds counts.",
        "",
    ]


def page_cases(cases: Sequence[str]) -> list[str]:
    return [
        "## Sizes that do not run here",
        "",
        "A simulator deals the tasks longest first, and the largest bucket is twice the smallest. Rows have 100 bytes.",
        "*Fold* is the CPU of the tasks alone. Network, disks and the start of Spark come on top: divide the bytes",
        "that are read and written by what your cluster reads and writes a second, and take the larger number.",
        "*Copies* are what a full snapshot adds in S3 at 30 ms a request. These are predictions.",
        "",
        "| table | buckets | rewritten | read and written | CPU | cores | fold | copies of a full snapshot |",
        "|---|---|---|---|---|---|---|---|",
        *cases,
        "",
        "What follows from it:",
        "",
        "- **10 TB**: choose incremental snapshots and enough buckets that a change reaches few rows: files of",
        "  about 250 MB. Changes that reach all buckets rewrite the whole table in each run: run less often, or",
        "  use [deletion vectors](../how-to/read.md#deletion-vectors).",
        "- **100,000 files**: a full snapshot in S3 copies each file that no change reaches, for one request each.",
        "  Publishing looks at the new files only: one request each, or one for a folder of up to 1,000 files.",
        "- **1 GB/s of changes**: the CPU of the fold decides. Compare `fold` with how often you want to publish.",
        "- **5,000 logs**: a run without news takes seconds on a disk ([many logs](benchmarks/scale.md)). A DAG run",
        "  works on at most 1,000 logs with news, with one `confirm` task each.",
    ]


if __name__ == "__main__":
    main()
