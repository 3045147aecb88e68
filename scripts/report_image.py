"""Draws docs/images/report.png: the report page of a gate over the sample input, with a failure and a warning.

    PYTHONPATH=include:scripts .venv/bin/python scripts/report_image.py [docs/images/report.png [dark]]

Real changes are folded and judged snapshot by snapshot, as `make demo` does; the suite below is made so that the last
snapshot fails. Needs the browser of the development tools.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any, Literal

from demo.truth import BANK
from tidefold.cli.sample import prepare
from tidefold.compute.runners import in_process
from tidefold.compute.spark_session import spark_session
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quality.judge import JudgementDetails, judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.spark.submit import job_env, spark_conf
from tidefold.wiring import open_pipeline

IMAGE = Path("docs/images/report.png")
CHROMIUM = "/usr/bin/chromium"
Scheme = Literal["light", "dark"]
LOG, OTHER = "accounts", "branches"
# Before each snapshot: how many files of the accounts land (first the whole first phase), and the highest balance.
ROUNDS = ((10, 10_000), (1, 10_000), (1, 4_000), (1, 10_000), (1, 10_000), (1, 8_500))
SUITE = """\
checks:
  - not_null: abalance
  - range: {column: abalance, min: -MOST, max: MOST}
    name: balance is possible
  - range: {column: abalance, min: -6000, max: 6000}
    severity: warn
    name: balance is usual
  - references: {column: bid, to: branches.bid}
  - row_count_drift: {max_drop: 0.05, max_growth: 0.1}
  - distribution: {column: abalance, max_shift: 0.2}
    severity: warn
expectations:
  - type: expect_column_value_lengths_to_be_between
    name: filler has its width
    kwargs: {column: filler, min_value: 84, max_value: 84}
"""


def main(arguments: Sequence[str]) -> int:
    """Makes the page in a scratch folder and takes its picture."""
    image = Path(arguments[1]) if len(arguments) > 1 else IMAGE
    scheme: Scheme = "dark" if "dark" in arguments[2:] else "light"
    with tempfile.TemporaryDirectory() as folder:
        page = _page(Path(folder))
        image.parent.mkdir(parents=True, exist_ok=True)
        take(page, image, scheme)
    return 0


def take(page: Path, image: Path, scheme: Scheme) -> None:
    """A picture of a page that is 1280 pixels wide, down to the end of its trend; made smaller, for a README."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab: Any = browser.new_page(
            viewport={"width": 1280, "height": 900}, color_scheme=scheme, device_scale_factor=0.72
        )
        tab.goto(page.as_uri())
        end = tab.locator(".trend").bounding_box()
        clip = {"x": 0, "y": 0, "width": 1280, "height": end["y"] + end["height"] + 12}
        tab.screenshot(path=str(image), full_page=True, clip=clip)
        browser.close()


def _page(root: Path) -> Path:
    pipeline = open_pipeline(prepare(root))
    os.environ.update(job_env(pipeline.config))
    spark = _spark(pipeline)
    files = sorted((BANK / "landing").glob("*/*pgbench_accounts/*"))
    begun, outcome = 0, None
    for number, (count, most) in enumerate(ROUNDS):
        (root / "quality" / f"{LOG}.yaml").write_text(SUITE.replace("MOST", str(most)))
        _land(root, [*files[begun : begun + count], *sorted((BANK / "landing" / "phase1").glob("*branches/*"))])
        begun += count
        outcome = _snapshot(pipeline, f"run-{number + 1}", spark)
        print(outcome.message)
    assert outcome is not None
    assert isinstance(outcome.details, JudgementDetails)
    return Path(outcome.details.report)


def _spark(pipeline: Pipeline) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in spark_conf(pipeline.config).items():
        builder = builder.config(key, value)
    builder.getOrCreate()
    return spark_session("picture")


def _land(root: Path, files: Sequence[Path]) -> None:
    for file in files:
        copyfile(file, root / "landing" / file.parent.name / file.name)


def _snapshot(pipeline: Pipeline, run: str, spark: Any) -> Outcome:
    """Folds, judges and confirms what passed; what failed but the last is aborted, as a run does."""
    for log in (OTHER, LOG):
        ingest(pipeline, [log], in_process)
        materialize(pipeline, [log], Fold(run), in_process)
        [outcome] = judge(pipeline, [log], run, SparkEngine(spark))
        if outcome.status == "passed":
            confirm(pipeline, log)
        elif outcome.status == "failed":
            abort(pipeline, log, "it failed its gate")
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv))
