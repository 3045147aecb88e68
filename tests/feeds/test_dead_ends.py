"""States that once had no way out: the next step that each names is done, and nothing else."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from support.person import CODED, HEAD, LINE, ROWS, Person
from tidefold.config import load_config
from tidefold.operations.doctor.airflow_setup import AirflowSetup, check_airflow
from tidefold.operations.doctor.finding import FindingLevel
from tidefold.operations.doctor.pipeline_checks import check_waiting_files
from tidefold.operations.quality.suites import ConfiguredTypes, find_suite_errors


def _follow(who: Person, text: str, verb: str) -> str:
    """Runs the first named command that begins so, with `--yes` if it only plans. Returns its output."""
    command = next(one for one in CODED.findall(text) if one.startswith(f"tidefold {verb}"))
    planned = who.follow_command(command)
    assert planned.exit_code == 0, planned.output
    if "--yes" not in command:
        assert who.follow_command(f"{command} --yes").exit_code == 0
    return planned.output


@pytest.mark.parametrize("kind", ["full", "copied", "log"])
def test_a_deleted_table_is_seen_and_made_again_by_one_command(person: Person, kind: str) -> None:
    """Its rows come from a full snapshot, from copies on this machine, or from an older full snapshot and the log."""
    config = person.folder / "tidefold.yaml"
    local = "local: {mode: files, path: var/local}\n" if kind == "copied" else ""
    person.rows()
    wanted = "" if kind == "full" else f"snapshots: {{kind: incremental}}\n{local}"
    config.write_text(config.read_text() + wanted)
    person.land("orders/o2.csv", HEAD + "D,1,Ann,1.50,2026-11-01 09:00:00\nI,3,Eve,1.00,2026-11-01 09:00:00\n")
    before = person.rows()
    assert [row["order_id"] for row in before] == [2, 3]
    shutil.rmtree(person.folder / "var/store/tables/orders")

    told = person.call("status", "orders").stdout
    assert "its published table is missing" in told
    found = check_waiting_files(load_config(config))
    assert [one.level for one in found if one.check == "table"] == [FindingLevel.FAIL]
    idle = person.call("run", "orders")
    assert "[TABLE_MISSING]" in idle.output, "nothing is new, and nobody would hear of it"
    assert idle.exit_code == 5
    person.land("orders/o3.csv", HEAD + "I,4,Joe,4.00,2026-11-01 10:00:00\n")
    refused = person.call("run", "orders")
    assert "[TABLE_MISSING]" in refused.output, refused.output
    assert "next: `tidefold move rebuild orders --table --yes`" in person.call("check", "verify", "orders").output
    planned = person.call("move", "rebuild", "orders", "--table").output
    assert "next: tidefold move rebuild orders --table --yes" in planned
    assert "next: tidefold retain drop orders --yes" in person.call("retain", "drop", "orders").output
    _follow(person, refused.output, "move rebuild orders --table")

    done = person.call("run", "orders")
    assert done.exit_code == 0, done.output
    assert "missing" not in person.call("status", "orders").stdout
    person.land("orders/o4.csv", HEAD + "U,4,Joe,5.00,2026-11-01 11:00:00\n")
    assert [row["order_id"] for row in person.rows()] == [2, 3, 4]
    verified = person.call("check", "verify", "orders", "--deep")
    assert verified.exit_code == (5 if kind == "log" else 0), verified.output


def test_one_damaged_ledger_stops_no_other_log(person: Person) -> None:
    person.rows()
    assert person.call("run", "lines").exit_code == 0
    newest = max((person.folder / "var/store/logs/orders/ledger").iterdir())
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes()[:-9])
    person.land("lines/l2.jsonl", LINE.replace('"id":1', '"id":2'))
    done = person.call("run")
    assert done.exit_code == 5, done.output
    assert "error orders: [" in done.stderr
    assert len(json.loads(person.call("read", "lines", "--format", "json").stdout)["rows"]) == 2


def test_a_suite_that_is_a_pipe_is_refused_at_once(person: Person) -> None:
    os.mkfifo(person.folder / "suite.yaml")
    person.set("quality: {suite: suite.yaml}")
    done = person.call("validate")
    assert done.exit_code == 2
    assert "SUITE_UNREADABLE" in done.stderr
    assert "not a regular file" in done.stderr


def test_the_suite_of_a_log_looks_at_the_columns_of_the_logs_that_it_names(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the work of `validate`, and of the gate, grows with the square of the logs."""
    config = load_config(person.folder / "tidefold.yaml")
    types = ConfiguredTypes(config.logs)
    assert types["lines"] == {"id": "long", "text": "string", "ts": "timestamp"}
    asked: list[str] = []
    monkeypatch.setattr(ConfiguredTypes, "__getitem__", lambda self, log: asked.append(log))
    assert [error for error in find_suite_errors(config).values() if error] == []
    assert asked == []


def test_a_dump_of_mysql_is_read_as_it_was_written(person: Person) -> None:
    r"""`\N` is null also where `\"` is a quote, and a row with a stray quote is refused. All as `init` proposes it."""
    text = """id,nick,age,modified
1,\\N,5,2026-11-01 06:00:00
2,"say \\"hi\\"",\\N,2026-11-01 06:00:00
3,"\\\\N",7,2026-11-01 06:00:00
4,N,8,2026-11-01 06:00:00
"""
    person.land("users/users1.csv", text)
    done = person.call("init", "landing/users", "--config", "mysql.yaml")
    assert done.exit_code == 0, done.output
    config = person.folder / "tidefold.yaml"
    (person.folder / "mysql.yaml").rename(config)
    rows = person.rows("users")
    assert [row["nick"] for row in rows] == [None, 'say "hi"', "\\N", "N"]
    assert [row["age"] for row in rows] == [5, None, 7, 8]

    person.land("users/users2.csv", 'id,nick,age,modified\n5,"a" b,9,2026-11-02 06:00:00\n6,c,9,2026-11-02 06:00:00\n')
    refused = person.call("run")
    assert refused.exit_code == 3, refused.output
    shown = person.call("quarantine", "show", "users").output
    assert "QUOTE_STRAY" in shown
    assert "users2.csv" in shown


def test_commands_that_give_something_up_have_a_dry_run(person: Person) -> None:
    person.land("orders/o2.csv", HEAD + "I,x,Eve,1.00,2026-11-01 09:00:00\n" + ROWS)
    person.call("step", "ingest", "orders")
    person.call("step", "materialize", "orders", "--run", "one")
    before = person.call("status", "orders", "--format", "json").stdout
    told = person.call("step", "abort", "orders", "--dry-run")
    assert (told.exit_code, "would abort snapshot 1 of run one" in told.stdout) == (0, True)
    told = person.call("quarantine", "settle", "orders", "--reason", "test data", "--dry-run")
    assert (told.exit_code, "would settle 1 refused record" in told.stdout) == (0, True)
    assert person.call("status", "orders", "--format", "json").stdout == before
    told = person.call("retain", "drop", "nosuch")
    assert (told.exit_code, "Configured logs: orders, lines" in told.stderr) == (4, True)
    assert person.call("retain", "drop", "lines").exit_code == 0


def test_one_mistake_of_the_configuration_is_one_finding_of_the_doctor() -> None:
    setup = AirflowSetup("3.3.2", import_errors={"a.py": "no key", "b.py": "no key", "c.py": "no module"})
    found = [one.message for one in check_airflow(setup) if one.level is FindingLevel.FAIL]
    assert found[0].startswith("2 DAG files cannot be imported, such as a.py: no key")
    assert [said for said in found if "c.py: no module" in said]


def test_changes_of_one_file_are_explained_oldest_first(person: Person) -> None:
    person.land("orders/o2.csv", HEAD + "".join(f"U,1,Ann,{n}.00,2026-11-01 1{n}:00:00\n" for n in (3, 1, 2)))
    person.rows()
    found = json.loads(person.call("explain", "orders", "1", "--format", "json").stdout)["changes"]
    assert [one["order"] for one in found] == sorted(one["order"] for one in found)
    assert len(found) == 4
