"""A plan as a page in HTML: on the command line, and where the plan of the deployed configuration stands in Airflow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from support.commands import call
from support.html_tags import Tags
from support.page_store import HOSTILE, client
from support.planned import DAY, PLAN, apply, configure, land, plan, run
from tidefold.domain.plan import Example
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.presentation.plans import render_plan
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines


def test_the_report_has_all_of_a_plan() -> None:
    page = render_plan(PLAN)
    text = " ".join(unescape(re.sub(r"<[^>]+>", " ", page.split("</style>")[-1])).split())
    for shown in (
        "1,201 1,200 before", "Added 2", "Removed 1", "Changed 1", "order: created before, changed now",
        "amount: string before, double now", "2 records of a.csv", "passed: 4 checks passed",
        "2.0 MB landed bytes read",
        "was: upsert of a.csv, row 1 now: upsert of b.csv, row 2 text a null", "now: delete of d.csv text gone",
        "tidefold plan orders --apply , or the DAG tidefold_plan, publishes these rows", PLAN.checksum,
    ):  # fmt: skip
        assert shown in text, shown
    assert "same" not in text
    assert not re.search(r"https?:|//[a-z]|url\(|@import", page, re.IGNORECASE)


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({"passed": False}, "The gate did not pass these rows"),
        ({"gone": ("a.csv",), "lost": 4}, "A landed file is missing"),
        ({"edits": ()}, "there is nothing to apply"),
    ],
)
def test_what_cannot_be_applied_names_no_way_to_apply_it(changes: dict[str, object], step: str) -> None:
    text = Tags(render_plan(replace(PLAN, **changes))).text  # type: ignore[arg-type]
    assert step in text
    assert "--apply" not in text


def test_text_of_an_attacker_stays_text() -> None:
    row = {"id": HOSTILE, HOSTILE: HOSTILE}
    told = Example("changed", row, row, {**row, HOSTILE: "other"}, HOSTILE, HOSTILE)
    one = replace(PLAN, edits=(HOSTILE,), gate=HOSTILE, gone=(HOSTILE,), values={HOSTILE: 1}, examples=(told,))
    hostile, plain = Tags(render_plan(one)), Tags(render_plan(PLAN))
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in plain.tags}
    assert "alert(1)" in hostile.text
    assert not set("\u202e\0\x1b") & set(render_plan(one))


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with open_engines(1) as lend, lend() as one:
        yield one


def _see(pipeline: Pipeline) -> str:
    answer = client(pipeline).get("/logs/orders")
    assert answer.status_code == 200, answer.text
    return " ".join(Tags(answer.text).text.split())


def test_a_page_of_a_log_says_how_the_plan_of_its_configuration_stands(
    tmp_path: Path, engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = configure(tmp_path)
    land(tmp_path, "b.csv", ("U", 1, 1, "1.0", DAY % (1, 0), DAY % (5, 0)))
    land(tmp_path, "c.csv", ("U", 1, 2, "1.5", DAY % (1, 0), DAY % (2, 0)))
    run(made, "r1", engine)
    assert "Plan" not in _see(made)
    assert client(made).get("/logs/orders/plan/report").status_code == 404
    edited = configure(tmp_path, order="[changed]")
    assert "REPORT_UNWRITABLE" in call("plan", "orders", "--report", "none/plan.html", code=2).output
    call("plan", "orders", "--report", "plan.html")
    assert "order: created before, changed now" in (text := _see(edited))
    assert "ready" in text
    assert "0 added, 0 removed, 1 changed" in text
    report = client(edited).get("/logs/orders/plan/report")
    assert report.text == Path("plan.html").read_text()
    assert "sandbox" in report.headers["content-security-policy"]
    assert str(tmp_path) not in report.text + text
    former = configure(tmp_path)
    assert "Plan" not in _see(former)
    land(tmp_path, "d.csv", ("U", 2, 1, "2.0", DAY % (1, 0), DAY % (1, 0)))
    run(former, "r2", engine)
    edited = configure(tmp_path, order="[changed]")
    text = _see(edited)
    assert "PLAN_BEHIND" in text
    assert "--apply" not in text
    plan(edited, engine)
    assert "ready" in _see(edited)
    run(configure(tmp_path), "r3", engine, full=True)
    edited = configure(tmp_path, order="[changed]")
    assert "The table has changed since" in (text := _see(edited))
    assert "ready" not in text
    assert "--apply" not in text
    plan(edited, engine)
    assert "ready" in _see(edited)
    apply(edited, engine)
    assert "applied" in (text := _see(edited))
    assert "snapshot 4" in text
    assert "--apply" not in text
