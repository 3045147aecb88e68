"""`make test-delta`: plays source tables by Spark, and writes docs/contributors/delta-tables.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from delta_tables.sources import WAYS, Played, play
from local_airflow.settings import PROJECT
from support.pipelines import make_pipeline
from support.source_tables import CASES
from support.source_versions import small_tables
from support.spark_jvm import SparkJvm
from tidefold.spark.submit import QUICK_COMPILER, job_env

PAGE = PROJECT / "docs" / "contributors" / "delta-tables.md"
RECORD = PROJECT / "lab" / "data" / "delta_tables.json"
_BEGIN, _END = "<!-- Written by `make test-delta` from here -->", "<!-- to here. -->"


def main(names: list[str]) -> int:
    if unknown := set(names) - CASES.keys():
        print(f"There is no table {', '.join(sorted(unknown))}. Tables: {', '.join(CASES)}")
        return 2
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True)
    root, failed = Path(tempfile.mkdtemp(prefix="delta-tables-")), 0
    config = make_pipeline(root / "spark").config if (root / "spark").mkdir() is None else None
    assert config
    # Work of ten rows: the second compiler costs more than it gives.
    os.environ.update({**job_env(config), QUICK_COMPILER: "1"})
    spark = SparkJvm(config)
    with small_tables(spark.open_session(more={"spark.driver.memory": "2g"})) as session:
        for number, name in enumerate(names or CASES):
            begun = time.monotonic()
            try:
                played = play(session, CASES[name], root / str(number))
            except Exception as error:
                traceback.print_exc()
                played = Played(wrong=[f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"])
            shutil.rmtree(root / str(number), ignore_errors=True)
            day = f"{datetime.now(UTC):%Y-%m-%d}"
            record[name] = {"day": day, "commit": commit.stdout.strip(), **asdict(played)}
            RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            failed += bool(played.wrong)
            print(f"{name}: {played.versions} versions, {time.monotonic() - begun:.0f} s, {played.ends}", flush=True)
            print("".join(f"    WRONG {wrong}\n" for wrong in played.wrong), end="", flush=True)
    spark.stop()
    shutil.rmtree(root)
    write_page(record)
    print(f"{len(names or CASES)} tables: {failed} failed")
    return int(bool(failed))


def write_page(record: dict[str, dict[str, object]]) -> None:
    """Writes the table of results into the page."""
    head, _, rest = PAGE.read_text().partition(_BEGIN)
    lines = [f"| table | versions | {' | '.join(WAYS)} | commit |", f"|---|{'---|' * (len(WAYS) + 2)}"]
    for name in (name for name in CASES if name in record):
        one = record[name]
        ends: dict[str, str] = one["ends"]  # type: ignore[assignment]
        cells = [ends.get(way, "not run") for way in WAYS] if not one["wrong"] else ["WRONG"] * len(WAYS)
        cells = [cell.replace("|", "/") for cell in cells]
        lines.append(f"| {name} | {one['versions']} | {' | '.join(cells)} | {one['commit']} |")
    PAGE.write_text("\n".join([head + _BEGIN, "", *lines, "", _END + rest.partition(_END)[2]]))


if __name__ == "__main__":
    sys.exit(main([name.strip() for name in ",".join(sys.argv[1:]).split(",") if name.strip()]))
