"""Checks over time: a bad file that was planted on the third day of five is named by the command and by the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.landing import record
from support.page_store import client
from tidefold.cli.app import app
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.quality.report.check_history import compare_checks
from tidefold.quality.report.result import CheckResult, ValidationResult
from tidefold.storage import open_store

AMOUNT = {"range": {"column": "amount", "min": 0}, "severity": "warn", "name": "amount"}
LATER = {"range": {"column": "offer", "min": 0}, "severity": "warn", "name": "later"}
STRICT = {"range": {"column": "offer", "min": 100}, "name": "strict"}
LOGS = {
    "sales": {"key": ["shop", "id"], "columns": {"shop": "string", "id": "int", "amount": "int", "offer": "int"}},
    "keyless": {"merge": "append", "columns": {"amount": "int", "offer": "int"}},
}


def land(root: Path, log: str, day: int, *rows: dict[str, Any]) -> None:
    records = []
    for at, row in enumerate(rows):
        key = {"key": {"shop": row["shop"], "id": row["id"]} if log == "sales" else None}
        records.append(record(day * 10 + at, after=row, topic=log, op="c", **key))
    (root / f"landing/{log}/{log}+0+{day * 10:010d}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five days. Day 3 brings a bad amount, which day 5 mends; the check of offers is added on day 4. Day 6 fails."""
    root = tmp_path_factory.mktemp("days")
    source = {"format": "debezium-json", "connector": "postgresql"}
    logs = {
        name: {**log, "source": {**source, "path": f"landing/{name}"}, "quality": {"suite": "suite.yaml"}, "buckets": 1}
        for name, log in LOGS.items()
    }
    (root / "tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": logs}))
    for day in range(1, 7):
        bad = {"amount": -1 if day in (3, 4) else 1, "offer": 5}
        checks = [AMOUNT, *([LATER] if day > 3 else []), *([STRICT] if day == 6 else [])]
        (root / "suite.yaml").write_text(json.dumps({"checks": checks}))
        for log in LOGS:
            (root / "landing" / log).mkdir(parents=True, exist_ok=True)
            key = {"shop": "a, id=3", "id": 7} if log == "sales" else {}
            good = {**({"shop": "b", "id": day} if log == "sales" else {}), "amount": day, "offer": 500}
            land(root, log, day, good, {**key, **bad} if day in (3, 5, 6) else {**good, "amount": day + 1})
        done = CliRunner().invoke(app, ["run", "-c", str(root / "tidefold.yaml")])
        assert done.exit_code == (3 if day == 6 else 0), done.output
    return root


@pytest.fixture(scope="module")
def asked(root: Path) -> Callable[..., Any]:
    def ask(*words: str) -> Any:
        words = ("snapshot", "report", *words, "--over-time", "--format", "json", "-c", str(root / "tidefold.yaml"))
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        return told, {check["name"]: check for check in told["checks"]}

    return ask


def counts(check: dict[str, Any]) -> list[int | None]:
    return [one and one["unexpected"] for one in check["counts"]]


def test_the_planted_file_is_named_with_its_line(asked: Callable[..., Any]) -> None:
    told, checks = asked("sales")
    assert (told["snapshots"], told["older"]) == ([1, 2, 3, 4, 5, 6], 0)
    assert counts(checks["amount"]) == [0, 0, 1, 1, 0, 0]  # It recovered.
    planted = {"key": "shop=a, id=3, id=7", "landed": "sales+0+0000000030.jsonl", "record": "line 2", "error": None}
    assert checks["amount"]["first_bad"] == {"snapshot": 3, "recovered": 5, **planted}
    assert counts(checks["later"]) == [None, None, None, 0, 0, 0]
    assert checks["later"]["first_bad"] is None
    # The gate refused it, and the run aborted it: its files are gone.
    assert counts(checks["strict"]) == [None] * 5 + [1]
    assert checks["strict"]["severity"] == "fail"
    refused = {**planted, "landed": "sales+0+0000000060.jsonl"}
    assert checks["strict"]["first_bad"] == {"snapshot": 6, "recovered": None, **refused}


def test_a_row_without_a_key_is_not_traced(asked: Callable[..., Any]) -> None:
    _, checks = asked("keyless")
    assert counts(checks["amount"])[:4] == [0, 0, 1, 1]
    first = checks["amount"]["first_bad"]
    assert (first["snapshot"], first["landed"]) == (3, None)
    assert first["error"] == "the table has no key to find its change by"


def test_only_snapshots_up_to_one_are_compared(asked: Callable[..., Any]) -> None:
    told, checks = asked("sales", "--snapshot", "2")
    assert told["snapshots"] == [1, 2]
    assert "later" not in checks
    assert checks["amount"]["first_bad"] is None


def test_the_text_and_the_page_say_the_same(root: Path) -> None:
    config = root / "tidefold.yaml"
    done = CliRunner().invoke(app, ["snapshot", "report", "sales", "--over-time", "-c", str(config)])
    page = client(Pipeline(load_config(config), open_store("store", root))).get("/logs/sales/checks").text
    assert done.exit_code == 0
    for name in ("sales+0+0000000030.jsonl, line 2", "sales+0+0000000060.jsonl, line 2"):
        assert name in " ".join(done.stdout.split()), done.stdout
        assert name in page
    assert "3</a>, recovered in 5" in page
    address = CliRunner().invoke(app, ["snapshot", "report", "sales", "-c", str(config)]).stdout.strip()
    assert "snapshot report <bdi>sales</bdi> --over-time" in Path(address.removeprefix("file://")).read_text()
    row = page[page.index("<bdi>later") :].split("</tr>")[0]
    assert row.count('<td class="n"></td>') == 3
    row = page[page.index("<bdi>strict") :].split("</tr>")[0]
    assert '<span class="badge bad">1</span>' in row


def test_checks_are_compared_by_what_they_check() -> None:
    """The arguments of a built-in check differ from run to run; those of another one make another check."""

    def judged(number: int, *checks: CheckResult) -> ValidationResult:
        sizes = (1, None, None, 1, 0, 0, 0, 0.0)
        return ValidationResult("sales", number, "run", "m", "s", True, "", checks, *sizes, "2026-01-01")

    def check(name: str, arguments: str, built_in: bool, unexpected: int | None) -> CheckResult:
        return CheckResult(name, "a", arguments, "fail", built_in, True, unexpected=unexpected)

    one = judged(1, check("own", "1", False, 0), check("row count", "1", True, None), check("gone", "", False, 3))
    two = judged(2, check("row count", "2", True, None), check("own", "2", False, 1))
    found = compare_checks([one, two])
    texts = [(history.name, [count and count.text for count in history.counts]) for history in found]
    assert texts == [("row count", ["ok", "ok"]), ("own", [None, "1"]), ("own", ["0", None]), ("gone", ["3", None])]
    assert [history.first_bad and history.first_bad.snapshot for history in found] == [None, 2, None, 1]


def test_bad_rows_begin_again_after_a_mend() -> None:
    """A check that was bad, good, and is bad again named the snapshot, and the file, that somebody had mended."""

    def judged(number: int, bad: int | None) -> ValidationResult:
        made = (
            [] if bad is None else [CheckResult("a", "a", "", "fail", False, True, None, bad, keys=(f"id={number}",))]
        )
        return ValidationResult(
            "sales", number, "", "", "", True, "", tuple(made), *(1, None, None, 1, 0, 0, 0, 0.0), ""
        )

    for bads, began in {
        (0, 2, 0, 1, 1): (4, None, "id=4", 3),
        (1, None, 1): (1, None, "id=1", None),
        (1, 0, 3, None, 0): (3, 5, "id=3", 2),
        (2, 2, None, 0): (1, 4, "id=1", None),
    }.items():
        [check] = compare_checks([judged(number, bad) for number, bad in enumerate(bads, 1)])
        first = check.first_bad
        assert first is not None
        assert (first.snapshot, first.recovered, first.key, check.last_good) == began


def test_the_row_that_changed_last_is_named_of_two_with_one_value(tmp_path: Path) -> None:
    """`unique` named the row with the lower key, which had the value first, and its innocent file."""
    log = {"source": {"format": "csv", "path": "in"}, "key": ["id"], "order": ["seq"], "buckets": 1}
    log |= {"columns": {"id": "long", "mail": "string", "seq": "long"}, "quality": {"suite": "suite.yaml"}}
    (tmp_path / "tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": {"s": log}}))
    (tmp_path / "suite.yaml").write_text(json.dumps({"checks": [{"unique": "mail"}]}))
    (tmp_path / "in").mkdir()
    for number, (name, row) in enumerate([("good", "3,a@x,9"), ("bad", "60,a@x,1")]):
        (tmp_path / f"in/{name}.csv").write_text(f"id,mail,seq\n{row}\n")
        done = CliRunner().invoke(app, ["run", "-c", str(tmp_path / "tidefold.yaml")])
        assert done.exit_code == (3 if number else 0), done.output
    words = ["snapshot", "report", "s", "--over-time", "--format", "json", "-c", str(tmp_path / "tidefold.yaml")]
    checks = {
        check["name"]: check["first_bad"] for check in json.loads(CliRunner().invoke(app, words).stdout)["checks"]
    }
    assert (checks["mail unique"]["key"], checks["mail unique"]["landed"]) == ("id=60", "bad.csv")
