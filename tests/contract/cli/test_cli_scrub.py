"""verify with --share as a command: what it prints where, its exit codes, and what `status` shows of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.commands import attempt as call
from support.commands import call_json
from support.pipelines import judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.domain.verify.proof_record import ProofRecord, ReaderProof
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import status as read_status
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.presentation.tables import proof_lines


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """One published snapshot of `accounts`; `tellers` was never begun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": "a"} for i in range(20)])
    materialize(made, ["accounts"], Fold("run-1"), in_process)
    judge_all(made)
    confirm(made, "accounts")
    return made


def test_shares_add_up_until_the_round_ends(pipeline: Pipeline) -> None:
    first = call("check", "verify", "accounts", "--share", "1B")
    assert first.exit_code == 0
    assert "accounts: whole: read 1 of " in first.stdout
    assert "the round has read" in first.stdout
    [outcome] = call_json("check", "verify", "accounts", "--share", "100%")["outcomes"]
    assert (outcome["facts"]["round_ended"], outcome["facts"]["alarms"]) == (True, [])
    assert (
        call("check", "verify", "--share", "5%").stdout.splitlines()[-1]
        == "tellers: nothing: the store has no such log"
    )


def test_damage_that_is_left_is_an_alarm_with_exit_code_5(pipeline: Pipeline) -> None:
    [segment] = [p for p in Path("store/changelog").rglob("*") if p.is_file() and "intents" not in str(p)]
    segment.unlink()
    found = call("check", "verify", "--share", "5%", "accounts")
    assert found.exit_code == 5
    assert "error accounts: ALARM, segment missing: changelog/" in found.stderr
    assert "It means: " in found.stderr
    assert "next: " in found.stdout
    answer = call_json("check", "verify", "--share", "5%", "accounts")
    assert answer["exit_code"] == 5
    [alarm] = answer["outcomes"][0]["facts"]["alarms"]
    assert sorted(alarm) == ["command", "file", "harm", "means"]


@pytest.mark.parametrize(
    "wrong",
    [["0%"], ["x"], ["0B"], ["5%", "--quick"], ["5%", "--snapshot", "1"], ["5%", "--spark"]],
)
def test_a_wrong_bound_is_refused_before_anything_is_read(pipeline: Pipeline, wrong: list[str]) -> None:
    found = call("check", "verify", "--share", *wrong)
    assert found.exit_code == 2
    assert "[SCRUB_SHARE_INVALID]" in found.stderr


def test_status_shows_when_a_log_was_proved_and_drilled_and_marks_what_is_old(pipeline: Pipeline) -> None:
    first = call("status", "accounts").stdout
    assert "accounts: files never proved; `tidefold check verify accounts`." in first
    assert "accounts: restore never drilled; `tidefold check drill accounts`." in first
    call("check", "verify", "accounts", "--share", "1B")
    assert "files not all proved yet, the round since then has read " in call("status", "accounts").stdout
    call("check", "verify", "accounts")
    call("check", "drill", "accounts")
    lines = call("status", "accounts").stdout.splitlines()
    [proved] = [line for line in lines if "files proved" in line]
    [drilled] = [line for line in lines if "drill of" in line]
    assert proved.endswith("(verify).")
    assert "OLD" not in proved + drilled
    [found] = call_json("status", "accounts")["logs"]
    assert (found["proof"]["by"], found["proof"]["share"], found["proof"]["damaged"]) == ("verify", 1.0, [])
    [status] = read_status(pipeline, ["accounts"], proofs=True)
    later = (datetime.now(UTC) + timedelta(days=36)).isoformat()
    marked = list(proof_lines(status, later))
    assert [" OLD: `tidefold" in line for line in marked] == [True, True]
    # Only readers on Spark proved the log so far: no round has read its files.
    read_back = replace(status, proof=ProofRecord(readers=ReaderProof(1, later)))
    assert next(proof_lines(read_back, later)) == "accounts: files not all proved yet."
    assert read_status(pipeline, ["accounts"])[0].proof is None


def test_status_names_damage_that_a_scrub_found(pipeline: Pipeline) -> None:
    [segment] = [p for p in Path("store/changelog").rglob("*") if p.is_file() and "intents" not in str(p)]
    segment.unlink()
    call("check", "verify", "--share", "5%", "accounts")
    assert "accounts: 1 damaged file at the proof of " in call("status", "accounts").stdout


def test_an_unreadable_ledger_is_an_error_in_the_same_form_as_of_other_commands(pipeline: Pipeline) -> None:
    folder = pipeline.config.path.parent / "store" / "logs" / "accounts" / "ledger"
    max(folder.glob("*.json")).write_text("{")
    [found] = call_json("status", "accounts")["logs"]
    [outcome] = call_json("retain", "truncate", "accounts")["outcomes"]
    assert found["error"].keys() == outcome.keys()
    assert (found["error"]["result"], found["error"]["error"]) == ("error", outcome["error"])
    assert found["error"]["facts"] == {"exit_code": 5}
