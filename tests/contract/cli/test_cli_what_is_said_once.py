"""What a person reads after a run: each thing once, whole names, numbers with their nouns, and the next step last."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidefold.cli.app import app
from tidefold.errors import StorageError
from tidefold.operations.ground.outcome import Outcome, for_each_log
from tidefold.presentation.tables import plain_table
from tidefold.spark import full_run as spark_full_run

NAME = "orders-20261103-copy-of-the-file-of-november.csv"
CONFIG = """\
version: 1
store: store
alarms: {failures: 0}
logs:
  orders:
    source: {format: csv, path: landing}
    key: [id]
    columns: {id: long, amount: long, updated: timestamp}
    order: [updated]
"""


def call(*words: str, code: int = 0) -> Result:
    done = CliRunner(env={"COLUMNS": None}).invoke(app, list(words), prog_name="tidefold")
    assert done.exit_code == code, done.output
    return done


def land(name: str, *rows: str) -> None:
    Path("landing", name).write_text("\n".join(["id,amount,updated", *rows, ""]))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    land("orders-20261101.csv", *(f"{i},{i},2026-11-01T00:00:0{i}Z" for i in range(1, 6)))


@pytest.mark.usefixtures("shop")
def test_a_first_run_names_the_command_that_reads_more() -> None:
    assert "the first 3 rows; `tidefold read orders --limit N` shows more\n" in call("run").stderr
    assert call("read", "orders", "--limit", "1").stderr == "the first row; --limit shows more\n"


@pytest.mark.usefixtures("shop")
def test_status_after_a_failed_gate_says_each_thing_once_and_ends_with_the_next_step() -> None:
    call("run")
    land(NAME, "6,abc,2026-11-03T00:00:00Z", "1,7,2026-11-03T00:00:00Z")
    run = call("run", code=3)
    assert "snapshot 2: 5 rows after 1 change of 1 key (0 deleted)" in run.stdout
    shown = call("status").stdout
    for once in ("failed its quality gate", "missing or stale", "quarantine retry orders", "snapshot report orders"):
        assert shown.count(once) == 1, once
    last = shown.splitlines()[-1]
    assert last.startswith("orders: ALARM gate: snapshot 2 failed its quality gate: ")
    assert " Next: read `tidefold snapshot report orders`" in last
    assert "UTC: quality: snapshot 2 failed its gate. Next: `tidefold run orders` prints the next step." in shown


@pytest.mark.usefixtures("shop")
def test_an_abort_and_the_status_after_it_name_the_next_step() -> None:
    call("step", "ingest")
    call("step", "materialize")
    assert call("step", "abort", "orders", "--dry-run").stderr == ""
    assert call("step", "abort", "orders", "--reason", "a look").stderr == "next: tidefold run orders\n"
    shown = call("status").stdout
    assert "orders: snapshot 1 was aborted: a look.\norders: `tidefold run orders` folds the changes" in shown


@pytest.mark.usefixtures("shop")
def test_a_run_that_cannot_abort_names_what_goes_on_with_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage, `Call again.` was refused: the snapshot of the first call was open."""

    def fail(*_: object, **__: object) -> Outcome:
        raise StorageError("STORAGE", "The store does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(spark_full_run, "abort", fail)
        patched.setattr(spark_full_run, "confirm_logs", lambda pipeline, logs, *_: for_each_log(logs, fail))
        lines = call("run", "--kind", "full", code=6).stderr.splitlines()
    assert "orders: snapshot 1 is still open" in lines
    [words] = [line.split("`")[1] for line in lines if line.endswith("` goes on when the store answers")]
    assert "has an open attempt" in call("run", code=3).stderr
    assert "published: snapshot 1" in call(*words.split()[1:]).stdout


@pytest.mark.usefixtures("shop")
def test_an_open_restore_is_named_and_so_is_what_a_takeover_ended() -> None:
    call("run")
    land("orders-20261102.csv", "1,7,2026-11-02T00:00:00Z")
    call("run")
    call("restore", "orders", "1", "--log-position", "skip", "--run", "back")
    title = "snapshot 3 (a restore of snapshot 1)"
    assert (
        f"[ATTEMPT_OPEN] Run `back` has an open attempt on `orders`: {title} is STAGED." in call("run", code=3).stderr
    )
    assert f"orders: {title} is STAGED under run back." in call("status").stdout
    assert f"; took over from run back, whose {title} is aborted\n" in call("run", "--takeover").stdout


@pytest.mark.usefixtures("shop")
def test_piped_tables_have_whole_names() -> None:
    call("run")
    land(NAME, "1,7,2026-11-03T00:00:00Z")
    call("run")
    land("orders-20261104.csv", "1,8,2026-11-04T00:00:00Z")
    call("run")
    assert f"{NAME}, row 1" in call("explain", "orders", "id=1").stdout


def test_a_column_of_instants_stays_in_one_line() -> None:
    from rich.console import Console

    console = Console(width=30, file=StringIO())
    console.print(plain_table(("what", "at="), [("a long name that goes on", "2026-11-03 00:00:00")]))
    assert "2026-11-03 00:00:00" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("shop")
def test_long_plans_are_cut_for_people_and_end_with_a_sum() -> None:
    for number in range(1, 8):
        land(f"orders-2026110{number}.csv", *(f"{i},{i},2026-11-0{number}T00:00:0{i}Z" for i in range(1, 9)))
        call("run", "--kind", "full")
    Path("tidefold.yaml").write_text(CONFIG + "retention: {snapshots: 1, grace_versions: 1}\n")
    *_, more, last = call("retain", "subsume", "--dry-run").stdout.splitlines()
    assert more.startswith("  orders: and ")
    assert more.endswith(" more; --format json lists them all")
    assert last.startswith("  orders: in all ")
    restored = call("restore", "orders", "1", "--log-position", "replay")
    assert restored.output.splitlines()[-1].startswith("next: tidefold step quality orders")
