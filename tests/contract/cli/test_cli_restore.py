"""restore with --dry-run and --to, what a restore says of what it read, and drill: as people and programs see them.

Requirements L6, L8.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import tidefold
from support.commands import attempt as call
from support.commands import call_json
from support.loaded_modules import run_and_find_loaded
from support.pipelines import contents, judge_all, rows_of, table_rows
from support.restoring import LOG, SECOND, THIRD, Bench, bench, configured, copy_of, files_of, flip, spoil
from tidefold.cli.output.outcomes import BucketLine, read_lines
from tidefold.operations.ground.outcome import Details
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.snapshot_details import FailedRead, FilesRead, ReadDetails, ReadSources

PROJECT = Path(tidefold.__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("cli-restore"), configured(), only_copy=2)


@pytest.fixture
def pipeline(made: Bench, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    found = made.reset()
    monkeypatch.chdir(made.work)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    return found


def test_a_restore_says_what_was_read_and_what_could_not_be(pipeline: Pipeline) -> None:
    """L6: nobody notices a fall back but by the report."""
    files = sorted(files_of(pipeline, 2), key=lambda f: f.key_groups)
    for file in files[:2]:
        flip(copy_of(pipeline, 2) / "_data" / file.name)
    spoil(pipeline, 2, "missing", {files[0].name})
    done = call("restore", LOG, "2", "--log-position", "replay")
    assert done.exit_code == 0
    said = done.stdout.splitlines()
    assert said[0].startswith("accounts: staged: snapshot 4: ")
    assert said[1].startswith("  accounts: read: 2 files (")
    assert ") from local copies, 3 files (" in said[1]
    assert said[1].endswith(") from the store, 1 bucket made from snapshot 1 and the log after it")
    tries = sorted(line for line in said if "not usable" in line)
    # Four of files of snapshot 2; what snapshot 1 needs is looked for near by as well.
    assert len(tries) == 6
    first = f"  accounts: not usable: local:accounts/0000000002/_data/{files[0].name}: altered (0.0"
    assert [line for line in tries if first in line]
    judge_all(pipeline)
    assert call("step", "confirm", LOG).exit_code == 0
    assert table_rows(pipeline) == SECOND


def test_many_failed_tries_are_not_all_printed() -> None:
    failed = [FailedRead(file=f"f{i}", place=f"local:f{i}", why="missing", seconds=0.0) for i in range(50)]
    nothing = FilesRead(files=0, bytes=0, seconds=0.0)
    read = ReadSources(local=nothing, store=nothing, external=nothing, failed=failed, older={})
    lines = list(read_lines(ReadDetails(read=read)))
    assert len(lines) == 22
    assert lines[-1] == "and 30 more; --format json lists them all"
    assert list(read_lines(ReadDetails())) == list(read_lines(Details())) == []


def test_json_has_every_file_with_its_place(pipeline: Pipeline) -> None:
    [outcome] = call_json("restore", LOG, "2", "--log-position", "skip")["outcomes"]
    assert set(outcome["facts"]["read"]["sources"].values()) == {
        f"local:accounts/0000000002/_data/{f.name}" for f in files_of(pipeline, 2)
    }


def test_explain_prints_the_plan_and_changes_nothing(pipeline: Pipeline, made: Bench) -> None:
    [file, *_] = sorted(files_of(pipeline, 2), key=lambda f: f.key_groups)
    (copy_of(pipeline, 2) / "_data" / file.name).unlink()
    before = contents(made.work)
    replay = ("restore", LOG, "2", "--log-position", "replay", "--dry-run")
    done = call(*replay, "--limit", "1")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    would = f"would restore snapshot 2 as 4: {len(SECOND)} rows in 4 buckets"
    assert lines[0] == f"accounts: planned: {would}; folded again by the next run: change set 3"
    assert lines[1] == "  accounts: key groups 0 to 3:"
    assert lines[2].startswith(f"  accounts:   {file.name}, ")
    assert lines[3] == f"  accounts:     local:accounts/0000000002/_data/{file.name}: missing"
    assert lines[4].startswith(f"  accounts:     store:tables/accounts/_data/{file.name}: there, ")
    assert lines[6].startswith("  accounts:   else snapshot 1 and the change set 2, ")
    assert done.stdout.count("key groups") == 1
    short = call(*replay).stdout.splitlines()
    assert short == [lines[0], *lines[-3:]], "no list of files unless somebody asks"
    assert re.fullmatch(
        r"  accounts: would read: 3 files \([\d.]+ kB\) from local copies, 1 file \([\d.]+ k?B\) from the store",
        short[1],
    )
    assert short[2] == f"  accounts: would write to: {pipeline.store.address}/snapshots/accounts/0000000004"
    assert short[3] == "  accounts: --limit 4 lists the files of 4 buckets"
    assert "lists the files" not in call(*replay, "--limit", "4").stdout
    said = call_json(*replay)
    assert len(said["outcomes"][0]["facts"]["buckets"]) == 4
    refused = call("restore", LOG, "9", "--log-position", "replay", "--dry-run")
    assert (refused.exit_code, "[SNAPSHOT_UNKNOWN]" in refused.stderr) == (4, True)
    assert contents(made.work) == before
    spoil(pipeline, 2, "missing", {file.name})
    [line] = [line for line in call(*replay).stdout.splitlines() if "would read" in line]
    assert re.search(r"3 files .* local copies, other sources for 1 file \(\d+ B\) without a whole copy$", line)


def test_to_another_place(pipeline: Pipeline, tmp_path: Path) -> None:
    to = tmp_path / "to"
    done = call("move", "export", LOG, "2", "--to", str(to))
    assert done.exit_code == 0
    assert done.stdout.startswith(f"accounts: exported: snapshot 2: {len(SECOND)} rows in 4 files at {to}")
    assert "next:" not in done.stderr
    assert rows_of(str(to)) == SECOND
    again = call("move", "export", LOG, "2", "--to", str(to))
    assert (again.exit_code, "[PLACE_TAKEN]" in again.stderr) == (3, True)
    [part] = call_json("move", "export", LOG, "2", "--to", str(tmp_path / "part"), "--key-groups", "0-7")["outcomes"]
    assert part["facts"]["key_groups"] == [0, 7, 16]
    assert set(rows_of(str(tmp_path / "part"))) < set(SECOND)
    assert table_rows(pipeline) == THIRD


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("restore", "LOG_POSITION_MISSING"),
        ("restore --dry-run", "LOG_POSITION_MISSING"),
        ("move export --to x --key-groups all", "KEY_GROUPS_INVALID"),
        ("move export --to x --key-groups 5-1", "KEY_GROUPS_INVALID"),
        ("move export --to x --key-groups 0-99999", "KEY_GROUPS_INVALID"),
        ("move export --to x --key-groups 0-1 --share 1/2", "SHARE_OPTIONS"),
        ("move export --to ftp://x/y", "ADDRESS_SCHEME"),
        ("move export --to store/x", "ADDRESS_TAKEN"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(
    pipeline: Pipeline, made: Bench, arguments: str, code: str
) -> None:
    before = contents(made.work)
    done = call(*arguments.split(), LOG, "2")
    assert (done.exit_code, f"[{code}]" in done.stderr) == (2, True), done.stderr
    assert "next: " in done.stderr
    assert contents(made.work) == before


def test_drill_passes_and_is_shown(pipeline: Pipeline, made: Bench) -> None:
    done = call("check", "drill", LOG)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"accounts: passed: snapshot 3: {len(THIRD)} rows restored and checked in ")
    assert "accounts: read: 4 files (" in done.stdout
    text = call("snapshot", "history", LOG).stdout
    assert "3: run run-3; drill of 20" in text
    assert ": restored in " in text
    assert "accounts: snapshot 3: drill of 20" in call("status", LOG).stdout
    drill = call_json("snapshot", "history", LOG)["snapshots"][0]["drill"]
    assert (drill["passed"], drill["bytes_local"]) == (True, 0)
    assert call_json("status", LOG)["logs"][0]["drilled"]["drill"] == drill


def test_drill_fails_with_the_code_of_damage(pipeline: Pipeline, tmp_path: Path) -> None:
    shutil.rmtree(copy_of(pipeline, 2))
    for snapshot in (1, 2, 3):
        spoil(pipeline, snapshot, "missing")
    done = call("check", "drill", LOG, "3", "--scratch", str(tmp_path / "scratch"))
    assert done.exit_code == 5
    assert "error accounts: snapshot 3 cannot be restored as it was: NO_GOOD_COPY: " in done.stderr
    assert not list((tmp_path / "scratch").iterdir())
    assert ": FAILED" in call("snapshot", "history", LOG).stdout
    unknown = call("check", "drill", LOG, "9")
    assert (unknown.exit_code, "[SNAPSHOT_UNKNOWN]" in unknown.stderr) == (4, True)


def test_a_long_restore_says_how_far_it_is() -> None:
    seconds = iter([0.0, 1.0, 6.0, 6.0, 7.0])
    said: list[str] = []
    line = BucketLine(said.append, clock=lambda: next(seconds))
    for done in (1, 2, 3):
        line("accounts", done, 1000)
    assert said == ["accounts: 2 of 1,000 buckets done"]


def test_none_of_them_loads_spark(pipeline: Pipeline, made: Bench) -> None:
    light = [
        ["check", "drill", LOG],
        ["restore", LOG, "2", "--log-position", "replay", "--dry-run"],
        ["move", "export", LOG, "2", "--to", "../to"],
    ]
    assert run_and_find_loaded(light) == [(0, ())] * len(light)
