"""A verdict over counts that were taken over equals a full one: real folds, restores and suites. Promise I8."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.counting_engine import CountingEngine
from support.pipelines import CONFIG, make_pipeline, put
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.domain.verify.proof_record import ScrubBudget
from tidefold.errors import CorruptError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quality import judge as judge_module
from tidefold.operations.quality.judge import Case, audit, judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.scrub import scrub
from tidefold.quality.run import count_memory
from tidefold.quality.run.count_memory import Turn
from tidefold.quality.run.duckdb_rows import open_duckdb

VECTORS = CONFIG.replace(
    "buckets: 4\n", "buckets: 4\n    deletion_vectors: true\n    quality: {suite: suite.yaml}\n", 1
).replace("store: store\n", "store: store\nsnapshots: {kind: incremental}\n")
ENGINE = CountingEngine()


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A log with 200 rows in a published snapshot."""
    monkeypatch.setattr("tidefold.quality.run.expectations._SAMPLED", 0)
    made = make_pipeline(tmp_path, VECTORS)
    give_suite(made, 9)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(200)])
    assert judged(made, "run-1").message == "snapshot 1 passed: 5 checks passed"
    confirm(made, "accounts", Confirmation(run="run-1"))
    return made


def give_suite(pipeline: Pipeline, longest: int) -> None:
    checks = [
        {"matches": {"column": "text", "regex": f"^.{{1,{longest}}}$"}, "severity": "warn"},
        {"not_null": "text", "severity": "warn"},
    ]
    (pipeline.config.path.parent / "suite.yaml").write_text(json.dumps({"checks": checks}))


def judged(pipeline: Pipeline, run: str, **how: Any) -> Outcome:
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    [outcome] = judge(pipeline, ["accounts"], run, ENGINE, **how)
    return outcome


def change_some(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}, {"id": 2, "text": None, "_op": DELETE}, {"id": 300, "text": "new"}])


def stored_result(outcome: Outcome) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(Path(outcome.facts["verdict"]).read_text())["judgement"]
    return result


def counts_path(pipeline: Pipeline, snapshot: int) -> str:
    [entry] = [e for e in pipeline.store.list(LogPaths("accounts").quality(snapshot)) if "/counts-" in e.path]
    return entry.path


def test_verdict_page_and_outcome_say_what_was_read(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_memory, "_find_turns", lambda *_: (set(), Turn()))
    change_some(pipeline)
    outcome = judged(pipeline, "run-2")
    # Rows 1 and 300. The rows 1 and 2 left: no row of snapshot 1 was bad, so neither of them was.
    of = "(2 rows read, 198 taken over from snapshot 1)"
    assert outcome.message == f"snapshot 2 passed: 6 checks passed {of}"
    facts = outcome.facts
    assert (facts["rows"], facts["rows_read"], facts["rows_taken_over"], facts["counted_by"]) == (200, 2, 198, 1)
    checks = {check["name"]: check for check in stored_result(outcome)["checks"]}
    assert (checks["text not null"]["read"], checks["text not null"]["taken_over"]) == (2, 198)
    # Two buckets have new rows: their keys are read.
    assert 80 < checks["id unique"]["read"] < 120
    assert checks["id unique"]["read"] + checks["id unique"]["taken_over"] == 200
    assert "2 rows read, 198 taken over from snapshot 1" in Path(outcome.facts["report"]).read_text()


def test_recount_reads_all_rows(pipeline: Pipeline) -> None:
    """Also if a stored count is wrong: it is not used."""
    plant_a_row(pipeline)
    change_some(pipeline)
    outcome = judged(pipeline, "run-2", recount=True)
    assert outcome.message == "snapshot 2 passed: 6 checks passed"
    assert (outcome.facts["rows_read"], outcome.facts["rows_taken_over"]) == (200, 0)
    assert pipeline.store.read(counts_path(pipeline, 2))
    again = judged(pipeline, "run-2", recount=True).message
    assert again.startswith("snapshot 2 passed: 6 checks passed; judged before, so --recount read nothing. `tidefold ")
    assert "judged before" not in judged(pipeline, "run-2").message


def test_an_audit_reads_all_rows_and_stores_no_counts(pipeline: Pipeline) -> None:
    pipeline.store.delete([counts_path(pipeline, 1)])
    [outcome] = audit(pipeline, ["accounts"], "daily", ENGINE)
    assert (outcome.status, outcome.facts["rows_read"], outcome.facts["rows_taken_over"]) == ("passed", 200, 0)
    assert not [e for e in pipeline.store.list(LogPaths("accounts").quality(1)) if "/counts-" in e.path]


def test_a_changed_suite_reads_all_rows(pipeline: Pipeline) -> None:
    change_some(pipeline)
    give_suite(pipeline, 8)
    assert judged(pipeline, "run-2").message == "snapshot 2 passed: 6 checks passed"


def plant_a_row(pipeline: Pipeline) -> None:
    """Counts one row too much in a file of snapshot 1."""
    path = counts_path(pipeline, 1)
    stored = count_memory.decode_counts(pipeline.store.read(path))
    [[file, [rows, *counts]], *files], (first, *shares) = stored.shares[0].files, stored.shares
    more = msgspec.structs.replace(first, files=((file, (rows + 1, *counts)), *files))
    pipeline.store.delete([path])
    wrong = count_memory.encode_counts(msgspec.structs.replace(stored, shares=(more, *shares)))
    pipeline.store.put_if_absent(path, wrong)


def test_wrong_stored_counts_fail_the_gate_and_the_next_try_reads_all_rows(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_memory, "_find_turns", lambda shares, *_: ({*range(len(shares))}, Turn()))
    plant_a_row(pipeline)
    change_some(pipeline)
    outcome = judged(pipeline, "run-2")
    assert outcome.status == "failed"
    assert "1 of 7 checks failed: stored counts of snapshot 1 were wrong for rows of `k" in outcome.message
    assert outcome.facts["rows_read"] == 200
    pipeline.ledger("accounts").commit(lambda state: transitions.abort(state, 2, "the counts were wrong"))
    assert judged(pipeline, "run-3").message == "snapshot 3 passed: 6 checks passed"


def test_a_share_of_the_files_proves_the_counts_of_its_rows(pipeline: Pipeline) -> None:
    """A round reads each file once: it finds a wrong count that no gate came to, and a second round finds nothing."""
    assert scrub(pipeline, "accounts", ScrubBudget(share=1)).status == "whole"
    path = counts_path(pipeline, 1)
    plant_a_row(pipeline)
    outcomes = [scrub(pipeline, "accounts", ScrubBudget(bytes=1))]
    while outcomes[-1].facts["round_share"] < 1:
        outcomes.append(scrub(pipeline, "accounts", ScrubBudget(bytes=1)))
    [wrong] = [one for one in outcomes if one.error_code]
    assert (wrong.status, wrong.error_code) == ("damaged", "COUNTS_WRONG")
    assert "took over a wrong count for rows of `k" in wrong.message
    assert [alarm["file"] for alarm in wrong.facts["alarms"]] == [path]
    assert not pipeline.store.list(path)
    change_some(pipeline)
    assert judged(pipeline, "run-2").message == "snapshot 2 passed: 6 checks passed"
    assert scrub(pipeline, "accounts", ScrubBudget(share=1)).status == "whole"


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: b"{}"])
def test_counts_that_no_gate_takes_over_are_no_alarm(pipeline: Pipeline, spoil: Any) -> None:
    path = counts_path(pipeline, 1)
    data = pipeline.store.read(path)
    pipeline.store.delete([path])
    pipeline.store.put_if_absent(path, spoil(data))
    assert scrub(pipeline, "accounts", ScrubBudget(share=1)).status == "whole"


def test_a_second_try_fails_too_if_the_first_died_while_it_read_all_rows(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_memory, "_find_turns", lambda shares, *_: ({*range(len(shares))}, Turn()))
    plant_a_row(pipeline)
    change_some(pipeline)
    with monkeypatch.context() as dying:
        plan = count_memory.plan_counts

        def die(shares: Any, recalled: Any, queries: Any) -> Any:
            if recalled is None:
                raise CorruptError("EXECUTOR_LOST", "An executor was lost.")
            return plan(shares, recalled, queries)

        dying.setattr(count_memory, "plan_counts", die)
        assert judged(pipeline, "run-2").error
    again = judged(pipeline, "run-2")
    assert again.status == "failed"
    assert "stored counts of snapshot 1 were wrong" in again.message


def test_counts_with_a_changed_digit_are_not_taken_over(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn would have shown it in this gate."""
    monkeypatch.setattr(count_memory, "_find_turns", lambda *_: (set(), Turn()))
    path = counts_path(pipeline, 1)
    text = pipeline.store.read(path)
    at = max(at for at, byte in enumerate(text) if byte == ord("0"))
    pipeline.store.delete([path])
    pipeline.store.put_if_absent(path, text[:at] + b"7" + text[at + 1 :])
    change_some(pipeline)
    outcome = judged(pipeline, "run-2")
    assert outcome.message == "snapshot 2 passed: 6 checks passed"
    assert (outcome.facts["rows_read"], outcome.facts["rows_taken_over"]) == (200, 0)


def summary(findings: Any) -> list[tuple[str, bool, int | None, str, str | None]]:
    return [(c.name, c.passed, c.unexpected, c.detail, c.observed) for c in findings.checks]


@pytest.mark.rotates(2)
@pytest.mark.parametrize("seed", range(2))
def test_lives_of_a_real_log(pipeline: Pipeline, seed: int) -> None:
    """Folds, aborts and changed suites: each judgement is made twice, with and without the memory."""
    chance, taken = random.Random(seed), 0
    for number in range(2, 6):
        if chance.random() < 0.2:
            give_suite(pipeline, chance.choice((3, 9)))
        keys = chance.sample(range(250), chance.choice((1, 10, 60)))
        put(pipeline, [random_change(chance, key) for key in keys])
        run = f"run-{number}"
        materialize(pipeline, ["accounts"], Fold(run), in_process)
        case = judge_module.prepare(pipeline, "accounts", run)
        assert isinstance(case, Case)
        manifest = read_manifest(pipeline.store, "accounts", case.snapshot)
        memory = judge_module._open_memory(pipeline, case)
        reused = judge_module.find(pipeline, case, manifest, ENGINE, memory)
        assert summary(reused) == summary(judge_module.find(pipeline, case, manifest, ENGINE))
        assert reused.reuse is not None
        taken += reused.reuse.taken
        [outcome] = judge(pipeline, ["accounts"], run, ENGINE)
        if outcome.status == "passed" and chance.random() < 0.8:
            assert confirm(pipeline, "accounts", Confirmation(run=run)).error is None
        else:
            pipeline.ledger("accounts").commit(lambda state: transitions.abort(state, state.snapshots[-1].id, "next"))
    assert taken


def random_change(chance: random.Random, key: int) -> dict[str, Any]:
    deleted = {"_op": DELETE} if chance.random() < 0.2 else {}
    return {"id": key, "text": None if deleted or chance.random() < 0.01 else f"{chance.random():.4f}", **deleted}


def test_the_gate_in_process_counts_a_large_snapshot_by_bucket_and_takes_counts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks of buckets, of all rows together and samples: as if all rows were read."""
    pipeline = make_pipeline(tmp_path, VECTORS)
    more = [{"unique": "text"}, {"row_count": {"min": 1}}]
    give_suite(pipeline, 4)
    suite = pipeline.config.path.parent / "suite.yaml"
    checks = json.loads(suite.read_text())["checks"]
    suite.write_text(json.dumps({"checks": [*checks, *({**one, "severity": "warn"} for one in more)]}))
    told = []
    with open_duckdb() as engine:
        for run in range(2):
            monkeypatch.setattr("tidefold.quality.run.duckdb_rows._COUNTED_ROWS", 1)
            put(pipeline, [{"id": i, "text": f"a {i}" if i % 9 else None} for i in range(run * 190, 200 + run * 4)])
            materialize(pipeline, ["accounts"], Fold(f"run-{run}"), in_process)
            [outcome] = judge(pipeline, ["accounts"], f"run-{run}", engine)
            counted = [without_cost(one) for one in stored_result(outcome)["checks"]]
            confirm(pipeline, "accounts", Confirmation(run=f"run-{run}"))
            monkeypatch.setattr("tidefold.quality.run.duckdb_rows._COUNTED_ROWS", 10**9)
            [audited] = audit(pipeline, ["accounts"], f"audit-{run}", engine)
            assert counted == [without_cost(one) for one in stored_result(audited)["checks"]]
            told.append(outcome.message)
    assert "taken over from snapshot 1" in told[1], told
    assert any(check["sample"] for check in counted), counted


def without_cost(check: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in check.items() if name not in ("read", "taken_over")}
