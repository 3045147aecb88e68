"""What lies in a landing folder and is not taken is shown until somebody deals with it (I30)."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from support import timed_rows
from support.landing import ingest_items, land, make_landing, record, store_files
from support.landing_rows import FOLDER, land_text, make_rows_landing
from support.pipelines import contents, publish
from tidefold.domain.landing_problems import LISTED, LandingProblem
from tidefold.operations.doctor.landed_sample import find_misfits
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.log_status import LogStatus
from tidefold.operations.inspect.status import status
from tidefold.operations.quarantine.inspect import show_refused
from tidefold.presentation.remarks import remarks
from tidefold.wiring import open_pipeline

HEAD = "id,text,seq\n"
ZIPPED = b"\x1f\x8b no csv\n"


def shown(pipeline: Pipeline) -> LogStatus:
    [found] = status(pipeline, ["items"])
    return found


def listed(pipeline: Pipeline) -> dict[str, LandingProblem]:
    return {problem.file: problem for problem in shown(pipeline).landing.listed}


def codes(pipeline: Pipeline) -> dict[str, str]:
    return {name: problem.code for name, problem in listed(pipeline).items()}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_rows_landing(tmp_path)


def test_what_was_not_taken_is_in_the_status_until_it_is_dealt_with(pipeline: Pipeline, tmp_path: Path) -> None:
    """A file that could not be taken was in the line of one ingest, exit code 0, and the status silent for ever."""
    land_text(tmp_path, "good.csv", HEAD + "1,a,1\n")
    bad = land_text(tmp_path, "bad.csv", ZIPPED)
    readme = land_text(tmp_path, "readme.txt", "x")
    land_text(tmp_path, "torn.csv", HEAD + "1,t,1\n2,b")
    land_text(tmp_path, "empty.csv", "")
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code) == ("taken", None)
    assert outcome.facts["not_taken"] == {"FOREIGN_FILE": 1, "LANDED_FORMAT": 1, "LANDED_WAITING": 2}
    assert codes(pipeline) == {
        "bad.csv": "LANDED_FORMAT",
        "empty.csv": "LANDED_WAITING",
        "readme.txt": "FOREIGN_FILE",
        "torn.csv": "LANDED_WAITING",
    }
    assert "2 files still being written: `empty.csv`, `torn.csv`" in outcome.message
    lines = "\n".join(remarks([shown(pipeline)]))
    assert "items: [LANDED_FORMAT]" in lines
    assert "items: [LANDED_WAITING] `empty.csv` is empty." in lines
    assert "items: [LANDED_WAITING] `torn.csv` does not end with a complete record." in lines
    bad.write_text(HEAD + "7,a,1\n")
    readme.unlink()
    land_text(tmp_path, "torn.csv", HEAD + "1,t,1\n2,b,2\n")
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code, outcome.facts["changes"]) == ("taken", None, 2)
    assert codes(pipeline) == {"empty.csv": "LANDED_WAITING"}
    # An empty file holds no record: it never makes a run fail.
    assert ingest_items(pipeline).error_code is None


def test_the_next_step_of_a_torn_file_does_not_end_half_a_line(pipeline: Pipeline, tmp_path: Path) -> None:
    """The first advice was a line end. Behind half a line it made a refused record, and the copy LANDED_CHANGED."""
    torn = land_text(tmp_path, "torn.csv", HEAD + "1,t,1\n2,b")
    ingest_items(pipeline)
    error = ingest_items(pipeline).error
    assert error is not None
    assert error.code == "LANDED_WAITING"
    assert "the last line is whole" in error.hint.partition("line end")[0]
    # The whole file came under another name: the torn one waits for ever, until a person removes it.
    land_text(tmp_path, "whole.csv", HEAD + "1,t,1\n2,b,2\n")
    ingest_items(pipeline)
    error = ingest_items(pipeline).error
    assert error is not None
    assert "under another name, remove this file" in error.hint
    torn.unlink()
    assert (ingest_items(pipeline).error, codes(pipeline)) == (None, {})


def test_a_file_without_a_column_is_an_error_at_once_and_stays_in_the_status(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    land_text(tmp_path, "good.csv", HEAD + "1,a,1\n")
    land_text(tmp_path, "short.csv", "id,text\n1,a\n")
    assert ingest_items(pipeline).error_code == "LANDED_SCHEMA"
    assert codes(pipeline) == {"short.csv": "LANDED_SCHEMA"}


def test_files_that_are_refused_for_other_reasons_have_lines_of_their_own(pipeline: Pipeline, tmp_path: Path) -> None:
    land_text(tmp_path, "a-1.csv", "id,text,seq,coupon\n1,a,1,x\n")
    land_text(tmp_path, "a-2.csv", "id;text;seq\n2,b,2\n")
    land_text(tmp_path, "a-3.csv", "id,text,seq,coupon\n3,c,3,y\n")
    outcome = ingest_items(pipeline)
    assert outcome.error_code == "LANDED_SCHEMA"
    assert "coupon" in outcome.message
    assert outcome.message.count("`a-2.csv` has one column") == 1
    assert 'Set `delimiter: ";"` under `source`' in outcome.message
    first, second = (line for line in remarks([shown(pipeline)]) if "[LANDED_SCHEMA]" in line)
    assert "The same holds for `a-3.csv`. " in first
    assert "`ignored: [coupon]`" in first
    assert "`a-2.csv` has one column" in second
    assert "The same holds" not in second


def test_refused_rows_are_listed_by_place_and_the_first_is_named(pipeline: Pipeline, tmp_path: Path) -> None:
    land_text(tmp_path, "a.csv", HEAD + "1,a,1\n2,b,2,more\nz,c,3\n4,d,4\n")
    [misfit] = find_misfits(pipeline.config)
    assert "a run would refuse 2 of 4 records of `a.csv`. The first is number 2: [FIELD_COUNT]" in misfit.message
    ingest_items(pipeline)
    assert [one.line for one in show_refused(pipeline, "items", None, 5)[0]] == [2, 3]
    assert [one.line for one in show_refused(pipeline, "items", None, 1)[0]] == [2]


def test_a_sample_has_only_what_the_next_run_would_read(pipeline: Pipeline, tmp_path: Path) -> None:
    """Fault: validate and doctor warned for ever of refused rows of files that were ingested or settled."""
    grows = land_text(tmp_path, "a.csv", HEAD + "1,a,1\nz,c,3\n")
    assert len(find_misfits(pipeline.config)) == 1
    ingest_items(pipeline)
    assert find_misfits(pipeline.config) == []
    land_text(tmp_path, "b.csv", HEAD + "y,b,2\n")
    grows.write_text(HEAD + "1,a,1\nz,c,3\n4,d,4\nx,e,5\n")
    refused = {misfit.message.partition(". The")[0] for misfit in find_misfits(pipeline.config, local=True)}
    told = ("1 of 2 records of `a.csv`", "1 of 1 record of `b.csv`")
    assert refused == {f"a run would refuse {one}" for one in told}
    ingest_items(pipeline)
    assert find_misfits(pipeline.config, local=True) == []
    grows.write_text(HEAD + "1,a,1\n")
    assert ingest_items(pipeline).error_code == "LANDED_CHANGED"


def test_a_copy_names_the_file_that_was_ingested_before(pipeline: Pipeline, tmp_path: Path) -> None:
    land_text(tmp_path, "a.csv", HEAD + "1,a,1\n")
    land_text(tmp_path, "b.csv", HEAD + "2,a,1\n")
    ingest_items(pipeline)
    land_text(tmp_path, "c.csv", HEAD + "2,a,1\n")
    assert "`c.csv` has the bytes of `b.csv`, which was ingested before" in ingest_items(pipeline).message


def test_a_file_that_stays_makes_the_second_run_fail_and_holds_up_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    bad = land_text(tmp_path, "bad.csv", ZIPPED)
    land_text(tmp_path, "a.csv", HEAD + "1,a,1\n")
    assert ingest_items(pipeline).error_code is None
    since = listed(pipeline)["bad.csv"].since
    land_text(tmp_path, "b.csv", HEAD + "2,a,1\n")
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code, outcome.error.exit_code) == ("incomplete", "LANDED_FORMAT", 2)
    assert outcome.facts["changes"] == 1, "what can be taken is taken all the same"
    assert f"since {since}" in outcome.message
    assert "took 1 file" in outcome.message
    assert outcome.message.count("The content of `bad.csv`") == 1
    # Edited, it is another one: that is seen again, and given one run.
    bad.write_bytes(ZIPPED + b"other\n")
    land_text(tmp_path, "c.csv", HEAD + "3,a,1\n")
    assert ingest_items(pipeline).error_code is None


@pytest.mark.parametrize(
    ("policy", "first", "second"), [("fail", "FOREIGN_FILE", "FOREIGN_FILE"), ("warn", None, None)]
)
def test_the_policy_says_when_a_file_makes_a_run_fail(
    tmp_path: Path, policy: str, first: str | None, second: str | None
) -> None:
    pipeline = make_rows_landing(tmp_path, more=f"order: [seq]\n    on_bad_file: {policy}")
    land_text(tmp_path, "a.csv", HEAD + "1,a,1\n")
    land_text(tmp_path, "readme.txt", "x")
    assert ingest_items(pipeline).error_code == first
    assert ingest_items(pipeline).error_code == second
    assert codes(pipeline) == {"readme.txt": "FOREIGN_FILE"}


@pytest.mark.parametrize("news", [False, True], ids=["alone", "beside news"])
def test_an_edited_file_fails_each_run(tmp_path: Path, news: bool) -> None:
    """Beside a new file the first run exited 0; with an edit before each run, so did all of them."""
    pipeline = make_rows_landing(tmp_path)
    edited = land_text(tmp_path, "a0.csv", HEAD + "1,a,1\n")
    ingest_items(pipeline)
    for number in (1, 2):
        edited.write_text(HEAD + f"1,b{number},1\n")
        os.utime(edited, (number, number))
        if news:
            land_text(tmp_path, f"a{number}.csv", HEAD + f"2,a,{number}\n")
        outcome = ingest_items(pipeline)
        assert (outcome.status, outcome.error_code) == ("incomplete" if news else "error", "LANDED_CHANGED")
        assert outcome.error.exit_code == 2
    pipeline = make_rows_landing(tmp_path, more="order: [seq]\n    on_bad_file: warn")
    land_text(tmp_path, "a9.csv", HEAD + "9,a,1\n")
    assert (ingest_items(pipeline).error_code, codes(pipeline)) == (None, {"a0.csv": "LANDED_CHANGED"})


def test_a_late_file_fails_the_run_beside_news_of_another_partition(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 5, [record(5, 1)])
    ingest_items(pipeline)
    land(tmp_path, 0, [record(0, 2)])
    land(tmp_path, 0, [record(0, 3)], name="{topic}+1+{start:010d}.{extension}")
    for number in range(LISTED + 1):
        land(tmp_path, 0, [], name=f"readme-{number}.txt")
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code, outcome.facts["files"]) == ("incomplete", "LANDED_LATE", 1)


def test_an_idle_log_writes_nothing_and_a_log_that_took_nothing_says_why(pipeline: Pipeline, tmp_path: Path) -> None:
    land_text(tmp_path, "readme.txt", "x")
    assert ingest_items(pipeline).error_code == "FOREIGN_FILE"  # At once: no file of the folder can be read.
    assert codes(pipeline) == {"readme.txt": "FOREIGN_FILE"}
    before = store_files(tmp_path)
    assert ingest_items(pipeline).error_code == "FOREIGN_FILE"
    assert store_files(tmp_path) == before
    (tmp_path / FOLDER / "readme.txt").unlink()
    assert ingest_items(pipeline).status == "nothing"
    assert codes(pipeline) == {}


def test_all_rows_of_a_file_refused_is_not_taken(tmp_path: Path) -> None:
    """620 of 620 rows quarantined were `taken`, exit code 0, `next: tidefold step materialize`."""
    pipeline = make_rows_landing(tmp_path)
    land_text(tmp_path, "a.csv", HEAD + "x,a,1\ny,b,2\n")
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code) == ("incomplete", "LANDED_REFUSED")
    assert "refused 1 file: 0 changes" in outcome.message
    assert "All 2 records of" in outcome.message
    assert codes(pipeline) == {"a.csv": "LANDED_REFUSED"}
    assert ingest_items(pipeline).error_code == "LANDED_REFUSED"


def test_a_run_that_takes_nothing_new_is_not_taken_either(tmp_path: Path) -> None:
    """The log had data: a day of which every record was refused ended with 0. Landed values of Debezium, too."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1)])
    assert ingest_items(pipeline).error_code is None
    land(tmp_path, 1, [record(1, "x")])
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code) == ("incomplete", "LANDED_REFUSED")
    land(tmp_path, 2, [record(2, 2)])
    assert ingest_items(pipeline).error_code is None, "other records were taken"


def test_a_packed_file_that_is_cut_off_is_landed_again_as_a_whole(pipeline: Pipeline, tmp_path: Path) -> None:
    """A person cannot end the last line of a gzip file with a line end."""
    land_text(tmp_path, "a.csv.gz", gzip.compress(HEAD.encode() + b"1,a,1\n" * 9)[:-9])
    ingest_items(pipeline)
    problem = listed(pipeline)["a.csv.gz"]
    assert (problem.code, "its gzip data ends early" in problem.message) == ("LANDED_WAITING", True)
    assert "land the whole file again" in problem.hint


@pytest.mark.parametrize("grown", [False, True], ids=["ignored lines beside them", "a file that grew"])
def test_a_run_whose_new_records_are_all_refused_or_no_change_fails(grown: bool, tmp_path: Path) -> None:
    """Three refused rows between two ignored ones, or behind rows that were taken before, ended with exit code 0."""
    pipeline = make_rows_landing(tmp_path, source="csv, op: {column: op, ignore: [note]}")
    head, refused = "op,id,text,seq\n", "note,,,\nI,x,a,3\nI,y,b,4\nnote,,,\n"
    land_text(tmp_path, "a.csv", head + "I,1,a,1\n")
    assert ingest_items(pipeline).status == "taken"
    land_text(tmp_path, "a.csv" if grown else "b.csv", head + ("I,1,a,1\n" if grown else "") + refused)
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code) == ("incomplete", "LANDED_REFUSED"), outcome.message
    assert f"All 2 {'new ' if grown else ''}records" in outcome.message
    assert outcome.error is not None
    assert "tidefold quarantine" in outcome.error.hint


def test_a_file_that_brings_nothing_and_one_that_cannot_be_compared_are_shown(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    old = land(tmp_path, 0, [record(0, 1, "r"), record(1, 2)])
    ingest_items(pipeline)
    land(tmp_path, 0, [record(0, 1, "r")], "json")
    outcome = ingest_items(pipeline)
    assert "[LANDED_NOTHING_NEW]" in outcome.message
    assert f"were ingested before from `{old.name}`, and" in outcome.message
    assert codes(pipeline) == {"shop.public.items+0+0000000000.json": "LANDED_NOTHING_NEW"}
    old.unlink()
    land(tmp_path, 1, [record(1, 2)], "json.gz")
    assert "[LANDED_UNPROVED]" in ingest_items(pipeline).message
    assert codes(pipeline)["shop.public.items+0+0000000001.json.gz"] == "LANDED_UNPROVED"
    # Warnings: they make no run fail, and are there as long as the files.
    assert ingest_items(pipeline).message == "nothing new"
    assert len(codes(pipeline)) == 2
    for path in (tmp_path / "landing/shop.public.items").iterdir():
        path.unlink()
    ingest_items(pipeline)
    assert codes(pipeline) == {}


def test_very_many_files_are_counted_and_the_first_are_named(pipeline: Pipeline, tmp_path: Path) -> None:
    for number in range(LISTED + 30):
        land_text(tmp_path, f"{number:03d}.txt", "x")
    ingest_items(pipeline)
    found = shown(pipeline).landing
    assert (found.counts, found.total, len(found.listed)) == ((("FOREIGN_FILE", LISTED + 30),), LISTED + 30, LISTED)


def test_a_run_of_everything_publishes_what_was_taken_and_exits_with_the_error(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from tidefold.cli.app import app

    make_rows_landing(tmp_path, more="order: [seq]\n    on_bad_file: fail")
    path = tmp_path / "tidefold.yaml"
    land_text(tmp_path, "a.csv", HEAD + "1,a,1\n")
    land_text(tmp_path, "readme.txt", "x")
    path.write_text(path.read_text().replace("store: store\n", "store: store\nspark: {above: 64MB}\n"))
    found = CliRunner().invoke(app, ["step", "ingest", "--config", str(path)])
    assert found.exit_code == 2, found.output
    assert "FOREIGN_FILE" in found.output
    assert [e.name for e in open_pipeline(path).ledger("items").read().landed] == ["a.csv"]


def test_no_landed_file_is_skipped_and_a_failed_try_moves_nothing(tmp_path: Path) -> None:
    """apache/hudi#2850, #7249 (files older than the newest one are skipped, nobody lists what was read),
    airbytehq/airbyte#12821 (a failed attempt moved the cursor).
    """
    pipeline = timed_rows.opened(tmp_path, f"{timed_rows.BY_TIME}\n    on_bad_record: fail")
    newest = timed_rows.land(tmp_path, 0, [timed_rows.put(0, 0, "a")])
    os.utime(newest, (2_000_000_000, 2_000_000_000))
    timed_rows.take(pipeline)
    before = contents(tmp_path / "store")
    old = timed_rows.land(tmp_path, 10, [timed_rows.put(1, 1, "b")])
    bad = timed_rows.land(tmp_path, 20, [timed_rows.put(2, 2, "c"), "{not json}"])
    timed_rows.land(tmp_path, 30, [timed_rows.put(3, 3, "d")])
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert timed_rows.take(pipeline).error_code == "BAD_RECORDS"
    assert contents(tmp_path / "store") == before
    timed_rows.land(tmp_path, 20, [timed_rows.put(2, 2, "c")])
    assert (timed_rows.take(pipeline).facts["files"], bad.exists()) == (3, True)
    state = pipeline.ledger(timed_rows.LOG).read()
    assert [entry.name for entry in state.landed] == [f"items+0+{n:010d}.jsonl" for n in (0, 10, 20, 30)]
    assert [entry.changes for entry in state.landed] == [1, 1, 1, 1]
    timed_rows.publish(pipeline, "run-1")
    assert len(timed_rows.rows(pipeline)) == 4


def test_a_stream_that_begins_without_a_snapshot_is_named_until_rows_of_one_come(tmp_path: Path) -> None:
    """The connector ran with `no_data`, or the topic forgot its beginning: only what changed was there, in silence."""
    pipeline, name = make_landing(tmp_path), "shop.public.items+0+0000000007.jsonl"
    land(tmp_path, 7, [record(7, 1, "u"), record(8, 2)])
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code) == ("taken", None)
    assert "[SOURCE_SNAPSHOT_MISSING]" in outcome.message
    assert "offset 7" in outcome.message
    assert "tidefold source load items" in listed(pipeline)[name].hint
    land(tmp_path, 9, [record(9, 1, "u")])
    assert ingest_items(pipeline).error_code is None
    assert codes(pipeline) == {name: "SOURCE_SNAPSHOT_MISSING"}
    land(tmp_path, 10, [record(10, 3, "r", snapshot="incremental")])
    assert "SOURCE_SNAPSHOT_MISSING" not in ingest_items(pipeline).message
    assert codes(pipeline) == {}
    # Later changes need no rows before them.
    land(tmp_path, 11, [record(11, 3, "u")])
    ingest_items(pipeline)
    assert codes(pipeline) == {}


def test_a_stream_without_a_snapshot_is_not_named_behind_the_first_published_table(tmp_path: Path) -> None:
    """Fault: it was named for ever, and raised an alarm, also of a table that was empty when its stream began."""
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0, 1)])
    assert "[SOURCE_SNAPSHOT_MISSING]" in ingest_items(pipeline).message
    assert codes(pipeline)
    publish(pipeline, "run-1", "items")
    assert (shown(pipeline).landing.counts, codes(pipeline)) == ((), {})
    before = pipeline.ledger("items").read()
    assert ingest_items(pipeline).status == "nothing"
    assert pipeline.ledger("items").read() == before
    land(tmp_path, 1, [record(1, 2)])
    assert "SOURCE_SNAPSHOT_MISSING" not in ingest_items(pipeline).message
    assert codes(pipeline) == {}
