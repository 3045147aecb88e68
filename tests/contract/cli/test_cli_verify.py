"""verify and diff as commands: what they print where, and their exit codes. Promise I23."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import tidefold
from support.commands import attempt as call
from support.commands import call_json
from support.loaded_modules import run_and_find_loaded
from support.pipelines import judge_all, make_pipeline, put
from tidefold.cli.output.outcomes import ProgressLine
from tidefold.compute.runners import in_process
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize

PROJECT = Path(tidefold.__file__).resolve().parents[2]


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Snapshot 2, with one row changed, one added and one gone, is published."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    made = make_pipeline(tmp_path)
    for number, changes in enumerate(
        ([{"id": i, "text": "a"} for i in range(20)], [{"id": 1, "text": "b"}, {"id": 30}, {"id": 2, "_op": 1}])
    ):
        put(made, changes)
        materialize(made, ["accounts"], Fold(f"run-{number}"), in_process)
        judge_all(made)
        confirm(made, "accounts")
    return made


def test_a_whole_log_is_one_line_and_a_log_without_data_too(pipeline: Pipeline) -> None:
    done = call("check", "verify")
    assert done.exit_code == 0
    whole, nothing = done.stdout.splitlines()
    assert re.fullmatch(
        r"accounts: whole: nothing is damaged in \d+ files \(\d+ copies\)(; \d+ files have only one copy)?", whole
    )
    assert nothing == "tellers: nothing: the store has no such log"


def data_file(folder: str) -> Path:
    return sorted(Path(folder).iterdir())[-1]


def test_damage_is_named_with_its_next_step_and_ends_with_5(pipeline: Pipeline) -> None:
    gone = data_file("store/snapshots/accounts/0000000002/_data")
    gone.unlink()
    path = str(gone.relative_to("store"))
    beside = f"tables/accounts/_data/{gone.name}"
    found = call("check", "verify", "accounts", "--quick")
    assert found.exit_code == 5
    assert found.stderr.startswith("error accounts: 1 damaged copy of ")
    first, good, hint = found.stdout.splitlines()
    assert first == f"  accounts: snapshot 2: data file missing: {path}"
    assert good.startswith("    good: ")
    assert hint == "    next: `tidefold check verify accounts --repair` repairs it from another copy."
    said = call_json("check", "verify", "accounts")
    [damage] = said["outcomes"][0]["facts"]["damage"]
    assert (said["exit_code"], said["outcomes"][0]["error"], damage["paths"]) == (5, "DAMAGED", [path])
    done = call("check", "verify", "accounts", "--repair")
    assert done.exit_code == 0
    assert "accounts: repaired: repaired 1 damaged copy of " in done.stdout
    assert "    repaired from " in done.stdout
    assert gone.samefile(Path("store", beside))
    assert call("check", "verify").exit_code == 0


def test_what_cannot_be_repaired_says_why_and_lists_all_names_of_the_file(pipeline: Pipeline) -> None:
    bad = data_file("store/tables/accounts/_data")
    bad.write_bytes(b"?" * bad.stat().st_size)
    assert call("check", "verify", "accounts", "--quick").exit_code == 0
    found = call("check", "verify", "accounts", "--repair")
    assert found.exit_code == 5
    lines = found.stdout.splitlines()
    assert f"    the same file: {bad.relative_to('store')}" in lines
    assert "    not repaired: no copy of the file is proved to be intact" in lines
    assert any(line.startswith("    next: ") for line in lines)


def test_a_table_that_shows_nothing_is_named_before_its_files(pipeline: Pipeline) -> None:
    shutil.rmtree("store/tables/accounts")
    found = call("check", "verify", "accounts", "--quick").stdout.splitlines()
    assert found[0] == "  accounts: snapshot 2: published table missing: tables/accounts/_delta_log"
    assert "rebuild accounts --table" in found[1] + found[2]
    assert len(found) > 3


def test_one_snapshot_must_be_kept(pipeline: Pipeline) -> None:
    assert call("check", "verify", "accounts", "--snapshot", "2").exit_code == 0
    assert call("check", "verify", "accounts", "--snapshot", "9").exit_code == 4


def test_progress_is_a_line_every_five_seconds() -> None:
    now, said = [0.0], []
    line = ProgressLine(said.append, lambda: now[0])
    for second, done in ((4.9, 1), (5.0, 2_000_000), (6.0, 3_000_000), (10.1, 4_000_000)):
        now[0] = second
        line("data files", done, 4_000_000)
    assert said == ["data files: 2.0 MB of 4.0 MB read", "data files: 4.0 MB of 4.0 MB read"]


def test_diff_counts_and_shows(pipeline: Pipeline) -> None:
    done = call("snapshot", "diff", "accounts", "1", "2")
    assert done.exit_code == 0
    assert done.stdout.startswith("accounts: 1 added, 1 changed, 1 removed from snapshot 1 to 2; ")
    assert "changed id=1 text=a -> b" in " ".join(done.stdout.split())
    said = call_json("snapshot", "diff", "accounts", "1", "2", "--limit", "2")
    assert (said["added"], said["changed"], said["removed"], said["more"]) == (1, 1, 1, True)
    assert 0 < said["files_read"] < said["files"] * 2
    rows = {row["key"]["id"]: row for row in call_json("snapshot", "diff", "accounts", "1", "2")["rows"]}
    assert rows[1] == {
        "change": "changed", "key": {"id": 1}, "before": {"id": 1, "text": "a"}, "after": {"id": 1, "text": "b"},
    }  # fmt: skip
    assert (rows[30]["before"], rows[2]["after"]) == (None, None)
    assert (
        call("snapshot", "diff", "accounts", "1", "2", "--limit", "1").stderr == "the first row; --limit shows more\n"
    )


def test_diff_shows_null_as_null(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": None}])
    materialize(pipeline, ["accounts"], Fold("run-2"), in_process)
    assert "changed id=1 text=b -> null" in " ".join(call("snapshot", "diff", "accounts", "2", "3").stdout.split())


def test_diff_of_keys_alone(pipeline: Pipeline) -> None:
    assert call_json("snapshot", "diff", "accounts", "2", "1", "--keys")["rows"][0].keys() == {"change", "key"}
    assert "text" not in call("snapshot", "diff", "accounts", "2", "1", "--keys").stdout
    assert call("snapshot", "diff", "accounts", "1", "1").stdout == (
        "accounts: 0 added, 0 changed, 0 removed from snapshot 1 to 1; 0 of 4 files read, 0 B\n"
    )
    assert call("snapshot", "diff", "accounts", "1", "9").exit_code == 4


def test_neither_loads_spark(pipeline: Pipeline) -> None:
    assert run_and_find_loaded([["check", "verify"], ["snapshot", "diff", "accounts", "1", "2"]]) == [(0, ())] * 2
