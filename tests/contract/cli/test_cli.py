"""The command line: what it prints where, its exit codes, and that looking and deciding need no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path

import pytest

import tidefold
from support.arrival import Landing
from support.commands import attempt as call
from support.commands import call_json
from support.lives import CONFIG, PUBLISHED, abort, claim, confirm, judge, live, make_pipeline, publish, stage, take
from support.loaded_modules import SPARK, run_and_find_loaded
from tidefold.cli import spark_submit
from tidefold.cli.app import _FIRST, _GROUPS, main
from tidefold.cli.spark_submit import require_java
from tidefold.cli.terminal import Format, Terminal
from tidefold.domain.log_state import Snapshot
from tidefold.domain.snapshot.transitions import override
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.quality.report.result import ValidationResult
from tidefold.quality.report.verdict_store import store_judgement
from tidefold.spark.request import make_argument
from tidefold.spark.submit import Command

PROJECT = Path(tidefold.__file__).resolve().parents[2]
FAILED = (take, claim("run-2"), stage, judge(False))


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    return make_pipeline(tmp_path, CONFIG.replace("store: store\n", "store: store\nspark: {above: 0B}\n"))


def test_validate_lists_the_logs_and_warns_of_missing_folders(pipeline: Pipeline) -> None:
    done = call("validate")
    assert done.exit_code == 0
    assert "tidefold.yaml is valid." in done.stdout
    assert "The store was not asked whether its logs fit this file: `tidefold validate --online` does." in done.stdout
    assert "landing/accounts does not exist yet" in done.stderr
    said = call_json("validate")
    assert (said["valid"], said["logs"], len(said["warnings"])) == (True, ["accounts", "tellers"], 2)


def test_numbers_that_json_does_not_have_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(Path("tidefold.yaml"), Format.JSON, debug=False)
    terminal.json({"rows": [{"a": float("nan"), "b": [float("inf"), -float("inf"), 1.5]}]})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "rows": [{"a": "NaN", "b": ["Infinity", "-Infinity", 1.5]}]
    }


def test_validate_prints_the_json_schema_without_a_configuration(tmp_path: Path) -> None:
    assert (
        json.loads(call("validate", "--schema", "-c", str(tmp_path / "none")).stdout)["additionalProperties"] is False
    )


def test_validate_finds_what_is_wrong_with_suite_files(pipeline: Pipeline, tmp_path: Path) -> None:
    text = (tmp_path / "tidefold.yaml").read_text()
    (tmp_path / "tidefold.yaml").write_text(f"{text}    quality:\n      suite: none.yaml\n")
    failed = call("validate")
    assert failed.exit_code == 2
    assert f"tidefold.yaml:{text.count(chr(10)) + 2}: `logs.tellers.quality.suite`" in failed.stderr
    (tmp_path / "none.yaml").write_text("expectations:\n- type: expect_column_to_exist\n  kwargz: {}\n")
    stderr = call("validate").stderr
    assert "none.yaml:3: `expectations[0].kwargz` is not a known key." in stderr
    assert "Did you mean `kwargs`?" in stderr


def test_validate_knows_the_columns_of_other_logs_that_a_suite_refers_to(pipeline: Pipeline, tmp_path: Path) -> None:
    text = (tmp_path / "tidefold.yaml").read_text()
    (tmp_path / "tidefold.yaml").write_text(f"{text}    quality: {{suite: own.yaml}}\n")
    suite = tmp_path / "own.yaml"
    suite.write_text("checks:\n- references: {column: id, to: accounts.id}\n")
    assert call("validate").exit_code == 0
    suite.write_text("checks:\n- references: {column: id, to: accounts.idd}\n")
    failed = call("validate")
    assert failed.exit_code == 2
    where = "own.yaml:2: `checks[0].references.to` names column `idd`, which log `accounts` does not have."
    assert where in failed.stderr
    assert "Did you mean `id`?" in failed.stderr


def test_an_audit_of_nothing_completed_says_so_and_starts_no_spark(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_submit, "submit_command", None)
    done = call("step", "quality", "--again", "accounts")
    assert (done.exit_code, done.stdout) == (0, "accounts: nothing: no completed snapshot to audit\n")


def test_errors_have_code_sentence_and_hint_on_stderr(pipeline: Pipeline) -> None:
    failed = call("status", "acounts")
    assert failed.exit_code == 4
    assert failed.stdout == ""
    assert failed.stderr.startswith("error [LOG_NOT_CONFIGURED] ")
    assert "\nnext: Configured logs: accounts, tellers." in failed.stderr


def test_errors_are_one_json_object_too(pipeline: Pipeline) -> None:
    said = call_json("snapshot", "history", "tellers")
    assert said["error"]["code"] == "LOG_UNKNOWN"
    assert said["error"]["hint"] == "`tidefold step ingest tellers` starts it."


def test_a_code_is_explained_without_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    told = call_json("explain", "[landed_changed]")
    assert (told["code"], told["family"], told["next"].split()[:2]) == ("LANDED_CHANGED", "landed", ["Put", "back"])
    assert call("explain", "VALUE_INVALID").stdout.startswith("VALUE_INVALID (quarantine): ")
    unknown = call("explain", "LANDED_CHANGE")
    assert (unknown.exit_code, "Did you mean LANDED_CHANGED" in unknown.stderr) == (4, True)
    # None of tidefold's is like it.
    assert "A source of your own has codes of its own" in call("explain", "REC_COUNT").stderr


def test_only_debug_shows_a_traceback(pipeline: Pipeline) -> None:
    assert "Traceback" not in call("snapshot", "history", "tellers").stderr
    assert "Traceback" in call("snapshot", "history", "tellers", "--debug").stderr


def test_the_configuration_comes_from_the_option_or_the_environment(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    missing = call("status")
    assert missing.exit_code == 4
    assert "CONFIG_NOT_FOUND" in missing.stderr
    assert call("status", "-c", "../tidefold.yaml").exit_code == 0
    monkeypatch.setenv("TIDEFOLD_CONFIG", str(tmp_path / "tidefold.yaml"))
    assert call("status").exit_code == 0


def test_status_says_in_one_line_why_a_snapshot_did_not_get_through(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED, *FAILED)
    done = call("status")
    assert done.exit_code == 0
    assert "accounts: snapshot 2 failed its quality gate: 1 of 1 checks." in done.stdout.splitlines()
    # These snapshots have no table, and a line with a next step is longer.
    lines = [line for line in done.stdout.splitlines() if "rebuild accounts" not in line]
    assert max(len(line) for line in lines) <= 100
    assert len(lines) == len(done.stdout.splitlines()) - 1
    accounts, tellers = call_json("status")["logs"]
    assert (accounts["latest"]["id"], accounts["attempt"]["id"], accounts["changes"]) == (1, 2, 10)
    assert tellers["begun"] is False


def test_status_says_who_let_the_published_snapshot_through(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED, *FAILED, lambda s: override(s, 2, "ada", "a known gap"), confirm, publish)
    said = "accounts: snapshot 2, let through by ada (a known gap), failed its quality gate: 1 of 1 checks."
    assert said in call("status").stdout.splitlines()
    live(pipeline, take, claim("run-3"), stage, judge(True), confirm, publish)
    assert "let through" not in call("status").stdout


def test_a_damaged_ledger_shows_and_sets_the_exit_code(pipeline: Pipeline, tmp_path: Path) -> None:
    live(pipeline, take)
    newest = max((tmp_path / "store/logs/accounts/ledger").iterdir())
    newest.write_bytes(b"{")
    done = call("status")
    assert done.exit_code == 5
    assert "accounts: [UNREADABLE]" in done.stdout
    assert "tellers: not begun" in done.stdout


def test_history_fits_its_width_and_gives_reasons(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED, *FAILED, abort, claim("run-3"))
    text = call("snapshot", "history", "accounts").stdout
    assert max(len(line) for line in text.splitlines()) <= 100
    rows = [line.split() for line in text.splitlines()]
    assert [row[:2] for row in rows if {"COMPLETED", "ABORTED", "ONGOING"} & set(row[:2])] == [
        ["3", "ONGOING"],
        ["2", "ABORTED"],
        ["1", "COMPLETED"],
    ]
    assert "by hand" in text
    assert [s["id"] for s in call_json("snapshot", "history", "accounts")["snapshots"]] == [3, 2, 1]


def test_report_prints_the_address_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    live(pipeline, *PUBLISHED, *FAILED)
    assert call("snapshot", "report", "accounts").stdout == f"{tmp_path}/store/logs/accounts/quality/2.html\n"
    assert call_json("snapshot", "report", "accounts", "--snapshot", "1")["passed"] is True
    assert call("snapshot", "report", "accounts", "--snapshot", "9").exit_code == 4


def test_confirm_is_refused_with_the_gates_words(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED, *FAILED)
    refused = call("step", "confirm", "accounts")
    assert refused.exit_code == 3
    assert "error [GATE_FAILED] Snapshot 2 of `accounts` failed its quality gate: 1 of 1 checks." in refused.stderr
    unnamed = call("step", "confirm", "accounts", "--override-by", "ada")
    assert (unnamed.exit_code, "[OVERRIDE_UNNAMED]" in unnamed.stderr) == (2, True)


def test_abort_undoes_the_open_attempt_once(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED, *FAILED)
    first = call("step", "abort", "accounts", "--reason", "wrong suite")
    assert first.exit_code == 0
    assert first.stdout.startswith("accounts: aborted: snapshot 2 aborted (wrong suite)")
    again = call_json("step", "abort", "accounts")
    assert again["outcomes"][0]["result"] == "nothing"
    refused = call("step", "abort", "accounts", "--snapshot", "1")
    assert (refused.exit_code, "WRONG_STATE" in refused.stderr) == (3, True)


def test_what_landed_names_cannot_command_the_terminal(pipeline: Pipeline) -> None:
    live(pipeline, take, claim("run-1"))
    call("step", "abort", "accounts", "--reason", "\x1b[2Jgone")
    for verb in (["status"], ["snapshot", "history", "accounts"]):
        assert "\x1b" not in call(*verb).stdout


@pytest.mark.parametrize("verb", ["materialize", "quality"])
def test_nothing_to_do_starts_nothing(verb: str, pipeline: Pipeline, tmp_path: Path) -> None:
    said = call_json("step", verb)
    assert [o["result"] for o in said["outcomes"]] == ["nothing", "nothing"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tidefold.yaml"]


def test_a_run_id_is_checked(pipeline: Pipeline) -> None:
    text = call("step", "materialize", "--run", "bad run; rm")
    assert (text.exit_code, "RUN_INVALID" in text.stderr) == (2, True)


def job(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """A small program in place of spark-submit; it finds the request in its first argument."""
    monkeypatch.setattr(spark_submit, "require_java", lambda: None)
    monkeypatch.setattr(
        spark_submit,
        "submit_command",
        lambda config, request: Command((sys.executable, "-c", program, make_argument(request)), {}),
    )


def test_a_job_that_dies_shows_the_end_of_its_output(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    live(pipeline, take)
    job(monkeypatch, "print('\\n'.join(f'line {i}' for i in range(100))); raise SystemExit(9)")
    failed = call("step", "materialize", "accounts")
    assert failed.exit_code == 1
    assert "[JOB_DIED] The Spark job of materialize ended with code 9" in failed.stderr
    assert "line 99" in failed.stderr
    assert "line 79" not in failed.stderr


def test_the_outcomes_that_a_job_wrote_are_printed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    live(pipeline, take)
    job(
        monkeypatch,
        "import json, os, sys; r = json.loads(sys.argv[1]); "
        "o = {'log': 'accounts', 'status': 'staged', 'message': r['step']['request']['run'], 'snapshot': 1}; "
        "o |= {'error': None, 'details': {}}; "
        "open(r['result'] + '.part', 'w').write(json.dumps([{'outcome': o}])); "
        "os.replace(r['result'] + '.part', r['result'])",
    )
    said = call_json("step", "materialize", "--run", "manual__2026-01-01T00:00:00+00:00")
    assert [(o["log"], o["result"], o["message"]) for o in said["outcomes"]] == [
        ("accounts", "staged", "manual__2026-01-01T00:00:00+00:00"),
        ("tellers", "nothing", "nothing was ingested yet"),
    ]


def test_progress_is_lines_and_what_ends_the_command_ends_the_job(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    live(pipeline, take)
    pid = tmp_path / "pid"
    job(monkeypatch, f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(3600)")
    monkeypatch.setattr(spark_submit, "_PROGRESS_SECONDS", 0.3)
    noted = spark_submit.Terminal.note
    notes: list[str] = []
    stopping: list[str] = []

    def note(self: spark_submit.Terminal, text: str) -> None:
        notes.append(text)
        noted(self, text)
        if text.startswith("materialize: running") and pid.exists() and not stopping:
            stopping.append(text)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(spark_submit.Terminal, "note", note)
    stopped = call("step", "materialize", "accounts")
    assert stopped.exit_code == 130
    assert any(line.startswith("materialize: running, ") for line in notes)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


QUICK = [
    ["--help"],
    ["validate"],
    ["status"],
    ["snapshot", "history", "accounts"],
    ["snapshot", "report", "accounts"],
    ["step", "confirm", "accounts"],
    ["step", "abort", "accounts"],
]


def test_looking_and_deciding_load_no_spark(pipeline: Pipeline) -> None:
    live(pipeline, *PUBLISHED, take, claim("run-2"))
    found = run_and_find_loaded(QUICK, (*SPARK, "pandas"))
    # Nothing is staged, so there is nothing to confirm.
    assert found == [(3 if "confirm" in command else 0, ()) for command in QUICK]


def test_the_launcher_works_from_any_folder(pipeline: Pipeline, tmp_path: Path) -> None:
    live(pipeline, *PUBLISHED, *FAILED)
    done = subprocess.run(
        [sys.executable, "-m", "tidefold.cli", "status", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "include")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["logs"][0]["latest"]["id"] == 1


def test_run_aborts_what_failed_and_goes_on_with_the_others(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job claims the snapshot, as the real one does, and dies: the next run must not find the log held."""
    (tmp_path / "landing/accounts").mkdir(parents=True)
    (tmp_path / "landing/tellers").mkdir(parents=True)
    live(pipeline, take, claim("run-7"))
    job(monkeypatch, "raise SystemExit(9)")
    failed = call("run", "--run", "run-7", "--format", "json")
    assert failed.exit_code == 1
    steps = {
        name: [(o["log"], o["result"]) for o in found] for name, found in json.loads(failed.stdout)["steps"].items()
    }
    assert steps == {
        "ingest": [("accounts", "nothing"), ("tellers", "nothing")],
        "materialize": [("accounts", "error"), ("tellers", "nothing")],
        "quality": [("tellers", "nothing")],
        "confirm": [("tellers", "nothing")],
        "abort": [("accounts", "aborted")],
    }
    assert json.loads(call("status", "accounts", "--format", "json").stdout)["logs"][0]["attempt"] is None


def judgement(snapshot: Snapshot) -> ValidationResult:
    """A failed one, as the quality job stores it beside the ledger."""
    verdict = snapshot.verdict
    assert verdict
    return ValidationResult(
        log="accounts", snapshot=snapshot.id, run=snapshot.run, manifest=verdict.manifest, suite=verdict.suite,
        passed=False, summary=verdict.summary, checks=(), rows=1, base=None, base_rows=None, files=1, files_carried=0,
        bytes_full=1, bytes_written=1, seconds=0.1, instant="2026-01-01",
    )  # fmt: skip


def test_a_run_that_failed_at_its_gate_fails_again_without_spark(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "landing/accounts").mkdir(parents=True)
    staged = live(pipeline, *FAILED).open_attempt
    assert staged
    store_judgement(pipeline.store, judgement(staged))
    failed = call("run", "accounts", "--run", "run-2", "--format", "json")
    assert failed.exit_code == 3
    steps = {name: found[0]["result"] for name, found in json.loads(failed.stdout)["steps"].items() if found}
    # What this run has staged goes on where it is.
    assert steps == {"quality": "failed", "abort": "aborted"}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "JAVA_TOO_OLD"),
        ('java version "1.8.0_292"', "JAVA_TOO_OLD"),
        ("?", "JAVA_TOO_OLD"),
    ],
)
def test_a_java_that_is_too_old_is_said_at_once(
    said: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidInputError) as refused:
        require_java()
    assert refused.value.code == code


def test_a_missing_java_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError) as refused:
        require_java()
    assert refused.value.code == "JAVA_MISSING"
    assert "apt install" in refused.value.hint


@pytest.mark.parametrize("version", ["17.0.1", "21.0.2", "25"])
def test_a_java_that_is_new_enough_passes(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    require_java()


def test_report_prints_samples_of_the_checks_that_did_not_pass(tmp_path: Path) -> None:
    log = "key: [id]\norder: [at]\ncolumns: {id: int, total: int, at: long}\nquality: {suite: suite.yaml}"
    landing = Landing.make(tmp_path, {"a": log}, source="format: csv")
    (tmp_path / "suite.yaml").write_text("checks: [{range: {column: total, min: 0}}]\n")
    landing.land("1.csv", "id,total,at\n1,1,1\n2,-5,1\n")
    landing.call("run", code=3)
    done = landing.call("snapshot", "report", "a")
    assert done.stderr == "fail: total at least 0: 1 unexpected value, such as id=2: -5\n"
    [check] = json.loads(landing.call("snapshot", "report", "a", "--format", "json").stdout)["checks"]
    assert (check["name"], check["keys"], check["sample"]) == ("total at least 0", ["id=2"], ["-5"])


def test_help_says_which_commands_act_on_all_logs() -> None:
    """Those whose logs need not be named, and no other."""
    shown = " ".join(str(main.__doc__).split())
    listed, _, rest = shown.partition("These act on all logs if you name none: ")[2].partition(
        ", and all of retain but "
    )
    named = {
        *listed.split(", "),
        *(f"retain {word}" for word in _GROUPS["retain"].split() if not rest.startswith(word)),
    }
    places = {name: (module, name) for module, name in (place.split(".") for place in _FIRST.split())}
    places |= {f"{group} {name}": (group, name) for group, names in _GROUPS.items() for name in names.split()}
    acts = {
        path: getattr(import_module(f"tidefold.cli.commands.{module}"), name) for path, (module, name) in places.items()
    }
    all_of_them = {
        path.replace("_", "-").rstrip("-")
        for path, act in acts.items()
        if (logs := signature(act).parameters.get("logs")) and logs.default is not Parameter.empty
    }
    assert named == all_of_them
