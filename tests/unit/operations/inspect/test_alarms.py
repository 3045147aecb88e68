"""Each alarm of a log is raised beyond its threshold, and not before; the record of failed runs counts and resets."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from support.lives import PUBLISHED, live, make_pipeline, take
from tidefold.cli.app import app
from tidefold.config import load_config
from tidefold.domain.alarms import (
    AlarmKind,
    AlarmRecord,
    AlarmThresholds,
    LogAlarm,
    RunFailure,
    find_unsent,
    record_run,
    record_sent,
)
from tidefold.domain.commit_times import CommitTimeRange
from tidefold.domain.landing_problems import LandingProblem, list_problems
from tidefold.domain.log_state import Drill, Snapshot, SnapshotKind, State, Stopped, Verdict
from tidefold.domain.verify.proof_record import ProofRecord
from tidefold.domain.wording import format_age
from tidefold.errors import InvalidInputError, StorageError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.inspect.alarms import find_alarm_record, find_alarms, write_alarm_record
from tidefold.operations.inspect.log_status import LogStatus
from tidefold.operations.inspect.run_alarms import find_run_alarms
from tidefold.operations.inspect.status import status
from tidefold.presentation.remarks import remarks
from tidefold.wiring import open_pipeline

NOW = datetime(2026, 11, 5, 12, tzinfo=UTC)
EVERY = AlarmThresholds(lag=3600, silence=86_400, files=3600, drill=86_400, growth=10, failures=2)


def ago(**span: float) -> str:
    return (NOW - timedelta(**span)).isoformat()


def micros(**span: float) -> int:
    return int((NOW - timedelta(**span)).timestamp() * 1_000_000)


LATEST = Snapshot(
    3, 3, "run-3", "", SnapshotKind.FULL, State.COMPLETED, 2, 0, 9, ago(minutes=30), table_version=2,
    published_at=ago(minutes=30), max_commit_time=micros(minutes=31), bytes_full=200_000_000,
)  # fmt: skip
DRILLED = replace(LATEST, drill=Drill(ago(hours=2), 1.0, 1, 0, passed=True))
GOOD = LogStatus("accounts", begun=True, latest=LATEST, drilled=DRILLED, first_started=ago(days=90))
REFUSED = replace(LATEST, id=4, state=State.STAGED, verdict=Verdict(False, "s", "m", "r.html", "1 of 2 checks failed"))


def problem(since: str) -> LandingProblem:
    return LandingProblem("a.jsonl", "FILE_UNSAFE", "`a.jsonl` is a link.", "Land the file itself.", since)


# What is just allowed, and what is too much.
CASES: dict[str, tuple[AlarmKind, LogStatus, LogStatus]] = {
    "lag": (
        AlarmKind.LAG,
        replace(GOOD, changes=5, waiting=CommitTimeRange(micros(minutes=59), micros(minutes=1))),
        replace(GOOD, changes=5, waiting=CommitTimeRange(micros(minutes=61), micros(minutes=1))),
    ),
    "lag without commit times": (
        AlarmKind.LAG,
        replace(GOOD, changes=5),
        replace(GOOD, changes=5, latest=replace(LATEST, published_at=ago(hours=2))),
    ),
    "silence": (
        AlarmKind.SILENCE,
        replace(GOOD, latest=replace(LATEST, max_commit_time=micros(hours=23))),
        replace(GOOD, latest=replace(LATEST, max_commit_time=micros(hours=25))),
    ),
    "files": (
        AlarmKind.FILES,
        replace(GOOD, landing=list_problems([problem(ago(minutes=59))])),
        replace(GOOD, landing=list_problems([problem(ago(minutes=5)), problem(ago(minutes=61))])),
    ),
    "drill": (
        AlarmKind.DRILL,
        replace(GOOD, drilled=replace(LATEST, drill=Drill(ago(hours=23), 1.0, 1, 0, passed=True))),
        replace(GOOD, drilled=replace(LATEST, drill=Drill(ago(hours=25), 1.0, 1, 0, passed=True))),
    ),
    "no drill": (
        AlarmKind.DRILL,
        replace(GOOD, drilled=None, first_started=ago(hours=23)),
        replace(GOOD, drilled=None, first_started=ago(hours=25)),
    ),
    "failed drill": (
        AlarmKind.DRILL,
        GOOD,
        replace(GOOD, drilled=replace(LATEST, drill=Drill(ago(hours=1), 1.0, 1, 0, passed=False))),
    ),
    "growth": (
        AlarmKind.GROWTH,
        replace(GOOD, stored_bytes=2_000_000_000),
        replace(GOOD, stored_bytes=2_000_000_001),
    ),
    "failures": (
        AlarmKind.FAILURES,
        replace(GOOD, runs=AlarmRecord(5, "r", failures=2, since=ago(hours=1), error="[STORAGE] no answer")),
        replace(GOOD, runs=AlarmRecord(5, "r", failures=3, since=ago(hours=1), error="[STORAGE] no answer")),
    ),
    "gate": (
        AlarmKind.GATE,
        replace(GOOD, attempt=replace(REFUSED, verdict=replace(REFUSED.verdict, passed=True))),  # type: ignore[type-var]
        replace(GOOD, attempt=REFUSED, why="snapshot 4 failed its quality gate: 1 of 2 checks", report="r.html"),
    ),
    "aborted after its gate": (
        AlarmKind.GATE,
        replace(GOOD, why="snapshot 4 was aborted: by ann"),
        replace(GOOD, why="snapshot 4 failed its quality gate: 1 of 2 checks failed", report="r.html"),
    ),
    "damage": (
        AlarmKind.DAMAGE,
        replace(GOOD, proof=ProofRecord(1, ago(hours=1), "scrub")),
        replace(GOOD, proof=ProofRecord(1, ago(hours=1), "scrub", damaged=("a",))),
    ),
    "unreadable": (
        AlarmKind.UNREADABLE,
        GOOD,
        LogStatus("accounts", True, error=Outcome.of_error("accounts", StorageError("STORAGE", "no.", hint="Again."))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_is_raised_beyond_its_threshold_alone(case: str) -> None:
    kind, allowed, too_much = CASES[case]
    assert find_alarms(allowed, EVERY, NOW.isoformat()) == []
    [alarm] = find_alarms(too_much, EVERY, NOW.isoformat())
    assert (alarm.log, alarm.kind) == ("accounts", kind)
    assert alarm.message.endswith((".", "no answer"))
    assert alarm.hint.endswith(".")


@pytest.mark.parametrize("case", CASES)
def test_what_has_a_threshold_can_be_switched_off(case: str) -> None:
    off = AlarmThresholds(None, None, None, None, None, None)
    kind, _, too_much = CASES[case]
    left = [alarm.kind for alarm in find_alarms(too_much, off, NOW.isoformat())]
    without = (AlarmKind.DAMAGE, AlarmKind.GATE, AlarmKind.UNREADABLE)
    assert left == ([kind] if kind in without or case == "failed drill" else [])


def test_a_log_that_was_not_begun_raises_failed_runs_alone() -> None:
    runs = AlarmRecord(3, "r", failures=3, since=ago(hours=1), error="the landing folder does not exist")
    [alarm] = find_alarms(LogStatus("accounts", begun=False, runs=runs), EVERY, NOW.isoformat())
    assert alarm.message == "3 runs failed in a row, since 2026-11-05 11:00 UTC: the landing folder does not exist."


def test_commit_times_that_no_calendar_has_raise_nothing() -> None:
    odd = replace(GOOD, changes=1, waiting=CommitTimeRange(-(2**62), 2**62))
    assert find_alarms(odd, EVERY, NOW.isoformat()) == []


@pytest.mark.parametrize(
    ("seconds", "said"), [(59, "59 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_ages_have_the_largest_unit_of_which_there_are_two(seconds: float, said: str) -> None:
    assert format_age(seconds) == said


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_failures_are_counted_in_a_row_and_a_repeated_run_once(runs: list[tuple[int, bool]]) -> None:
    """Against the plain list of what each run came to, where a run that follows itself replaces its result."""
    record, results = AlarmRecord(), list[tuple[str, bool]]()
    first = ""
    for i, (run, fails) in enumerate(runs):
        record = record_run(record, str(run), RunFailure("no") if fails else None, f"t{i}")
        # A run that fails again, and was the first that failed, failed at its first time.
        first = (first or f"t{i}") if fails else ""
        if results and results[-1][0] == str(run):
            results.pop()
        results.append((str(run), fails))
        expected = 0
        for _, failed in reversed(results):
            if not failed:
                break
            expected += 1
        # After a success of the same run the count began again.
        assert record.failures <= expected
        assert (record.failures > 0) == fails
        assert (record.since, bool(record.error)) == (first, fails)


def test_who_was_told_is_told_again_only_after_it_was_over() -> None:
    def alarm(kind: AlarmKind) -> LogAlarm:
        return LogAlarm("accounts", kind, "m.", "h.")

    both = [alarm(AlarmKind.LAG), alarm(AlarmKind.GATE)]
    record = record_sent(AlarmRecord(), both[:1])
    assert find_unsent(record, both) == both[1:]
    record = record_sent(record, both)
    assert find_unsent(record, both) == []
    assert find_unsent(record_sent(record, []), both) == both


def test_the_record_is_kept_in_the_store_and_a_damaged_one_begins_again(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    store = pipeline.store
    assert find_alarm_record(store, "accounts") is None
    first = record_run(AlarmRecord(), "run-1", RunFailure("no", "CODE"), "t")
    write_alarm_record(store, "accounts", replace(first, number=1))
    write_alarm_record(store, "accounts", replace(first, number=2, failures=2))
    assert [e.path for e in store.list("logs/accounts/alarms")] == ["logs/accounts/alarms/0000000002.json"]
    found = find_alarm_record(store, "accounts")
    assert found == AlarmRecord(2, "run-1", 2, "t", "no", code="CODE")
    (tmp_path / "store/logs/accounts/alarms/0000000002.json").write_text("{")
    assert find_alarm_record(store, "accounts") == AlarmRecord(2)


def test_a_run_is_not_counted_in_a_store_of_a_newer_program(tmp_path: Path) -> None:
    """Airflow's tasks return codes, the command line texts: the code decides."""
    pipeline, code = make_pipeline(tmp_path), "STORE_NEWER"
    find_run_alarms(pipeline, "run-1", ["accounts"], {"accounts": RunFailure(f"ingest: {code}", code)})
    assert find_alarm_record(pipeline.store, "accounts") is None
    find_run_alarms(pipeline, "run-1", ["accounts"], {"accounts": RunFailure(f"ingest: no {code}", "STORAGE")})
    found = find_alarm_record(pipeline.store, "accounts")
    assert found is not None
    assert (found.failures, found.code) == (1, "STORAGE")


@pytest.mark.parametrize("text", ["confirm: [UNAVAILABLE_VALUE] one row", "confirm: UNAVAILABLE_VALUE"])
def test_what_the_snapshot_says_is_not_said_again_of_its_run(text: str) -> None:
    assert GOOD.latest is not None
    latest = replace(GOOD.latest, unresolved=1, unresolved_keys=('{"key": {"id": 1}, "columns": ["v"]}',))
    runs = AlarmRecord(1, "run", 1, ago(hours=1), text, code="UNAVAILABLE_VALUE")
    assert not any("newest run failed" in line for line in remarks([replace(GOOD, latest=latest, runs=runs)]))
    other = replace(runs, code="STORAGE")
    assert any("newest run failed" in line for line in remarks([replace(GOOD, latest=latest, runs=other)]))


def test_a_failed_run_is_not_told_beside_or_after_what_it_met() -> None:
    """ATTEMPT_OPEN stayed after `step confirm` had published, and a landed file was told twice."""
    runs = AlarmRecord(1, "run", 1, ago(hours=1), "ingest: told", code="FILE_UNSAFE")
    landed = replace(GOOD, landing=list_problems([problem(ago(minutes=5))]), runs=runs)
    for one in (landed, replace(GOOD, runs=replace(runs, code="ATTEMPT_OPEN"))):
        assert not any("newest run failed" in line for line in remarks([one]))
    more = replace(runs, error=f"ingest: told (1 more, see `tidefold status {GOOD.log}`)")
    [said] = [line for line in remarks([replace(GOOD, runs=more)]) if "newest run failed" in line]
    assert "UTC: ingest: told `tidefold run" in said


def test_the_next_step_of_a_failed_run_of_a_stopped_log_begins_with_resume() -> None:
    """`restore --log-position stay` stopped the log; the advised `run` then said only that it is stopped."""
    runs = AlarmRecord(1, "run", 1, ago(hours=1), "quality: failed", code="QUALITY_FAILED")
    stopped = replace(GOOD, runs=runs, stopped=Stopped("run", "ann", "restore", "", ""))
    [said] = [line for line in remarks([stopped]) if "newest run failed" in line]
    assert said.endswith(f"first `tidefold move resume {GOOD.log}`, then `tidefold run {GOOD.log}` has the next step.")


def configure(folder: Path, alarms: str, own: str = "") -> Path:
    make_pipeline(folder)
    path = folder / "tidefold.yaml"
    text = path.read_text().replace("version: 1\n", f"version: 1\n{alarms}\n", 1)
    path.write_text(text.replace("  accounts:\n", f"  accounts:\n{own}", 1))
    return path


def test_without_alarms_in_the_configuration_there_are_none(tmp_path: Path) -> None:
    config = load_config(configure(tmp_path, "", "    alarms: {failures: 0, lag: 90m, drill: never}\n"))
    assert config.alarms_of("tellers") is None
    assert config.alarms_of("accounts") == AlarmThresholds(failures=0, lag=5400, drill=None)


def test_a_log_overrides_single_thresholds_of_all_logs(tmp_path: Path) -> None:
    config = load_config(configure(tmp_path, "alarms: {lag: 2h, growth: never}", "    alarms: {lag: 7d}\n"))
    assert config.alarms_of("tellers") == AlarmThresholds(lag=7200, growth=None)
    assert config.alarms_of("accounts") == AlarmThresholds(lag=604_800, growth=None)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("{lag: 5}", "CONFIG_WRONG_TYPE"), ("{lag: soon}", "CONFIG_WRONG_TYPE"), ("{growth: 1}", "CONFIG_OUT_OF_RANGE"),
        ("{failures: -1}", "CONFIG_OUT_OF_RANGE"), ("{failures: true}", "CONFIG_OUT_OF_RANGE"),
        ("{delay: 5h}", "CONFIG_UNKNOWN_KEY"),
    ],
)  # fmt: skip
def test_wrong_thresholds_are_refused(tmp_path: Path, wrong: str, code: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        load_config(configure(tmp_path, f"alarms: {wrong}"))
    assert refused.value.code == code


def test_status_shows_alarms_as_text_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    path = configure(tmp_path, "alarms: {failures: 0}")
    pipeline = open_pipeline(path)
    live(pipeline, *PUBLISHED, take)
    write_alarm_record(pipeline.store, "accounts", AlarmRecord(1, "run-9", 1, "2026-11-05T00:00:00+00:00", "it broke"))
    shown = CliRunner().invoke(app, ["status"], prog_name="tidefold").stdout
    message = "1 run failed, since 2026-11-05 00:00 UTC: it broke. Next: `tidefold run accounts` prints"
    assert f"accounts: ALARM failures: {message}" in shown
    found = json.loads(CliRunner().invoke(app, ["status", "--format", "json"], prog_name="tidefold").stdout)
    accounts = next(log for log in found["logs"] if log["log"] == "accounts")
    assert "failures" in [alarm["kind"] for alarm in accounts["alarms"]]
    assert accounts["runs"]["failures"] == 1
    assert status(pipeline, ["accounts"])[0].alarms == ()


def test_init_writes_the_default_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    (tmp_path / "landing").mkdir()
    rows = "".join(f"{i},a{i},2026-11-0{i} 10:00:00\n" for i in range(1, 6))
    (tmp_path / "landing" / "customers.csv").write_text(f"id,name,updated_at\n{rows}")
    done = CliRunner().invoke(app, ["init", "landing"], prog_name="tidefold")
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "tidefold.yaml").read_text()
    assert "\nalarms:\n  lag: 24h # " in text
    config = load_config(tmp_path / "tidefold.yaml")
    assert [config.alarms_of(log) for log in config.logs] == [AlarmThresholds()]


def test_failed_runs_of_the_command_line_are_counted_and_a_good_one_ends_the_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    pipeline = open_pipeline(configure(tmp_path, "alarms: {failures: 1}"))

    def call(verb: str, *more: str) -> Result:
        return CliRunner().invoke(app, [verb, "accounts", *more], prog_name="tidefold")

    assert call("run").exit_code == 4
    # No alarm yet, but status says it.
    assert "accounts: the newest run failed, first at " in (text := call("status").stdout)
    assert "ingest: [LANDING_MISSING] The landing folder" in " ".join(text.split())
    assert call("run").exit_code == 4
    assert call("run", "--run", "again").exit_code == call("run", "--run", "again").exit_code == 4
    found = find_alarm_record(pipeline.store, "accounts")
    assert found
    assert found.failures == 3
    assert found.error.startswith("ingest: [LANDING_MISSING] ")
    assert "accounts: ALARM failures: 3 runs failed in a row, since " in (text := call("status").stdout)
    assert "the newest run failed" not in text
    assert find_alarm_record(pipeline.store, "tellers") is None
    (tmp_path / "landing" / "accounts").mkdir(parents=True)
    assert call("run").exit_code == 0
    assert "ALARM" not in call("status").stdout
    after = pipeline.store.list("")
    assert call("run").exit_code == 0
    assert pipeline.store.list("") == after
