"""The page over real stores: it shows what the operations say, changes nothing, and lets no text become more than text.

Issue 7, build 6; promises I23, I26. Who may ask is tested in a real Airflow: tests/airflow/test_page.py.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

from support.html_tags import Tags
from support.page_store import DAG, HOSTILE, Story, addresses, client, everything, run_id, spoil, tell
from support.pipelines import contents
from tidefold.compute.runners import in_process
from tidefold.domain.alarms import RunFailure
from tidefold.domain.log_state import SnapshotKind, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.log_bounds import bounds
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.verify.proof_record import ScrubBudget
from tidefold.domain.wording import in_units
from tidefold.errors import StorageError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.run_alarms import find_run_alarms
from tidefold.operations.inspect.status import status
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.quarantine.inspect import count_refused, show_refused
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.verify.scope import find_proof, write_proof
from tidefold.operations.verify.scrub import ScrubDetails, scrub
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.responses import script, source_of
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines, Work

_ELEMENTS = """
html head meta title style body div a svg path main h1 h2 span p table thead tbody tr th td nav ul li dl dt dd code bdi
line g rect text header details summary pre form label input select option button iframe
"""
OURS = set(_ELEMENTS.split())
OF_REPORT = {"header", "h3", "i", "meter"}
POLICY = "default-src 'none'"


def without_script(html: str) -> str:
    """The page without its own script, which is always the same; any other one stays, to be found."""
    return html.replace(f"<script>{script()}</script>", "", 1)


def words(html: str) -> str:
    """The text that a reader sees, with single spaces."""
    body = re.sub(r"</code>(?=[.,;:)])", "", without_script(html).split("</style>", 1)[-1])
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def pipeline(story: Story) -> Pipeline:
    return story.pipeline


@pytest.fixture(scope="module")
def ask(pipeline: Pipeline) -> TestClient:
    return client(pipeline)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell(tmp_path_factory.mktemp("hostile"), HOSTILE)


def shown(ask: TestClient, address: str, **query: str) -> str:
    answer = ask.get(address, params=query)
    assert answer.status_code == 200, answer.text
    return words(answer.text)


def test_all_logs_with_what_waits_and_what_to_do(ask: TestClient, pipeline: Pipeline) -> None:
    text = shown(ask, "/")
    found = {one.log: one for one in status(pipeline, list(pipeline.config.logs))}
    accounts = found["accounts"]
    assert accounts.latest
    row = f"accounts changes wait {accounts.latest.id} {accounts.latest.kind}, table v{accounts.latest.table_version}"
    assert f"{row} {accounts.latest.rows:,} {in_units(accounts.latest.bytes_full)}" in text
    assert f"{accounts.changes} in {accounts.change_sets} change sets" in text
    assert "tellers needs attention 1" in text
    assert "Snapshot 2 failed its quality gate: 1 of 2 checks failed: amount told (3 of amount below 0)" in text
    assert found["orders"].attempt
    assert "Snapshot 2 is STAGED. Its run" in text
    assert "branches up to date" in text
    assert "fresh not begun" in text
    assert "the next run of its DAG ingests what has landed" in text
    # What is to be done is a link: nobody has a command line in Airflow.
    assert "tidefold step abort" not in text
    assert "tidefold snapshot report" not in text
    waiting, refused = (sum(getattr(one, name) for one in found.values()) for name in ("changes", "quarantined"))
    assert f"Changes that wait {waiting}" in text
    assert f"Refused records {refused}" in text


def test_each_log_is_counted_in_one_badge_of_the_head(ask: TestClient, pipeline: Pipeline) -> None:
    """A stopped log, and one with an alarm, were in none or in two."""
    html = ask.get("/").text
    head = re.search(r'<div class="head">.*?</div>', html, re.DOTALL)
    assert head
    counted = dict(re.findall(r'<span class="badge \w+">([a-zA-Z ]+): (\d+)</span>', head[0]))
    assert sum(map(int, counted.values())) == len(pipeline.config.logs)
    assert len(counted) > 3
    assert counted["needs attention"] == counted["not begun"] == "1"


def test_commands_for_another_pipeline_name_its_configuration(story: Story, pipeline: Pipeline) -> None:
    other = "/data/other/tidefold.yaml"
    seen = VisiblePipelines({"a": (Work(""),), "b": (Work(other),), "both": (Work(""), Work(other))})
    ask = TestClient(build_app((), (), lambda request: seen, opened=lambda config: pipeline))
    name = next(one.name for one in seen.pipelines() if one.name)
    log = "/logs/accounts/retention"
    command = "<code>tidefold retain subsume accounts"
    assert f"{command}</code>" in ask.get(log).text
    assert f"{command} -c CONFIG</code>" in ask.get(f"/p/{name}{log}").text
    for path in ("/", "/logs/orders/quarantine", "/logs/accounts"):
        commands = re.findall(r"<code>tidefold [^<]+</code>", ask.get(f"/p/{name}{path}").text)
        assert [one for one in commands if " -c CONFIG" not in one] == [], path
        assert " -c CONFIG" not in ask.get(path).text
    # A run over both shows the commands of each.
    find_run_alarms(pipeline, "both/r", ["fresh"], {"fresh": RunFailure("ingest: LOG_STOPPED", "LOG_STOPPED")})
    first, _, second = ask.get("/runs/both/r").text.partition("<h2>")[2].partition("<h2>")
    assert "<code>tidefold move resume LOG</code>" in first
    assert "<code>tidefold move resume LOG -c CONFIG</code>" in second


def test_how_far_the_table_is_behind_its_source(ask: TestClient, pipeline: Pipeline) -> None:
    state = pipeline.ledger("accounts").read()
    assert state.latest
    newest = max(p.stream.max_commit_time or 0 for p in state.positions)
    folded = max(e.stream.max_commit_time or 0 for e in state.landed if e.sqn and e.sqn <= state.latest.to_sqn)
    hours = round((newest - folded) / 3_600e6)
    assert f"table {hours} h behind it" in shown(ask, "/")
    assert f"Behind its source {hours} h" in shown(ask, "/logs/accounts")
    assert "Behind its source nothing" in shown(ask, "/logs/branches")


def test_a_ledger_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    """I23."""
    story = Story(tmp_path)
    for log in ("branches", "tellers"):
        story.land(log, range(5))
    story.ingest("branches", "tellers")
    story.cycle("branches", 1)
    spoil(story.pipeline, "tellers", tmp_path)
    ask = client(story.pipeline)
    text = shown(ask, "/")
    assert "tellers unreadable" in text
    [error] = [one.error for one in status(story.pipeline, ["tellers"]) if one.error]
    code = error.error_code or "none"
    assert f"[{code}]" in text
    assert "branches up to date" in text
    answer = ask.get("/logs/tellers")
    assert answer.status_code == 500
    assert code in words(answer.text)
    assert code in shown(ask, f"/runs/{run_id(1)}")
    assert str(tmp_path) not in answer.text


def test_a_log_with_its_time_line_sources_bounds_and_keepers(ask: TestClient, pipeline: Pipeline) -> None:
    html = ask.get("/logs/accounts").text
    text, state = words(html), pipeline.ledger("accounts").read()
    for s in state.snapshots:
        assert f'href="../logs/accounts/snapshots/{s.id}"' in html
        if s.kind is not SnapshotKind.TAIL:
            size, written = in_units(s.bytes_full), in_units(s.bytes_written)
            assert f"snapshot {s.id}: {s.state}, {s.kind}, gate" in text
            assert f"{size}, {written} of it written; {s.rows:,} rows" in text
    states = [s.state for s in state.snapshots]
    assert {State.COMPLETED, State.ABORTED, State.DELETED} <= set(states)
    assert html.count('class="mark by-hand"') == 1
    for bound in bounds(state, pipeline.config.retention.keep):
        assert f"{bound.sqn:,} {bound.why}" in text
    assert f"{bounds(state, 3)[0].name} holds" in text
    [position] = state.positions
    assert f"accounts 0 {position.next_offset:,}" in text
    for kept in ("tag month-end keeps snapshot", "hold audit keeps snapshot", "consumer cache has read up to"):
        assert kept in text
    here = status(pipeline, ["accounts"])[0]
    assert here.local
    assert f"Whole snapshot {', '.join(map(str, here.local))}" in text


def test_the_page_of_a_log_counts_what_it_lists(ask: TestClient, pipeline: Pipeline) -> None:
    """Issue 52: `0 failed` stood above aborted snapshots, and no time below a newest time."""
    for log in ("accounts", "tellers", "orders", "branches"):
        html = ask.get(f"/logs/{log}").text
        text, listed = words(html), pipeline.ledger(log).read().snapshots
        aborted, opened = sum(s.state is State.ABORTED for s in listed), sum(s.open for s in listed)
        told = f"Snapshots begun {len(listed)} {len(listed) - aborted - opened} completed, {aborted} aborted"
        assert f"{told}{f', {opened} open' if opened else ''}" in text
        assert ("Newest commit time" in text) == any(
            p.stream.max_commit_time for p in pipeline.ledger(log).read().positions
        )
        # The legend has each colour of the time line.
        chart, _, legend = html.partition('<p class="key">')
        tones = set(re.findall(r'<g class="(tone-[a-z]+)">', chart))
        assert tones
        assert tones <= set(re.findall(r'<g class="(tone-[a-z]+)">', legend))


def test_how_uploads_are_distributed_is_a_plot_in_order(pipeline: Pipeline) -> None:
    totals = UploadTotals(segments=6, latency_ms={"1000": 1, "more": 2, "100": 3}, size={"4096": 6})
    state = replace(pipeline.ledger("accounts").read(), uploads=totals)

    class Told:
        def __getattr__(self, name: str) -> Any:
            return getattr(pipeline, name)

        def ledger(self, log: str) -> Any:
            return type("Ledger", (), {"find": lambda self: state})()

    app = build_app((), (), everything, opened=lambda config: Told())  # type: ignore[arg-type,return-value]
    text = words(TestClient(app).get("/logs/accounts").text)
    assert "how many of 6 segments had at most Time, ms ≤ 100 3 ≤ 1,000 1 more 2 Size, bytes ≤ 4,096 6" in text
    assert "latency_ms" not in text


def test_no_page_shows_a_back_tick(ask: TestClient, pipeline: Pipeline) -> None:
    """What stands between them is a command or a name."""
    assert [path for path in (*addresses(pipeline), f"/runs/{run_id(2)}") if "`" in shown(ask, path)] == []


def test_a_log_shows_when_it_was_proved_and_drilled(ask: TestClient, pipeline: Pipeline) -> None:
    page = shown(ask, "/logs/accounts")
    assert "Files proved never no scrub has run" in page
    assert re.search(r"Restore drilled .+ snapshot \d+, ", page)
    assert "Restore drilled never no drill has run" in shown(ask, "/logs/tellers")
    [record, *_] = [scrub(pipeline, "tellers", ScrubBudget(bytes=1)).details]
    assert isinstance(record, ScrubDetails)
    assert f"the round has read {record.round_share:.0%} of {in_units(record.bytes)}" in shown(ask, "/logs/tellers")
    proof = find_proof(pipeline.store, "tellers")
    assert proof
    long_ago = replace(proof, number=proof.number + 1, position="", proved="2026-01-01T00:00:00+00:00")
    write_proof(pipeline.store, "tellers", lambda newest: long_ago)
    assert "old all" in shown(ask, "/logs/tellers")
    write_proof(pipeline.store, "tellers", lambda newest: replace(long_ago, number=newest.number + 1, damaged=("a",)))
    page = shown(ask, "/logs/tellers")
    assert "1 damaged file at the proof of" in page
    assert "damaged" in shown(ask, "/")
    pipeline.store.delete([e.path for e in pipeline.store.list(LogPaths("tellers").proofs)])


def test_a_run_links_to_what_it_did(ask: TestClient, pipeline: Pipeline) -> None:
    log = ask.get("/logs/accounts").text
    link = f"../runs/{DAG}/scheduled__2026-11-21T04%3A00%3A00%2B00%3A00"
    assert f'href="{link}"' in log
    text = shown(ask, urljoin("http://testserver/logs/accounts", link).removeprefix("http://testserver"))
    [made] = [s for s in pipeline.ledger("accounts").read().snapshots if s.run == run_id(4)]
    assert f"accounts {made.id} COMPLETED override" in text
    assert "tellers no snapshot of this run" in text
    html = ask.get(f"/runs/{run_id(2)}").text
    [failed] = [s for s in pipeline.ledger("tellers").read().snapshots if s.run == run_id(2)]
    assert f'/logs/tellers/snapshots/{failed.id}">Quality report</a>' in html
    assert "Aborted: the gate said no" in words(html)
    assert "Aborted: the gate said no" in shown(ask, f"/logs/tellers/snapshots/{failed.id}")
    assert "started no snapshot" in shown(ask, f"/runs/{DAG}/manual__1/with/slashes")
    assert "other has no task of tidefold" in shown(ask, "/runs/other/manual__1/with/slashes")


def test_a_red_run_names_its_failed_tasks_and_for_each_log_the_error_with_the_next_step(tmp_path: Path) -> None:
    story = Story(tmp_path)
    for log in ("accounts", "branches"):
        story.land(log, range(5))
    story.ingest("accounts", "branches")
    story.cycle("branches", 1)
    (tmp_path / "landing" / "accounts" / "accounts+0+0000000005.jsonl").write_text('{"broken')
    pipeline = story.pipeline
    [_, [failed]] = [ingest(pipeline, ["accounts"], in_process) for _ in range(2)]
    assert failed.error
    assert failed.error_code == "LANDED_WAITING"
    errors = {"accounts": RunFailure("ingest: LANDED_WAITING", "LANDED_WAITING"), "fresh": RunFailure("ingest failed")}
    find_run_alarms(pipeline, run_id(2), ["accounts", "branches", "fresh"], errors)
    red = ["ingest", "alarms"]
    app = build_app((), (), everything, opened=lambda config: pipeline, find_failed=lambda run: red)
    text = shown(TestClient(app), f"/runs/{run_id(2)}")
    assert "Failed tasks: ingest, alarms." in text
    assert "nothing to fold" not in text
    assert "accounts ingest: LANDED_WAITING. " in text
    assert failed.error.hint.replace("`", "") in text
    assert "accounts+0+0000000005.jsonl" in text
    assert "fresh ingest failed. Read the log of the failed task." in text
    assert "branches no snapshot of this run" in text
    # Of an older run the store keeps no error; its tasks are named.
    older = shown(TestClient(app), f"/runs/{DAG}/older")
    assert "Failed tasks: ingest, alarms." in older
    assert "LANDED_WAITING" not in older
    red.clear()
    assert "nothing to fold, or another purpose" in shown(TestClient(app), f"/runs/{DAG}/older")


def test_an_aborted_snapshot_says_what_to_mend(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.land("tellers", range(5))
    story.ingest("tellers")
    story.stage("tellers", 1, passed=False)
    abort(story.pipeline, "tellers", "the gate said no", run_id=run_id(1))
    ask = client(story.pipeline)
    step = "Mend the data or the suite: the next run folds its changes again."
    for path in ("/", f"/runs/{run_id(1)}", "/logs/tellers", "/logs/tellers/snapshots/1"):
        assert step in shown(ask, path), path
    made = story.cycle("tellers", 2)
    for path in (f"/runs/{run_id(1)}", "/logs/tellers/snapshots/1"):
        text = shown(ask, path)
        assert step not in text
        assert f"snapshot {made} came after it" in text


def test_everything_of_a_snapshot(ask: TestClient, pipeline: Pipeline) -> None:
    state = pipeline.ledger("accounts").read()
    overridden = next(s for s in state.snapshots if s.verdict and s.verdict.override_by)
    text = shown(ask, f"/logs/accounts/snapshots/{overridden.id}")
    assert overridden.verdict
    for told in (
        f"Rows {overridden.rows:,} in 8 buckets",
        f"Change sets {overridden.from_sqn + 1}–{overridden.folds_to} on snapshot {overridden.base}",
        "Gate override by ana told",
        f"It says {overridden.verdict.summary.replace(chr(96), '')}",
        "Because known, told",
        overridden.verdict.manifest,
        f"as table version {overridden.table_version}",
        "month-end",
        f"local copies, {in_units(overridden.bytes_read.store) if overridden.bytes_read else ''} the store",
    ):
        assert told in text
    latest = state.latest
    assert latest
    assert latest.drill
    assert "Restore drill passed" in shown(ask, f"/logs/accounts/snapshots/{latest.id}")
    aborted = next(s for s in state.snapshots if s.state is State.ABORTED)
    assert "not now: told" in shown(ask, f"/logs/accounts/snapshots/{aborted.id}")
    tail = next(s for s in state.snapshots if s.kind is SnapshotKind.TAIL)
    assert "a tail-only snapshot has the verdict of its base" in shown(ask, f"/logs/accounts/snapshots/{tail.id}")


def test_the_stored_report_may_style_itself_and_nothing_else(ask: TestClient, pipeline: Pipeline) -> None:
    [judged, *_] = pipeline.ledger("branches").read().snapshots
    assert judged.verdict
    answer = ask.get(f"/logs/branches/snapshots/{judged.id}/report")
    assert answer.content == pipeline.store.read(judged.verdict.path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")
    assert policy.endswith("sandbox")
    staged = ask.get("/logs/orders/snapshots/2/report")
    assert (staged.status_code, "REPORT_NOT_FOUND" in staged.text) == (404, True)


def test_a_report_is_read_from_nowhere_but_the_logs_own_folder(story: Story, pipeline: Pipeline) -> None:
    """I26: also a ledger that names another file does not make it readable."""
    state = pipeline.ledger("branches").read()
    [judged, *_] = state.snapshots
    assert judged.verdict
    for path in (
        "../tidefold.yaml",
        "logs/branches/quality/../../../x",
        "logs/accounts/quality/0000000001/report.html",
    ):
        changed = replace(judged, verdict=replace(judged.verdict, path=path))

        class Lying:
            def __getattr__(self, name: str) -> Any:
                return getattr(pipeline, name)

            def ledger(self, log: str, changed: Any = changed) -> Any:
                found = state.with_snapshot(changed)
                return type("Ledger", (), {"find": lambda self: found})()

        app = build_app((), (), everything, opened=lambda config: Lying())  # type: ignore[arg-type,return-value]
        answer = TestClient(app).get(f"/logs/branches/snapshots/{judged.id}/report")
        assert answer.status_code == 404, path


def test_what_retention_would_remove_is_what_the_plans_say(tmp_path: Path) -> None:
    story = Story(tmp_path)
    for number in range(1, 8):
        story.land("accounts", range(40 if number == 1 else 4))
        story.ingest("accounts")
        story.cycle("accounts", number)
    story.land("accounts", [1])
    story.ingest("accounts")
    story.stage("accounts", 8, passed=False)
    pipeline = story.pipeline
    plans = {
        "subsume": subsume(pipeline, "accounts", plan=True),
        "truncate": truncate(pipeline, "accounts", plan=True),
        "clean --local": retain_local(pipeline, ["accounts"], plan=True)[0],
        "clean": clean(pipeline, ["accounts"], plan=True)[1],
    }
    before = contents(tmp_path)
    text = shown(client(pipeline), "/logs/accounts/retention")
    assert contents(tmp_path) == before
    assert plans["subsume"].facts["files"] > 0
    for name, outcome in plans.items():
        assert f"{outcome.status} {outcome.message}" in text
        assert f"tidefold retain {name} accounts" not in text
        assert all(path in text for path in outcome.facts["paths"][:50])
        if "bytes" in outcome.facts:
            assert f"{outcome.facts['files']:,} {in_units(outcome.facts['bytes'])}" in text
    state = pipeline.ledger("accounts").read()
    assert f"{bounds(state, 3)[0].name} holds {bounds(state, 3)[0].sqn}" in text
    assert f"{state.latest.id if state.latest else 0} one of the newest 3" in text
    assert f"This DAG runs the steps: {DAG} ." in text
    seen = client(pipeline).get("/logs/accounts/retention").text
    assert f'href="../../../dags/{DAG}"' in seen
    # A reader who sees no DAG that does it reads the commands.
    alone = TestClient(
        build_app((), (), lambda request: VisiblePipelines({"own": (Work(""),)}), lambda config: pipeline)
    )
    assert all(f"tidefold retain {name} accounts" in shown(alone, "/logs/accounts/retention") for name in plans)


def test_refused_records_with_reason_file_and_line(ask: TestClient, pipeline: Pipeline) -> None:
    text = shown(ask, "/logs/orders/quarantine")
    for one in count_refused(pipeline, "orders"):
        assert f"{one.reason} {one.count} {one.files}" in text
        assert f"line {one.line} of {one.file}" in text
    records, _ = show_refused(pipeline, "orders", None, 10)
    assert len(records) == 2
    for record in records:
        assert record.detail in text
        assert " ".join(record.record.split()) in text
    only = shown(ask, "/logs/orders/quarantine", reason=records[0].reason)
    assert records[0].detail in only
    assert records[1].detail not in only
    assert "No refused record is left" in shown(ask, "/logs/branches/quarantine")


def test_a_list_of_refused_records_is_capped(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.land("orders", ["a"], bad=[f"{{bad {i}" for i in range(150)])
    story.ingest("orders")
    text = shown(client(story.pipeline), "/logs/orders/quarantine")
    assert "the first 100, in order of arrival" in text
    assert "{bad 99" in text
    assert "{bad 100" not in text


def test_a_name_of_a_megabyte(pipeline: Pipeline) -> None:
    """As a server hands it on that limits nothing."""
    query = b"name=" + b"x" * 1_000_000
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query, "headers": []}
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    asyncio.run(build_app((), (), everything, opened=lambda config: pipeline)(scope, receive, send))
    assert sent[0]["status"] == 400
    assert b"TOO_LONG" in sent[1]["body"]
    assert len(sent[1]["body"]) < 40_000


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("/logs/unknown", "LOG_NOT_CONFIGURED"),
        ("/logs/fresh", "LOG_UNKNOWN"),
        ("/logs/..%2F..%2Fetc", "PAGE_NOT_FOUND"),
        ("/logs/%2e%2e", ""),
        ("/logs/accounts%00", "LOG_NOT_CONFIGURED"),
        ("/logs/{{7*7}}", "LOG_NOT_CONFIGURED"),
        ("/logs/'\"><script>alert(1)</script>", ""),
        ("/logs/ACCOUNTS", "LOG_NOT_CONFIGURED"),
        ("/logs/accounts/", "PAGE_NOT_FOUND"),
        ("/logs/" + "a" * 60_000, "LOG_NOT_CONFIGURED"),
        ("/logs/accounts/snapshots/0", "SNAPSHOT_NOT_FOUND"),
        ("/logs/accounts/snapshots/-1", "SNAPSHOT_NOT_FOUND"),
        ("/logs/accounts/snapshots/٣", "SNAPSHOT_NOT_FOUND"),
        ("/logs/accounts/snapshots/1e3", "SNAPSHOT_NOT_FOUND"),
        ("/logs/accounts/snapshots/" + "9" * 5000, "SNAPSHOT_NOT_FOUND"),
        ("/logs/accounts/snapshots/..%2f..%2f1/report", "PAGE_NOT_FOUND"),
        ("/logs/accounts/snapshots/99/report", "SNAPSHOT_NOT_FOUND"),
        ("/runs/dag/" + "x" * 300, "RUN_NOT_FOUND"),
        ("/docs", "PAGE_NOT_FOUND"),
        ("/redoc", "PAGE_NOT_FOUND"),
        ("/openapi.json", "PAGE_NOT_FOUND"),
        ("/style.css", "PAGE_NOT_FOUND"),
    ],
    ids=lambda value: value[:40].encode("ascii", "replace").decode(),
)
def test_an_address_of_nothing(ask: TestClient, address: str, code: str) -> None:
    answer = ask.get(address)
    assert answer.status_code == 404
    assert code in answer.text
    assert "tidefold step ingest" not in answer.text
    assert answer.headers["content-security-policy"].startswith(POLICY)
    _is_ours(answer.text)
    assert "Traceback" not in answer.text
    assert len(answer.text) < 40_000


def test_a_reason_that_is_none(ask: TestClient) -> None:
    for reason in ("../x", "<b>", "a" * 100):
        assert ask.get("/logs/orders/quarantine", params={"reason": reason}).status_code == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_written(ask: TestClient, pipeline: Pipeline, method: str) -> None:
    for address in addresses(pipeline)[:6]:
        answer = ask.request(method, address)
        assert (answer.status_code, "READ_ONLY" in answer.text) == (405, True)


def test_looking_changes_nothing_and_every_link_leads_somewhere(story: Story) -> None:
    """Follows every link of every page, as a reader could."""
    before, ask = contents(story.root), client(story.pipeline)
    seen: set[str] = set()
    left = ["http://testserver/", f"http://testserver/runs/{run_id(2)}"]
    while left:
        address = left.pop()
        seen.add(address)
        answer = ask.get(address)
        # A log that was not begun is linked, and says what to do.
        assert answer.status_code == 200 or "LOG_UNKNOWN" in answer.text, address
        if not address.endswith("/report"):
            found = {urljoin(address, link) for link in Tags(answer.text).links if not link.startswith("data:")}
            assert all(one.startswith("http://testserver/") for one in found)
            found.discard("http://testserver/required_actions")  # It is Airflow's own page.
            left += sorted(found - seen - set(left))
    expected = {f"http://testserver{path}" for path in addresses(story.pipeline) if "/runs/" not in path}
    assert expected <= seen
    assert contents(story.root) == before


def test_every_answer_forbids_foreign_scripts_frames_of_others_and_keeping(story: Story, ask: TestClient) -> None:
    for address in addresses(story.pipeline):
        answer = ask.get(address)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith(POLICY)
        allowed = [part for part in policy.split("; ") if part.startswith("script-src")]
        # Our own script by its checksum; none at all in a stored report.
        assert allowed == ([] if address.endswith("/report") else [f"script-src {source_of(script())}"])
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert str(story.root) not in answer.text


def test_text_of_an_attacker_stays_text(hostile: Story) -> None:
    """Keys, values, names, reasons, reports: what comes from outside is shown, and does nothing."""
    ask, reached = client(hostile.pipeline), set()
    for address in addresses(hostile.pipeline):
        answer = ask.get(address)
        tags = _is_ours(answer.text, of_report=address.endswith("/report"))
        if "alert(1)" in tags.text:
            reached.add(re.sub(r"\d+", "N", address.partition("?")[0]))
    # The corpus comes to every kind of page that shows what others wrote.
    assert {"/", "/logs/accounts", "/logs/accounts/retention", "/logs/accounts/snapshots/N", "/logs/orders/quarantine",
            "/logs/accounts/snapshots/N/report"} <= reached  # fmt: skip


def _is_ours(html: str, of_report: bool = False) -> Tags:
    """The page has no element and no attribute but those of our templates, and no character that hides or turns."""
    found = Tags(without_script(html))
    assert {tag for tag, _ in found.tags} <= OURS | (OF_REPORT if of_report else set())
    for _, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc", "target")]
    assert not [
        link for link in found.links if re.match(r"[a-z]+:|//|/", link.lower()) and not link.startswith("data:")
    ]
    if not of_report:
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x09\x0b-\x1f\x7f]", html)
    return found


@pytest.fixture
def stuck(pipeline: Pipeline) -> Iterator[Pipeline]:
    """A store that takes calls and does not answer until the test is over."""
    released = threading.Event()

    class Stuck:
        def __getattr__(self, name: str) -> Any:
            released.wait()
            raise StorageError("GONE", "The store is gone.")

    with suppress(Exception):
        yield replace(pipeline, store=Stuck())  # type: ignore[arg-type]
    released.set()


def test_a_store_that_does_not_answer_gives_a_page_that_says_so(stuck: Pipeline) -> None:
    ask = client(stuck, seconds=0.05)
    # More of them than there are threads: the last ones do not even begin.
    for _ in range(10):
        answer = ask.get("/logs/accounts")
        assert answer.status_code == 503
        assert "STORE_SLOW" in answer.text
    assert ask.get("/unknown").status_code == 404


def test_one_log_that_fails_as_nobody_foresaw_hides_no_other(pipeline: Pipeline) -> None:
    class Breaking:
        def __getattr__(self, name: str) -> Any:
            return getattr(pipeline, name)

        def ledger(self, log: str) -> Any:
            if log == "tellers":
                raise OSError("secret of /etc/passwd")
            return pipeline.ledger(log)

    ask = TestClient(build_app((), (), everything, opened=lambda config: Breaking()))  # type: ignore[arg-type,return-value]
    for address in ("/", f"/runs/{run_id(1)}"):
        text = shown(ask, address)
        assert "[UNFORESEEN] Reading the log failed." in text
        assert "secret" not in text
        assert "branches" in text


def test_what_nobody_foresaw_is_told_to_the_servers_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    def broken(config: str) -> Pipeline:
        raise RuntimeError("secret of /etc/passwd")

    answer = TestClient(build_app((), (), everything, opened=broken)).get("/")
    assert answer.status_code == 500
    assert "UNFORESEEN" in answer.text
    assert "secret" not in answer.text
    assert "secret of /etc/passwd" in caplog.text
