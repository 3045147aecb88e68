"""Ingest from landed files to the ledger: what is taken, what is left, what holds a partition up, and that it is exact.

Promises I2, I4, I20, I25; each partition is ingested strictly in offset order.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.landing import (
    TOPIC,
    find_pending,
    land,
    make_landing,
    offsets,
    quarantined,
    record,
    state_of,
    store_files,
    take,
    text_of,
    tombstone,
)
from tidefold.compute.runners import TaskAnswer, TaskWork, in_process
from tidefold.errors import StorageError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.retention.clean import drop
from tidefold.sources.debezium import json_source
from tidefold.sources.debezium.json_source import DebeziumJson
from tidefold.sources.landing import listing
from tidefold.sources.landing.plan import FileTask


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_landing(tmp_path)


def test_files_become_change_sets_and_the_message_says_how_many(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0, 1), record(1, 2), record(2, 1, "d"), tombstone(3, 1)])
    land(tmp_path, 4, [record(4, 3), record(5, 4, order=1000), "{oops", record(7, value={"ts_ms": 1})], "json.gz")
    assert find_pending(pipeline, ["items"]) == ["items"]
    outcome = take(pipeline)
    counts = "took 2 files: 4 changes, 1 tombstone, 1 quarantined, 1 re-sent, 1 ignored"
    [quarantine] = outcome.facts["quarantine"]
    assert outcome.status == "taken"
    assert outcome.message.startswith(f"{counts}; refused: 1 BROKEN_JSON, see {quarantine} in the store; [SOURCE_SNAP")
    state = state_of(pipeline)
    assert [(c.sqn, c.rows, c.high) for c in state.change_sets] == [(1, 3, (1002, 1002)), (2, 1, (1004, 1004))]
    assert [(e.first_offset, e.next_offset, e.sqn) for e in state.landed] == [(0, 4, 1), (4, 8, 2)]
    assert [(p.next_offset, p.stream.max_order) for p in state.positions] == [(8, (1004, 1004))]
    assert len({c.location.segment for c in state.change_sets}) == 1


def test_nothing_new_writes_nothing_at_all(pipeline: Pipeline, tmp_path: Path) -> None:
    assert take(pipeline).status == "nothing"
    assert not store_files(tmp_path)
    land(tmp_path, 0, [record(0)])
    take(pipeline)
    before = store_files(tmp_path)
    assert find_pending(pipeline, ["items"]) == []
    assert take(pipeline).message == "nothing new"
    assert store_files(tmp_path) == before


def test_a_run_that_reads_no_task_needs_no_runner(pipeline: Pipeline) -> None:
    def no_runner(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        raise AssertionError("a JVM was started for nothing")

    assert ingest(pipeline, ["items"], no_runner)[0].status == "nothing"


def test_a_line_that_was_written_twice_is_no_bad_record(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path, policy="fail")
    land(tmp_path, 0, [record(0), record(1), record(1), record(2)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.facts["changes"], outcome.facts["repeated"]) == ("taken", 3, 1)
    land(tmp_path, 0, [record(0), record(1), record(1), record(2), record(2), record(3)])
    assert take(pipeline).facts["repeated"] == 1
    assert offsets(pipeline) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "linked folder"])
def test_what_is_no_regular_file_is_refused_and_holds_up_its_partition(
    pipeline: Pipeline, tmp_path: Path, kind: str
) -> None:
    """Whoever may land a file reads no other file of the machine."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / f"{TOPIC}+0+0000000005.jsonl").write_bytes(text_of([record(5)]) + b"root:x:0:0\n")
    land(tmp_path, 0, [record(0)])
    land(tmp_path, 9, [record(9)])
    place = tmp_path / "landing" / TOPIC / f"{TOPIC}+0+0000000005.jsonl"
    if kind == "file":
        place.symlink_to(secret / place.name)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
        (place / "x").symlink_to(secret / place.name)
    else:
        place = tmp_path / "landing" / TOPIC / "hour"
        place.symlink_to(secret)
    outcome = take(pipeline)
    [problem] = outcome.facts["problems"]
    assert problem["code"] == ("LANDED_SPECIAL" if kind == "pipe" else "LANDED_LINK")
    assert offsets(pipeline) == ([0] if kind in ("file", "pipe") else [0, 9])
    assert not any(b"root:x" in path.read_bytes() for path in store_files(tmp_path))
    assert f"[{problem['code']}]" in outcome.message
    if kind in ("file", "pipe"):
        assert take(pipeline).error_code == problem["code"]
        place.unlink()
        land(tmp_path, 5, [record(5)])
        take(pipeline)
        assert offsets(pipeline) == [0, 5, 9]


@pytest.mark.parametrize("when", ["listed", "ended"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_that_takes_the_place_of_a_listed_file_is_refused_when_it_is_opened(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, what: str
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    name = f"{TOPIC}+0+0000000000.jsonl"
    (secret / name).write_bytes(b"root:x:0:0\n")
    file = land(tmp_path, 0, [record(0)], name="hour/{topic}+0+{start:010d}.{extension}")

    def swapped() -> None:
        if file.parent.is_symlink() or file.is_symlink():
            return
        file.unlink()
        if what == "file":
            file.symlink_to(secret / name)
        else:
            file.parent.rmdir()
            file.parent.symlink_to(secret)

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        swapped()
        return in_process(work, tasks)

    if when == "listed":
        real = listing.list_landed
        monkeypatch.setattr(json_source, "list_landed", lambda *given: (real(*given), swapped())[0])
    [outcome] = ingest(pipeline, ["items"], run)
    assert outcome.error_code == "LANDED_LINK"
    assert store_files(tmp_path) == []


def test_a_file_that_became_a_link_after_it_was_taken_is_not_followed(pipeline: Pipeline, tmp_path: Path) -> None:
    file = land(tmp_path, 0, [record(0)])
    take(pipeline)
    file.rename(tmp_path / "archived")
    file.symlink_to(tmp_path / "archived")
    assert take(pipeline).error_code == "LANDED_LINK"


def test_a_torn_end_of_the_newest_file_is_left_and_taken_once_it_is_complete(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    whole = text_of([record(i, i, "r") for i in range(3)])
    land(tmp_path, 0, whole[:-40])
    outcome = take(pipeline)
    assert outcome.message.endswith(f"; 1 file still being written: `{TOPIC}+0+0000000000.jsonl`")
    assert outcome.facts["still_writing"] == [f"{TOPIC}+0+0000000000.jsonl"]
    assert offsets(pipeline) == [0, 1]
    before = store_files(tmp_path)
    assert find_pending(pipeline, ["items"]) == []
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("incomplete", "LANDED_WAITING")
    assert store_files(tmp_path) == before
    land(tmp_path, 0, whole + text_of([record(3, 3), "{torn"])[:-1])
    assert take(pipeline).facts["changes"] == 2
    assert offsets(pipeline) == [0, 1, 2, 3]
    assert [entry.records for entry in state_of(pipeline).landed] == [2, 2]


def test_a_complete_last_line_needs_no_line_end(pipeline: Pipeline, tmp_path: Path) -> None:
    data = text_of([record(0, op="r"), record(1)])
    land(tmp_path, 0, data[:-1])
    assert take(pipeline).message == "took 1 file: 2 changes"
    land(tmp_path, 0, data)
    assert take(pipeline).status == "nothing"
    land(tmp_path, 0, data + text_of([record(2)]))
    take(pipeline)
    assert offsets(pipeline) == [0, 1, 2]


def test_lines_of_a_grown_file_keep_their_numbers_in_the_quarantine(pipeline: Pipeline, tmp_path: Path) -> None:
    records = [record(0), "", "{bad", record(3)]
    land(tmp_path, 0, records)
    take(pipeline)
    land(tmp_path, 0, [*records, record(4), "{worse"])
    take(pipeline)
    assert [(q["line"], q["reason"]) for q in quarantined(pipeline)] == [(3, "BROKEN_JSON"), (6, "BROKEN_JSON")]


def test_a_grown_gzip_file_gives_only_its_new_records(pipeline: Pipeline, tmp_path: Path) -> None:
    first = gzip.compress(text_of([record(0), "{bad", record(2)]))
    land(tmp_path, 0, first, "jsonl.gz")
    take(pipeline)
    land(tmp_path, 0, first + gzip.compress(text_of([record(3), "{bad"])), "jsonl.gz")
    outcome = take(pipeline)
    assert (outcome.facts["records"], outcome.facts["changes"], outcome.facts["quarantined"]) == (2, 1, 1)
    assert offsets(pipeline) == [0, 2, 3]
    assert take(pipeline).status == "nothing"


@pytest.mark.parametrize("extension", ["jsonl", "jsonl.gz"])
def test_other_bytes_under_a_known_name_are_an_error(pipeline: Pipeline, tmp_path: Path, extension: str) -> None:
    land(tmp_path, 0, [record(0), record(1)], extension)
    take(pipeline)
    before = state_of(pipeline)
    land(tmp_path, 0, [record(0, 5), record(1, 6), record(2, 7), record(3, 8)], extension)
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("error", "LANDED_CHANGED")
    assert find_pending(pipeline, ["items"]) == ["items"]
    land(tmp_path, 0, [record(0)] if extension == "jsonl" else gzip.compress(b""), extension)
    assert take(pipeline).error_code == "LANDED_CHANGED"
    assert state_of(pipeline) == before


def test_a_cut_gzip_file_is_left_when_newest_and_stops_its_partition_otherwise(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    land(tmp_path, 0, [record(0, op="r")])
    whole = gzip.compress(text_of([record(i, i) for i in range(1, 50)]))
    cut = land(tmp_path, 1, whole[:-9], "jsonl.gz")
    outcome = take(pipeline)
    assert outcome.message == (f"took 1 file: 1 change; 1 file still being written: `{cut.name}`")
    land(tmp_path, 50, [record(50)])
    before = state_of(pipeline)
    outcome = take(pipeline)
    assert (outcome.error_code, outcome.error.exit_code) == ("LANDED_TRUNCATED", 2)
    assert cut.name in outcome.message
    assert state_of(pipeline) == before
    land(tmp_path, 1, whole, "jsonl.gz")
    assert take(pipeline).facts["files"] == 2
    assert offsets(pipeline) == list(range(51))


def test_what_comes_before_a_problem_is_taken_and_the_problem_is_told(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0)])
    land(tmp_path, 1, gzip.compress(text_of([record(1), "{bad"]))[:-4], "jsonl.gz")
    land(tmp_path, 2, [record(2)])
    land(tmp_path, 0, [record(0, partition=1)], name="{topic}+1+{start:010d}.{extension}")
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code, outcome.facts["files"]) == ("taken", None, 2)
    assert [p["code"] for p in outcome.facts["problems"]] == ["LANDED_TRUNCATED"]
    assert "[LANDED_TRUNCATED]" in outcome.message
    assert [(p.partition, p.next_offset) for p in state_of(pipeline).positions] == [(0, 1), (1, 1)]
    assert quarantined(pipeline) == []
    assert take(pipeline).error_code == "LANDED_TRUNCATED"


def test_a_torn_line_in_a_file_that_is_not_the_newest_is_quarantined(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, text_of([record(0), record(1)])[:-30])
    take(pipeline)
    land(tmp_path, 5, [record(5)])
    outcome = take(pipeline)
    assert (outcome.facts["files"], outcome.facts["refused"]) == (2, {"TORN_LINE": 1})
    [entry] = quarantined(pipeline)
    assert (entry["line"], entry["reason"]) == (2, "TORN_LINE")
    assert offsets(pipeline) == [0, 5]
    assert take(pipeline).status == "nothing"


@pytest.mark.parametrize("cut", [1, 30])
def test_a_retry_reads_a_torn_line_that_its_writer_completed_later(
    pipeline: Pipeline, tmp_path: Path, cut: int
) -> None:
    text = text_of([record(0), record(1, 7)])
    land(tmp_path, 0, text.rstrip(b"\n")[:-cut])
    land(tmp_path, 5, [record(5)])
    take(pipeline)
    assert retry(pipeline, "items").facts["why"] == {"refused": 1}
    land(tmp_path, 0, text.rstrip(b"\n")[: -cut + 1 or None] if cut > 1 else text)
    torn = take(pipeline)
    land(tmp_path, 0, text)
    outcome = take(pipeline)
    assert (torn.error_code, outcome.error_code, outcome.facts["refused"]) == (None, None, {})
    assert [entry["reason"] for entry in quarantined(pipeline)] == ["TORN_LINE"]
    again = retry(pipeline, "items")
    assert (again.facts["changes"], again.facts["staying"]) == (1, 0)
    assert sorted(offsets(pipeline)) == [0, 1, 5]
    assert take(pipeline).status == "nothing"


def test_a_torn_line_whose_first_bytes_changed_stays_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    text = text_of([record(0), record(1)])
    land(tmp_path, 0, text[:-30])
    land(tmp_path, 5, [record(5)])
    take(pipeline)
    land(tmp_path, 0, text_of([record(0), record(1, 9)]))
    assert take(pipeline).error_code == "LANDED_CHANGED"
    assert retry(pipeline, "items").facts["why"] == {"refused": 1}


def test_the_same_records_under_another_name_are_counted_and_nothing_is_taken(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    land(tmp_path, 0, [record(i, i) for i in range(4)])
    take(pipeline)
    again = [record(i, i) for i in range(4)]
    land(tmp_path, 0, again, "json.gz")
    land(tmp_path, 2, [record(i, i) for i in range(2, 7)], name="again/{topic}+0+{start:010d}.{extension}")
    outcome = take(pipeline)
    assert (outcome.facts["repeated"], outcome.facts["changes"]) == (6, 3)
    assert offsets(pipeline) == list(range(7))
    assert [(e.first_offset, e.next_offset) for e in state_of(pipeline).landed] == [(0, 4), (4, 4), (4, 7)]
    assert take(pipeline).status == "nothing"


def test_overlapping_files_of_one_run_are_taken_once(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(i, i) for i in range(4)])
    land(tmp_path, 2, [record(i, i) for i in range(2, 6)])
    land(tmp_path, 2, [record(i, i) for i in range(2, 5)], "json")
    land(tmp_path, 6, [record(6)])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["repeated"], outcome.facts["files"]) == (7, 5, 4)
    assert offsets(pipeline) == list(range(7))
    named = {c.location.segment for c in state_of(pipeline).change_sets}
    assert {str(p.relative_to(tmp_path / "store")) for p in (tmp_path / "store/changelog").rglob("*.seg")} == named


def test_files_that_overlap_one_after_the_other_are_parsed_twice_at_most(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 24, 2):
        land(tmp_path, start, [record(start), record(start + 1), "{bad", record(start + 2)])
    parsed: list[str] = []
    real = DebeziumJson.parse

    def counted(source: DebeziumJson, task: FileTask, *others: Any) -> Any:
        parsed.append(task.file.name)
        return real(source, task, *others)

    monkeypatch.setattr(DebeziumJson, "parse", counted)
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["repeated"], outcome.facts["quarantined"]) == (25, 11, 12)
    assert offsets(pipeline) == list(range(25))
    assert len(parsed) == 12 + 11


def test_offsets_that_come_too_late_are_an_error_and_gaps_are_not(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0), record(5)])
    land(tmp_path, 10, [record(10)])
    take(pipeline)
    before = state_of(pipeline)
    late = land(tmp_path, 7, [record(7)])
    land(tmp_path, 20, [record(20)])
    outcome = take(pipeline)
    assert outcome.error_code == "LANDED_LATE"
    assert "offset 7" in outcome.message
    assert "never ingested" in outcome.message
    assert "tidefold retain drop LOG" in outcome.message
    assert state_of(pipeline) == before
    late.rename(tmp_path / "kept elsewhere")
    assert take(pipeline).facts["changes"] == 1
    # Begun anew, the log takes it.
    (tmp_path / "kept elsewhere").rename(late)
    drop(pipeline, "items", plan=False)
    assert take(pipeline).error_code is None
    assert offsets(pipeline) == [0, 5, 7, 10, 20]


def test_records_sent_again_across_files_and_runs_get_a_floor(pipeline: Pipeline, tmp_path: Path) -> None:
    def committed(offset: int, item: int, order: int) -> dict[str, Any]:
        return record(offset, item, sequence=f'["{order}","{order}"]', ts_us=order)

    land(tmp_path, 0, [committed(i, i, 100 + i) for i in range(10)])
    land(tmp_path, 10, [committed(10 + i, i, 105 + i) for i in range(8)], "json.gz")
    land(tmp_path, 18, [committed(18, 3, 104), tombstone(19), committed(20, 3, 101)])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["resent"]) == (14, 6)
    assert [(c.floor, c.rows) for c in state_of(pipeline).change_sets] == [(None, 10), ((109, 109), 4)]
    assert offsets(pipeline) == [*range(10), 14, 15, 16, 17]
    land(tmp_path, 30, [committed(30, 1, 111), committed(31, 1, 112)])
    assert take(pipeline).facts["resent"] == 1
    assert state_of(pipeline).positions[0].stream.max_order == (112, 112)


def test_positions_that_begin_anew_stop_the_log_whatever_is_done_with_bad_records(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """In one file, in files of one run, and after what the ledger has: never taken for sent again in silence."""
    land(tmp_path, 0, [record(0, order=500), record(1, order=10, ts_us=600_000)])
    outcome = take(pipeline)
    assert (outcome.error_code, outcome.facts["refused"]) == ("TABLE_EVENT", {"ORDER_RESTART": 1})
    assert "line 2" in outcome.message
    assert not pipeline.ledger("items").exists()
    land(tmp_path, 0, [record(0, order=500)])
    land(tmp_path, 1, [record(1, order=10, ts_us=600_000)])
    assert take(pipeline).error_code == "TABLE_EVENT"
    assert not pipeline.ledger("items").exists()
    land(tmp_path, 1, [record(1, order=501)])
    assert take(pipeline).status == "taken"
    land(tmp_path, 2, [record(2, order=10, ts_us=600_000)])
    before = store_files(tmp_path)
    assert take(pipeline).error_code == "TABLE_EVENT"
    assert store_files(tmp_path) == before


def test_on_bad_record_fail_appends_nothing_and_leaves_the_state_as_before(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path, policy="fail")
    land(tmp_path, 0, [record(0), record(1, op="U"), "{bad", record(3)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("error", "BAD_RECORDS")
    assert "1 BROKEN_JSON, 1 OP_UNKNOWN" in outcome.message
    assert f"the first is line 2 of `{TOPIC}+0+0000000000.jsonl` (OP_UNKNOWN:" in outcome.message
    assert outcome.facts["refused"] == {"BROKEN_JSON": 1, "OP_UNKNOWN": 1}
    assert not store_files(tmp_path)
    land(tmp_path, 0, [record(0), record(3)])
    assert take(pipeline).status == "taken"
    land(tmp_path, 4, [record(4, after=None)])
    before = store_files(tmp_path)
    assert take(pipeline).error_code == "BAD_RECORDS"
    assert store_files(tmp_path) == before


def test_quarantine_says_file_line_offset_reason_and_the_record(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0), "", record(2, op="U"), b"\xff" * 9000])
    take(pipeline)
    first, second = quarantined(pipeline)
    assert first["file"] == f"{TOPIC}+0+0000000000.jsonl"
    assert (first["line"], first["offset"], first["reason"]) == (3, 2, "OP_UNKNOWN")
    assert json.loads(first["record"])["offset"] == 2
    assert (second["line"], second["offset"], second["reason"]) == (4, None, "NOT_UTF8")
    assert second["record"] == "\\xff" * 8192
    [entry] = state_of(pipeline).landed
    assert entry.quarantine is not None
    assert entry.quarantine.startswith("logs/items/quarantine/")


def test_a_changed_shape_is_refused_before_anything_is_read(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0)])
    take(pipeline)
    changed = make_landing(tmp_path, columns="{id: string, text: string}")
    land(tmp_path, 1, [record(1)])
    before = store_files(tmp_path)
    assert take(changed).error_code == "SHAPE_CHANGED"
    assert find_pending(changed, ["items"]) == []
    assert store_files(tmp_path) == before


def test_a_failing_log_does_not_stop_the_others(pipeline: Pipeline, tmp_path: Path) -> None:
    log = pipeline.config.logs["items"]
    assert log.source
    missing = log.model_copy(update={"source": log.source.model_copy(update={"path": "no"})})
    missing.place("missing", tmp_path)
    both = pipeline.config.model_copy(update={"logs": {"missing": missing, "items": log}})
    land(tmp_path, 0, [record(0)])
    outcomes = ingest(replace(pipeline, config=both), ["missing", "items", "unknown"], in_process)
    assert [(o.status, o.error_code) for o in outcomes] == [
        ("error", "LANDING_MISSING"),
        ("taken", None),
        ("error", "LOG_NOT_CONFIGURED"),
    ]


def test_a_task_that_fails_leaves_its_log_as_it_was(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0)])

    def failing(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        return [StorageError("STORAGE", "The disk is full.") for _ in tasks]

    [outcome] = ingest(pipeline, ["items"], failing)
    assert (outcome.status, outcome.error_code) == ("error", "STORAGE")
    assert not pipeline.ledger("items").exists()


def test_foreign_files_are_named_on_every_run_and_hold_nothing_up(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0)])
    land(tmp_path, 0, [record(0)], name="notes.txt")
    land(tmp_path, 0, [record(0)], name="other.topic+0+{start:010d}.{extension}")
    outcome = take(pipeline)
    assert (outcome.status, [p["code"] for p in outcome.facts["problems"]]) == ("taken", ["FOREIGN_FILE"] * 2)
    assert find_pending(pipeline, ["items"]) == []
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == ("incomplete", "FOREIGN_FILE")
    assert "notes.txt" in outcome.message
    assert "other.topic" in outcome.message


def test_other_bytes_of_the_same_length_are_an_error_and_a_touch_is_not(pipeline: Pipeline, tmp_path: Path) -> None:
    file = land(tmp_path, 0, [record(0, 1)])
    take(pipeline)
    before = state_of(pipeline)
    os.utime(file, (1, 1))
    assert take(pipeline).status == "nothing"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"t1000"', b'"x1000"'))
    land(tmp_path, 1, [record(1, 2)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code, outcome.facts["changes"]) == ("incomplete", "LANDED_CHANGED", 1)
    assert take(pipeline).error_code == "LANDED_CHANGED"
    file.write_bytes(whole)
    assert take(pipeline).status == "nothing"
    assert state_of(pipeline).landed[0] == before.landed[0]
