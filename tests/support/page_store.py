"""A pipeline whose logs are in every state that the page shows, and a client that reads the page without Airflow.

`hostile` puts the text of an attacker into everything that comes from outside: keys, values, names, reasons.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.testclient import TestClient

from support.landing import record
from support.planned import PLAN
from tidefold.compute.runners import in_process
from tidefold.domain.paths import LogPaths, PlanPaths
from tidefold.domain.plan import PlanRecord
from tidefold.domain.snapshot import transitions
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.plan_records import record_plan
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.restore.export import drill
from tidefold.operations.retention.references import hold, register, tag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, Override, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.report.result import CheckResult, Circumstances, Findings, conclude
from tidefold.quality.report.verdict_store import store_judgement, store_report, verdict_of
from tidefold.wiring import open_pipeline
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines, Work

# When the database committed the first change, in microseconds: 2026-11-21 00:00 UTC; each later one an hour.
_COMMITTED = 1_795_219_200_000_000
DAG = "tidefold_materialize"
LOGS = ("accounts", "tellers", "orders", "branches", "fresh")
HOSTILE = "\"'><script>alert(1)</script>{{7*7}}<img src=x onerror=alert(1)>\u202eevil\u0000\x1b[31m&lt;"
_CONFIG = """\
version: 1
store: store
local: {mode: files, path: local}
retention: {snapshots: 3}
snapshots: {kind: auto}
logs:
""" + "".join(
    f"""  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [id]
    columns: {{id: {"string" if log == "orders" else "int"}, text: string, amount: long}}
    key_groups: 64
    buckets: 8
"""
    for log in LOGS
)


def run_id(number: int) -> str:
    """Returns the id of a run of the DAG, as Airflow names those of its scheduler."""
    return f"{DAG}/scheduled__2026-11-21T{number:02d}:00:00+00:00"


class Story:
    """Brings a pipeline through its life, run by run."""

    def __init__(self, root: Path, text: str = "told") -> None:
        for log in LOGS:
            (root / "landing" / log).mkdir(parents=True)
        (root / "tidefold.yaml").write_text(_CONFIG)
        self.root, self.text = root, text
        self.pipeline: Pipeline = open_pipeline(root / "tidefold.yaml")
        self._offsets = dict.fromkeys(LOGS, 0)
        self._committed = _COMMITTED

    def land(self, log: str, keys: Sequence[Any], op: str = "c", bad: Sequence[str] = (), name: str = "") -> None:
        """Lands one file: changes of these keys, and lines that are not records."""
        first = self._offsets[log]
        lines: list[str] = []
        for place, key in enumerate(keys):
            offset, row = first + place, {"id": key, "text": f"{self.text} {first}", "amount": first * 10 + place}
            after = None if op == "d" else row
            before = row if op == "d" else None
            own = {"key": {"id": key}, "topic": log, "before": before, "after": after}
            own["ts_us"] = self._committed + offset * 1_000_000
            lines.append(json.dumps(record(offset, op=op, **own)))
        self._offsets[log] += len(keys) + len(bad)
        self._committed += 3_600_000_000
        path = self.root / "landing" / log / f"{log}+0+{first:010d}.jsonl"
        path.write_text("".join(f"{line}\n" for line in [*lines, *bad]))

    def ingest(self, *logs: str) -> None:
        for outcome in ingest(self.pipeline, logs, in_process):
            assert not outcome.error_code, outcome

    def stage(self, log: str, number: int, passed: bool | None = True) -> int:
        """Materializes and judges; `passed` None: not judged."""
        [staged] = materialize(self.pipeline, [log], Fold(run_id(number)), in_process)
        assert not staged.error_code, staged
        if passed is not None:
            self.judge(log, passed)
        return staged.snapshot or 0

    def judge(self, log: str, passed: bool) -> None:
        pipeline = self.pipeline
        state = pipeline.ledger(log).read()
        attempt = state.open_attempt
        assert attempt
        manifest = read_manifest(pipeline.store, log, attempt)
        sample = (f"{self.text} bad",)
        checks = [
            CheckResult("key unique", "expect_unique", "{}", "fail", True, True, observed="0 duplicates"),
            CheckResult(f"amount {self.text}", "expect_between", "{}", "fail", False, passed, None,
                        None if passed else 3, () if passed else sample, "" if passed else "3 of `amount` below 0"),
        ]  # fmt: skip
        findings = Findings(tuple(checks), (), (), 1.5)
        judgement = conclude(state, attempt, manifest, "ab" * 32, findings, Circumstances(attempt.started_at))
        store_report(pipeline.store, store_judgement(pipeline.store, judgement))
        pipeline.ledger(log).commit(lambda now: transitions.record_verdict(now, attempt.id, verdict_of(judgement)))

    def cycle(self, log: str, number: int) -> int:
        made = self.stage(log, number)
        confirm(self.pipeline, log, Confirmation(run=run_id(number)))
        return made


def tell(root: Path, text: str = "told", runs: int = 6) -> Story:
    """The whole story: see the tests for what each log has."""
    story = Story(root, text)
    _accounts(story, runs)
    _tellers(story)
    _orders(story)
    _branches(story)
    add_plan(story)
    return story


def _accounts(story: Story, runs: int) -> None:
    """Many runs: one overridden, one aborted; retired, truncated, tagged, held, with consumers, drilled, with a
    tail.
    """
    pipeline = story.pipeline
    for number in range(1, runs + 1):
        story.land("accounts", range(1, 400) if number == 1 else range(number * 7, number * 7 + 5))
        story.ingest("accounts")
        if number == 3:
            story.stage("accounts", number, passed=False)
            abort(pipeline, "accounts", f"not now: {story.text}", run_id=run_id(number))
        elif number == 4:
            made = story.stage("accounts", number, passed=False)
            confirm(
                pipeline,
                "accounts",
                Confirmation(snapshot=made, override=Override(f"ana {story.text}", f"known, {story.text}")),
            )
            tag(pipeline, "accounts", "month-end", made)
        else:
            story.cycle("accounts", number)
    state = pipeline.ledger("accounts").read()
    assert state.latest
    hold(pipeline, "accounts", "audit", state.latest.id - 1, f"asked for by {story.text}")
    register(pipeline, "accounts", "cache", state.latest.to_sqn)
    drill(pipeline, "accounts")
    subsume(pipeline, "accounts")
    truncate(pipeline, "accounts")
    story.land("accounts", [1, 2, 3, 1])
    story.ingest("accounts")
    take_tail(pipeline, "accounts", "tidefold_tail/scheduled__2026-11-21T12:05:00+00:00")
    story.land("accounts", [5], op="d")
    story.ingest("accounts")


def _tellers(story: Story) -> None:
    """Published once. The newest snapshot failed its gate and was aborted."""
    story.land("tellers", range(50))
    story.ingest("tellers")
    story.cycle("tellers", 1)
    story.land("tellers", range(10))
    story.ingest("tellers")
    story.stage("tellers", 2, passed=False)
    abort(story.pipeline, "tellers", "the gate said `no`", run_id=run_id(2))


def _orders(story: Story) -> None:
    """Keys are text, some records were refused, and an attempt is open."""
    broken = [f"{{not json {story.text.encode('unicode_escape').decode()}", '{"value": 7}']
    story.land("orders", [f"o-{i}" for i in range(20)] + [f"key {story.text}"], bad=broken)
    story.ingest("orders")
    story.cycle("orders", 1)
    story.land("orders", ["o-3"])
    story.ingest("orders")
    story.stage("orders", 2, passed=None)


def _branches(story: Story) -> None:
    """Up to date."""
    story.land("branches", range(30))
    story.ingest("branches")
    story.cycle("branches", 1)


def add_plan(story: Story) -> None:
    """Accounts have a plan of their configuration."""
    store, paths = story.pipeline.store, PlanPaths("accounts", story.pipeline.log("accounts").edit)
    told = replace(PLAN.examples[0], key={"id": story.text}, after={"id": 1, "text": story.text}, was=story.text)
    edit = f"order: created before, {story.text} now"
    plan = replace(PLAN, log=paths.log, edit=paths.edit, edits=(edit,), gate=story.text, examples=(told,))
    record_plan(store, paths, PlanRecord(1, plan.made_at, plan))


def spoil(pipeline: Pipeline, log: str, root: Path) -> None:
    """Makes the newest ledger version of a log unreadable."""
    newest = max((root / "store" / LogPaths(log).ledger).iterdir())
    newest.write_bytes(b"{")


def everything(request: Request) -> VisiblePipelines:
    """A reader who may see all DAGs of the pipeline."""
    return VisiblePipelines({DAG: (Work("", cleans=True),)})


def client(pipeline: Pipeline, seconds: float = 30) -> TestClient:
    """Returns a client of the page without Airflow, and without login."""
    app = build_app((), (), everything, opened=lambda config: pipeline, seconds=seconds)
    return TestClient(app, base_url="http://testserver")


def addresses(pipeline: Pipeline) -> list[str]:
    """Returns the addresses of every page of these logs."""
    found = ["/", f"/runs/{run_id(1)}", f"/runs/{run_id(4)}"]
    for log in pipeline.config.logs:
        state = pipeline.ledger(log).find()
        if state is None:
            continue
        found += [f"/logs/{log}", f"/logs/{log}/checks", f"/logs/{log}/retention", f"/logs/{log}/quarantine"]
        found += [f"/logs/{log}/snapshots/{s.id}" for s in state.snapshots]
        found += [f"/logs/{log}/snapshots/{s.id}/report" for s in state.snapshots if s.verdict]
    return [*found, "/logs/accounts/plan/report"]
