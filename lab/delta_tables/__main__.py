"""`make test-delta`: source tables by Spark, and Spark's commands on ours; writes docs/contributors/delta-tables.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from delta_tables.published import COMMANDS, Seen, Store, install_duckdb, try_command
from delta_tables.sources import WAYS, Played, play
from local_airflow.settings import PROJECT
from support.pipelines import make_pipeline
from support.source_tables import CASES
from support.source_versions import small_tables
from support.spark_jvm import SparkJvm
from tidefold.spark.submit import QUICK_COMPILER, job_env

PAGE = PROJECT / "docs" / "contributors" / "delta-tables.md"
RECORD = PROJECT / "lab" / "data" / "delta_tables.json"
PUBLISHED = PROJECT / "lab" / "data" / "delta_published.json"
_BEGIN, _END = "<!-- Written by `make test-delta` from here -->", "<!-- to here. -->"
_OURS, _OURS_END = "<!-- What others did to ours, from here -->", "<!-- to there. -->"


def main(names: list[str]) -> int:
    if unknown := set(names) - {*CASES, *COMMANDS}:
        print(f"There is no {', '.join(sorted(unknown))}. Tables: {', '.join(CASES)}. Commands: {', '.join(COMMANDS)}")
        return 2
    tables = [name for name in CASES if not names or name in names]
    commands = [name for name in COMMANDS if not names or name in names]
    if commands:
        install_duckdb()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    ours = json.loads(PUBLISHED.read_text()) if PUBLISHED.exists() else {}
    root, failed = Path(tempfile.mkdtemp(prefix="delta-tables-")), 0
    (root / "spark").mkdir()
    config = make_pipeline(root / "spark").config
    # Work of ten rows: the second compiler costs more than it gives.
    os.environ.update({**job_env(config), QUICK_COMPILER: "1"})
    spark = SparkJvm(config)
    with small_tables(spark.open_session(more={"spark.driver.memory": "2g"})) as session:
        for number, name in enumerate(tables):
            begun = time.monotonic()
            try:
                played = play(session, CASES[name], root / str(number))
            except Exception as error:
                traceback.print_exc()
                played = Played(wrong=[f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"])
            shutil.rmtree(root / str(number), ignore_errors=True)
            _keep(RECORD, record, name, played)
            failed += bool(played.wrong)
            print(f"{name}: {played.versions} versions, {time.monotonic() - begun:.0f} s, {played.ends}", flush=True)
            print("".join(f"    WRONG {wrong}\n" for wrong in played.wrong), end="", flush=True)
        base = Store.make(root / "base") if commands else None
        for number, name in enumerate(commands):
            begun, folder = time.monotonic(), root / f"command-{number}"
            folder.mkdir()
            assert base
            try:
                seen = try_command(session, name, base, folder)
            except Exception as error:
                traceback.print_exc()
                seen = Seen(wrong=[f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"])
            _keep(PUBLISHED, ours, name, seen)
            failed += bool(seen.wrong)
            print(f"{name}: {time.monotonic() - begun:.0f} s, {seen}", flush=True)
    spark.stop()
    shutil.rmtree(root)
    write_page(record)
    write_ours(ours)
    print(f"{len(tables)} tables and {len(commands)} commands: {failed} failed")
    return int(bool(failed))


def _keep(path: Path, record: dict[str, object], name: str, result: Played | Seen) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    record[name] = {"day": day, "commit": commit.stdout.strip(), **asdict(result)}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def write_ours(record: dict[str, dict[str, object]]) -> None:
    """Writes the table of commands into the page."""
    head, _, rest = PAGE.read_text().partition(_OURS)
    lines = ["| command | refused by | next run | what leads on | commit |", "|---|---|---|---|---|"]
    for name in (name for name in COMMANDS if name in record):
        one = record[name]
        leads: list[str] = one["leads_on"]  # type: ignore[assignment]
        refused: list[str] = one.get("refused_by", [])  # type: ignore[assignment]
        found = [", ".join(refused) or "-", str(one["next_run"]), ", ".join(leads) or "-"]
        cells = found if not one["wrong"] else ["WRONG"] * len(found)
        lines.append(f"| {name} | {' | '.join(cells)} | {one['commit']} |")
    PAGE.write_text("\n".join([head + _OURS, "", *lines, "", _OURS_END + rest.partition(_OURS_END)[2]]))


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
    # Some names have a comma and a blank in them.
    sys.exit(main([name for name in re.split(",(?! )", ",".join(sys.argv[1:])) if name]))
