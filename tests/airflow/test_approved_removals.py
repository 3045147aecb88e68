"""A person approved a removal: what is removable since then stays, whatever removes it. Promises I11, S4."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.execution_time import hitl

from support.pipelines import judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.removal_details import EVERYTHING, Approved
from tidefold.operations.requests import Fold
from tidefold.operations.retention.references import tag
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline
from tidefold_airflow import operators
from tidefold_airflow.operators.retention import TidefoldRetentionOperator

APPROVED = {"chosen_options": ["Approve"], "params_input": {"why": "old"}, "responded_by_user": {"name": "ann"}}
RETENTION = "store: store\nlocal: {mode: files, path: copies}\nretention: {snapshots: 1, grace_versions: 1}"


def publish(pipeline: Pipeline, run: str) -> None:
    put(pipeline, [{"id": i, "text": run} for i in range(5)])
    fold(pipeline, run)
    confirm(pipeline, "accounts", Confirmation(run=run))


def fold(pipeline: Pipeline, run: str) -> None:
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)


def leave_behind(pipeline: Pipeline, run: str) -> None:
    """An aborted attempt whose files nobody deleted, and an old entry of a scratch folder."""
    put(pipeline, [{"id": 1, "text": run}])
    fold(pipeline, run)
    files = {p: p.read_bytes() for p in (pipeline.config.path.parent / "store").rglob("*") if p.is_file()}
    abort(pipeline, "accounts", "dead", run_id=run)
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(data)
    scratch = pipeline.config.path.parent / "var" / "results" / run
    scratch.mkdir(parents=True)
    os.utime(scratch, (0, 0))


@dataclass(frozen=True, slots=True)
class Removal:
    """A task that removes something. more: makes more of it removable."""

    operator: type[TidefoldRetentionOperator]
    more: Callable[[Pipeline, str], None]


REMOVALS = {
    "subsume": Removal(operators.TidefoldSubsumeOperator, publish),
    "truncate": Removal(operators.TidefoldTruncateOperator, publish),
    "local retention": Removal(operators.TidefoldLocalRetentionOperator, publish),
    "clean": Removal(operators.TidefoldCleanOperator, leave_behind),
}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    made = make_pipeline(tmp_path)
    made.config.path.write_text(made.config.path.read_text().replace("store: store", RETENTION))
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)
    return open_pipeline(made.config.path)


class Question:
    """A task that asks a person, who approves. shown: what the person saw."""

    def __init__(self, pipeline: Pipeline, removal: Removal, monkeypatch: pytest.MonkeyPatch) -> None:
        self._task = removal.operator(
            task_id="remove", logs=["accounts"], config=str(pipeline.config.path), approval=timedelta(hours=1)
        )
        instance = SimpleNamespace(
            id="id", task_id="remove", task=SimpleNamespace(upstream_list=[]), xcom_push=lambda key, value: None
        )
        self._context: Any = {"dag_run": SimpleNamespace(dag_id="dag", run_id="r"), "ti": instance}
        self.shown: list[str] = []
        monkeypatch.setattr(self._task.log, "info", self._note)
        with pytest.raises(TaskAwaitingInput) as asked:
            type(self._task).execute.__wrapped__(self._task, self._context)  # type: ignore[attr-defined]
        self._kept = asked.value.kwargs or {}

    def _note(self, message: str, *values: object) -> None:
        if "would remove" in message:
            self.shown.append(str(values[-1]))

    def approve(self) -> None:
        self._task.execute_complete(self._context, APPROVED, **self._kept)

    def is_shown(self, path: Path) -> bool:
        return any(str(path) == name or str(path).endswith(f"/{name}") for name in self.shown)


def list_files(root: Path) -> set[Path]:
    """Every file that a removal may take, and the entries of scratch folders. A ledger has older versions pruned."""
    stored = (path for name in ("store", "copies") for path in (root / name).rglob("*") if path.is_file())
    return {path for path in stored if "ledger" not in path.parts} | set((root / "var/results").glob("*"))


@pytest.mark.parametrize("kind", REMOVALS)
def test_what_was_seen_goes_and_what_is_removable_since_then_stays(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    removal, root = REMOVALS[kind], pipeline.config.path.parent
    for number in range(3):
        removal.more(pipeline, f"run-{number}")
    asked = Question(pipeline, removal, monkeypatch)
    removal.more(open_pipeline(pipeline.config.path), "meanwhile")
    stored = list_files(root)
    asked.approve()
    gone = stored - list_files(root)
    assert not [path for path in gone if not asked.is_shown(path)]
    state = open_pipeline(pipeline.config.path).ledger("accounts").read()
    retired = {f"snapshot {s.id}" for s in state.snapshots if s.state in (State.SUBSUMED, State.DELETED)}
    assert retired <= set(asked.shown)
    assert not state.truncated_to or f"change sets up to {state.truncated_to}" in asked.shown
    assert state.truncated_to if kind == "truncate" else gone
    # What stayed is removable, and the next approval removes it.
    again = Question(pipeline, removal, monkeypatch)
    before = list_files(root)
    again.approve()
    assert before - list_files(root)


def test_what_is_no_longer_removable_stays(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        publish(pipeline, f"run-{number}")
    asked = Question(pipeline, REMOVALS["subsume"], monkeypatch)
    tag(pipeline, "accounts", "kept", 2)
    asked.approve()
    state = pipeline.ledger("accounts").read()
    assert [s.id for s in state.snapshots if s.state is State.COMPLETED] == [2, 4]


def test_what_was_seen_of_one_log_is_of_no_other_log() -> None:
    seen = Approved(frozenset({("a", "snapshot 1"), ("a", "change sets up to 7"), ("b", "change sets up to 3")}))
    assert "snapshot 1" in seen.of("a")
    assert "snapshot 1" not in seen.of("b")
    assert [seen.of(log).cut for log in "abc"] == [7, 3, 0]
    assert EVERYTHING.of("a").cut is None
