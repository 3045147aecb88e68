"""Backfills of logs whose order column says when a row was written; the log that they need is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.instants import judged
from support.landing_rows import land_parquet, land_text
from support.pipelines import judge_all, snapshot_rows
from tidefold.compute.runners import in_process
from tidefold.config import ConfigError
from tidefold.domain.commit_times import micros
from tidefold.domain.log_state import State
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.status import status
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold, PointInTime
from tidefold.operations.retention import subsume as subsume_module
from tidefold.operations.retention import truncate as truncate_module
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot import compact_log as compact_module
from tidefold.operations.snapshot.compact_log import compact_log
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

HEAD = "op,id,text,at\n"
CONFIG = """\
version: 1
store: store
{retention}
logs:
  items:
    source: {{format: {source}, path: landing/items}}
    key: [id]
    order: [at]
    columns: {{id: long, text: string, at: timestamp}}
    on_bad_record: quarantine
    key_groups: 16
    buckets: 4
"""
CSV = "csv, op: {column: op}, commit_time: at"
MONTH = "retention: {snapshots: 2, log: 30d}"


def begin(root: Path, source: str = CSV, retention: str = "") -> Pipeline:
    (root / "landing/items").mkdir(parents=True, exist_ok=True)
    path = root / "tidefold.yaml"
    path.write_text(CONFIG.format(source=source, retention=retention))
    return open_pipeline(path)


def at(day: int, hour: int = 0) -> str:
    return f"2026-11-{day:02d}T{hour:02d}:00:00Z"


def take(pipeline: Pipeline) -> Outcome:
    [outcome] = ingest(pipeline, ["items"], in_process)
    assert outcome.error is None, outcome
    return outcome


def publish(pipeline: Pipeline, run: str) -> None:
    materialize(pipeline, ["items"], Fold(run), in_process)
    judge_all(pipeline, "items")
    assert confirm(pipeline, "items", Confirmation(run=run)).status == "published"


def land_day(root: Path, pipeline: Pipeline, day: int) -> None:
    """One change of key 1 in each of the two halves of a day, and one new row; a delete on even days."""
    lines = [f"U,1,d{day}a,{at(day, 6)}", f"U,1,d{day}b,{at(day, 18)}", f"I,{day * 10},new,{at(day, 7)}"]
    lines += [f"D,{(day - 1) * 10},,{at(day, 8)}"] if day % 2 == 0 else []
    land_text(root, f"{day:02d}.csv", HEAD + "\n".join(lines) + "\n")
    take(pipeline)


def as_of(pipeline: Pipeline, instant: str) -> dict[int, Any]:
    run = f"as-of-{instant}"
    [outcome] = materialize(pipeline, ["items"], PointInTime(run, micros(instant)), in_process)
    assert outcome.status == "staged", outcome
    judged(pipeline, run, "items")
    done = confirm(pipeline, "items", Confirmation(run=run))
    assert done.status == "completed", done
    return snapshot_rows(pipeline, done.snapshot or 0, "items")


def error_of(pipeline: Pipeline, instant: str, **more: Any) -> str | None:
    request = PointInTime(f"as-of-{instant}", micros(instant), **more)
    return materialize(pipeline, ["items"], request, in_process)[0].error_code


def expected(day: int) -> dict[int, str]:
    """The rows at the end of a day."""
    rows = {1: f"d{day}b"} | {one * 10: "new" for one in range(1, day + 1)}
    return {key: text for key, text in rows.items() if not (key >= 10 and (key // 10) % 2 and key // 10 < day)}


def test_a_csv_log_is_backfilled_by_its_time_column(tmp_path: Path) -> None:
    pipeline = begin(tmp_path)
    for day in range(1, 6):
        land_day(tmp_path, pipeline, day)
    publish(pipeline, "run-1")
    for day in range(1, 6):
        assert as_of(pipeline, at(day + 1)) == expected(day), day
    assert as_of(pipeline, at(3, 12))[1] == "d3a"


def test_a_row_that_arrives_late_counts_where_it_was_written(tmp_path: Path) -> None:
    pipeline = begin(tmp_path)
    land_day(tmp_path, pipeline, 3)
    land_day(tmp_path, pipeline, 1)
    assert as_of(pipeline, at(2)) == expected(1)


@pytest.mark.parametrize("source", ["json, record: value", "parquet"])
def test_other_formats_of_rows_have_commit_times_too(tmp_path: Path, source: str) -> None:
    import datetime

    pipeline = begin(tmp_path, f"{source}, commit_time: at")
    for day in (1, 2):
        if source == "parquet":
            rows = [{"id": 1, "text": f"d{day}b", "at": datetime.datetime(2026, 11, day, 18, tzinfo=datetime.UTC)}]
            land_parquet(tmp_path, f"{day}.parquet", rows)
        else:
            land_text(tmp_path, f"{day}.jsonl", f'{{"id": 1, "text": "d{day}b", "at": "{at(day, 18)}"}}\n')
    config = tmp_path / "tidefold.yaml"
    config.write_text(config.read_text().replace("at: timestamp", "at: {type: timestamp, encoding: iso}"))
    pipeline = open_pipeline(config) if source != "parquet" else pipeline
    take(pipeline)
    assert as_of(pipeline, at(2)) == {1: "d1b"}
    assert as_of(pipeline, at(3)) == {1: "d2b"}


def test_a_record_that_a_retry_brings_has_its_commit_time(tmp_path: Path) -> None:
    path = "landing/items"
    pipeline = begin(tmp_path, "json, record: value, commit_time: at")
    config = tmp_path / "tidefold.yaml"
    config.write_text(config.read_text().replace("at: timestamp", "at: {type: timestamp, encoding: iso}"))
    pipeline = open_pipeline(config)
    (tmp_path / path / "items+0+0000000000.jsonl").write_text(
        f'{{"id": 1, "text": "a", "at": "{at(1)}"}}\n{{"id": 2, "text": "b", "at": "{at(2)}", "more": 1}}\n'
    )
    take(pipeline)
    config.write_text(config.read_text().replace("    key_groups", "    ignored: [more]\n    key_groups"))
    pipeline = open_pipeline(config)
    assert retry(pipeline, "items").facts["changes"] == 1
    assert as_of(pipeline, at(3)) == {1: "a", 2: "b"}


@pytest.mark.parametrize("column", ["text", "nope", "id"])
def test_only_a_timestamp_that_orders_the_log_can_be_the_commit_time(tmp_path: Path, column: str) -> None:
    with pytest.raises(ConfigError) as caught:
        begin(tmp_path, f"csv, commit_time: {column}")
    assert caught.value.code == "SOURCE_COMMIT_TIME"
    assert "Set it to `at`" in str(caught.value.problems[0].hint)


def test_a_log_without_commit_times_is_refused_where_it_is_named_and_skipped_elsewhere(tmp_path: Path) -> None:
    pipeline = begin(tmp_path, "csv, op: {column: op}")
    land_day(tmp_path, pipeline, 1)
    assert error_of(pipeline, at(2)) == "AS_OF_NO_TIMES"
    [skipped] = materialize(pipeline, ["items"], PointInTime("x", micros(at(2)), skip_undated=True), in_process)
    assert (skipped.status, skipped.error_code) == ("nothing", None)
    assert "commit_time" in skipped.message
    publish(pipeline, "run-1")
    # What is ingested from now on has times; what is folded already does not matter any more.
    pipeline = begin(tmp_path)
    land_day(tmp_path, pipeline, 2)
    assert error_of(pipeline, at(2)) == "AS_OF_NO_TIMES"


# How long the log is kept


def set_clock(monkeypatch: pytest.MonkeyPatch, instant: str) -> None:
    for module in (subsume_module, truncate_module, compact_module):
        monkeypatch.setattr(module, "now", lambda: instant)


def live(root: Path, pipeline: Pipeline, days: range) -> None:
    for day in days:
        land_day(root, pipeline, day)
        publish(pipeline, f"run-{day}")
        subsume(pipeline, "items")
        truncate(pipeline, "items")


def test_without_retention_of_the_log_only_the_newest_instants_can_be_made(tmp_path: Path) -> None:
    pipeline = begin(tmp_path, retention="retention: {snapshots: 2}")
    live(tmp_path, pipeline, range(1, 7))
    assert error_of(pipeline, at(3)) == "AS_OF_TOO_OLD"


def test_the_log_of_the_last_days_is_kept_whatever_the_number_of_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, at(7))
    pipeline = begin(tmp_path, retention=MONTH)
    live(tmp_path, pipeline, range(1, 7))
    state = pipeline.ledger("items").read()
    assert state.truncated_to == 0
    for day in range(1, 7):
        assert as_of(pipeline, at(day + 1)) == expected(day), day
    assert "`retention.log`" in truncate(pipeline, "items").message


def test_what_is_older_goes_but_for_the_snapshot_that_the_oldest_backfill_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, at(7))
    pipeline = begin(tmp_path, retention="retention: {snapshots: 2, log: 4d}")
    live(tmp_path, pipeline, range(1, 7))
    # Each instant from the 3rd on: made from the snapshot that ends with the 2nd.
    state = pipeline.ledger("items").read()
    assert [s.id for s in state.snapshots if s.state is State.COMPLETED] == [2, 5, 6]
    assert state.truncated_to == 2
    for day in range(2, 7):
        assert as_of(pipeline, at(day + 1)) == expected(day), day
    assert error_of(pipeline, at(2)) == "AS_OF_TOO_OLD"
    set_clock(monkeypatch, "2026-12-31T00:00:00Z")
    subsume(pipeline, "items")
    truncate(pipeline, "items")
    assert pipeline.ledger("items").read().truncated_to == 5


def test_a_log_without_commit_times_is_not_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = begin(tmp_path, "csv, op: {column: op}", MONTH)
    live(tmp_path, pipeline, range(1, 5))
    assert pipeline.ledger("items").read().truncated_to == 0
    set_clock(monkeypatch, "2099-01-01T00:00:00Z")
    subsume(pipeline, "items")
    truncate(pipeline, "items")
    assert pipeline.ledger("items").read().truncated_to > 0


def test_a_compaction_never_crosses_a_step_of_the_backfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, at(7))
    pipeline = begin(tmp_path, retention=MONTH)
    for day in (1, 2, 3):
        for hour in (6, 18):
            land_text(tmp_path, f"{day}-{hour}.csv", f"{HEAD}U,1,d{day}-{hour},{at(day, hour)}\n")
            take(pipeline)
    done = compact_log(pipeline, "items")
    assert (done.facts["change_sets"], done.facts["into"]) == (6, 3)
    for day in (1, 2, 3):
        assert as_of(pipeline, at(day + 1)) == {1: f"d{day}-18"}
    assert error_of(pipeline, at(2, 12)) == "AS_OF_COMPACTED"
    [shown] = status(pipeline, ["items"])
    assert shown.log == "items"


def test_what_is_older_than_the_retention_is_compacted_across_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, "2027-11-01T00:00:00Z")
    pipeline = begin(tmp_path, retention=MONTH)
    for day in (1, 2, 3):
        land_day(tmp_path, pipeline, day)
    assert compact_log(pipeline, "items").facts["into"] == 1


@pytest.mark.parametrize("log", ["30", "0d", "1w", "all", 30])
def test_a_retention_that_is_no_time_is_refused(tmp_path: Path, log: str | int) -> None:
    with pytest.raises(ConfigError) as caught:
        begin(tmp_path, retention=f"retention: {{log: {log}}}")
    assert caught.value.problems[0].key == "retention.log"
