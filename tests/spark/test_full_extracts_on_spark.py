"""Full extracts by Spark's tasks: the same difference as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.landing import changes_of
from support.landing_rows import land_text, make_rows_landing
from tidefold.compute.runners import Runner, in_process, on_spark
from tidefold.operations.ingest.ingest import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = ({item: f"a{item}" for item in range(40)}, {item: f"{'b' if item % 7 else 'a'}{item}" for item in range(5, 45)})


def take_all(root: Path, run: Runner) -> list[tuple[int, int, str | None]]:
    pipeline = make_rows_landing(root, "csv, extract: {marker: _SUCCESS}", "{id: int, text: string}", "")
    for day, rows in enumerate(DAYS, 1):
        for part in range(3):
            lines = [f"{item},{text}\n" for item, text in rows.items() if item % 3 == part]
            land_text(root, f"2026-11-0{day}/part-{part}.csv", "id,text\n" + "".join(lines))
        land_text(root, f"2026-11-0{day}/_SUCCESS", "")
    [outcome] = ingest(pipeline, ["items"], run)
    assert outcome.error_code is None, outcome
    changes = ((change["_op"], change["id"], change["text"]) for change in changes_of(pipeline))
    return sorted(changes, key=str)


def test_spark_finds_the_same_difference(spark: SparkSession, tmp_path: Path) -> None:
    found = take_all(tmp_path / "spark", on_spark(spark))
    assert found == take_all(tmp_path / "here", in_process)
    kept = sum(DAYS[0].get(item) == text for item, text in DAYS[1].items())
    assert len(found) == 40 + 5 + 40 - kept
