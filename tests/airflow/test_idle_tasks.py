"""Tasks that would do nothing are skipped by the task before them, and start no process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped
from airflow.serialization.serialized_objects import DagSerialization
from airflow.ti_deps.deps.trigger_rule_dep import TriggerRuleDep

from support.pipelines import CONFIG, judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot import transitions
from tidefold.domain.verify.proof_record import ProofRecord, ReaderProof
from tidefold.operations.ground.outcome import Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.scope import write_proof
from tidefold.wiring import open_pipeline
from tidefold_airflow.dags.factory import Options, tidefold_dag, tidefold_group
from tidefold_airflow.dags.settings import AS_CONFIGURED
from tidefold_airflow.operators.base import into_batches

STEPS = ["materialize", "quality", ("confirm", -1), ("confirm", 0), ("confirm", 1), "abort"]
# Skipped also if there is work: no Spark Connect server is there.
NO_SERVER = ["read_back"]
KEEPING = [f"retention.{task}" for task in ("clean", "local_retention", "subsume", "truncate")]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Snapshot 1 of `accounts` is published, and `tellers` is empty."""
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": "a"} for i in range(20)])
    fold(made, "run-1")
    confirm(made, "accounts")
    return made


def fold(pipeline: Pipeline, run: str) -> None:
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)


def skipped_by(pipeline: Pipeline, task_id: str, kind: str = AS_CONFIGURED) -> list[Any]:
    """The tasks that a task skips; none if it only returns its result."""
    dag_id = f"dag_{task_id.rpartition('.')[2]}"
    task = tidefold_dag(dag_id, schedule=None, config=str(pipeline.config.path)).get_task(task_id)
    return skipped_by_task(task, kind)


def skipped_by_task(task: Any, kind: str = AS_CONFIGURED) -> list[Any]:
    task.logs = ["accounts", "tellers"]
    pushed: list[Any] = []
    instance = SimpleNamespace(
        xcom_push=lambda key, value: pushed.append(value), task_id=task.task_id, task=SimpleNamespace(upstream_list=[])
    )
    context = {
        "dag_run": SimpleNamespace(dag_id="dag", run_id="r"), "ti": instance, "params": SimpleNamespace(kind=kind),
    }  # fmt: skip
    try:
        type(task).execute.__wrapped__(task, context)
    except DownstreamTasksSkipped as skip:
        [returned] = pushed
        if isinstance(returned, dict):
            assert {what["result"] for what in returned.values()} == {"nothing"}
        else:
            assert returned == [["accounts"], ["tellers"]]
        return list(skip.tasks)
    return []


def retention_of(skipped: list[Any]) -> list[str]:
    return sorted(task for task in skipped if task in KEEPING)


def test_without_news_a_run_ends_after_its_ingest(pipeline: Pipeline) -> None:
    skipped = skipped_by(pipeline, "ingest")
    assert [task for task in skipped if task not in KEEPING] == [*STEPS, *NO_SERVER]
    assert "retention.subsume" in skipped


def test_without_landed_files_a_run_ends_with_its_choice(pipeline: Pipeline) -> None:
    skipped = skipped_by(pipeline, "choose")
    assert [task for task in skipped if task not in KEEPING] == ["ingest", *STEPS, *NO_SERVER]
    assert skipped_by(pipeline, "choose", kind="full") == []
    put(pipeline, [{"id": 1, "text": "b"}])
    assert skipped_by(pipeline, "choose") == []


def test_a_landed_file_is_work(pipeline: Pipeline) -> None:
    folder = pipeline.config.path.parent / "landing" / "tellers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tellers+0+0000000000.json").write_text("{}\n")
    assert skipped_by(pipeline, "choose") == []


def test_many_logs_share_eight_copies_in_their_order() -> None:
    for count in (0, 1, 8, 9, 200, 1_000):
        logs = [f"log_{number:04d}" for number in range(count)]
        batches = into_batches(logs)
        assert [log for batch in batches for log in batch] == logs
        assert len(batches) <= 8
        assert all(batches)
        assert count > 8 or all(len(one) == 1 for one in batches)


def test_changes_that_wait_are_work(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    assert skipped_by(pipeline, "ingest") == NO_SERVER


def test_an_open_attempt_is_work(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    fold(pipeline, "run-2")
    assert skipped_by(pipeline, "ingest") == NO_SERVER


def test_a_snapshot_that_readers_do_not_see_yet_is_work(pipeline: Pipeline) -> None:
    """After a crash between confirmation and publication a run without news publishes it (I1)."""
    put(pipeline, [{"id": 1, "text": "b"}])
    fold(pipeline, "run-2")
    pipeline.ledger("accounts").commit(lambda state: transitions.confirm(state, 2))
    assert skipped_by(pipeline, "ingest") == NO_SERVER


def test_what_would_delete_something_is_not_skipped(pipeline: Pipeline) -> None:
    config = pipeline.config.path
    config.write_text(config.read_text().replace("store: store", "store: store\nretention: {snapshots: 1}"))
    for run in ("run-2", "run-3"):
        put(pipeline, [{"id": 1, "text": run}])
        fold(pipeline, run)
        confirm(pipeline, "accounts")
    # `subsume` has work, and then decides about those after it: what it retires gives them work.
    assert retention_of(skipped_by(pipeline, "ingest")) == []


def test_subsume_skips_what_would_delete_nothing(pipeline: Pipeline) -> None:
    assert set(retention_of(skipped_by(pipeline, "retention.subsume"))) <= {*KEEPING} - {"retention.subsume"}
    assert "retention.clean" in skipped_by(pipeline, "retention.subsume")


def test_what_was_published_is_read_back_also_without_news(pipeline: Pipeline) -> None:
    """Of a restore, of an approval, after an outage; also where spark-submit runs the steps."""
    config = pipeline.config.path
    config.write_text(config.read_text().replace("store: store", "store: store\nspark: {scheduled: submit}"))
    proved = ReaderProof(1, "2026-11-28T00:00:00+00:00")
    found = []
    for proof in (None, replace(proved, error="Spark went away."), proved, replace(proved, snapshot=7)):
        if proof:
            write_proof(pipeline.store, "accounts", partial(_with_readers, proof))
        found.append("read_back" in skipped_by(pipeline, "ingest"))
    assert found == [False, False, True, False]


def _with_readers(proof: ReaderProof, before: ProofRecord) -> ProofRecord:
    return replace(before, number=before.number + 1, readers=proof)


def test_copies_of_other_hosts_are_listed_so_that_task_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L5: who looks after the hosts of a cluster reads them in its log."""
    more = (
        f'store: store\nspark: {{master: "spark://x:7077", above: 1TB}}\nlocal: {{mode: files, path: {tmp_path}/local}}'
    )
    made = make_pipeline(tmp_path, CONFIG.replace("store: store", more))
    for host in ("two", "one"):
        monkeypatch.setenv("TIDEFOLD_HOST", host)
        put(made, [{"id": i, "text": host} for i in range(20)])
        fold(made, host)
        confirm(made, "accounts")
    for task in ("ingest", "retention.subsume"):
        assert "retention.local_retention" not in retention_of(skipped_by(made, task))


def test_a_group_skips_its_own_tasks(pipeline: Pipeline) -> None:
    options = Options(config=str(pipeline.config.path))
    with DAG("two_groups", schedule=None) as dag:
        tidefold_group("one", options=options) >> tidefold_group("two", options=options)
    names = [one if isinstance(one, str) else one[0] for one in skipped_by_task(dag.get_task("one.ingest"))]
    assert {name.partition(".")[0] for name in names} == {"one"}


# A run without a scheduler: the operators skip, and Airflow's own rules say what becomes of the tasks after them.


class Simulated:
    """One run of the DAG. states: how each task ended."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._dag = tidefold_dag("dag", schedule=None, config=str(pipeline.config.path))
        self._serialized = DagSerialization.from_dict(DagSerialization.to_dict(self._dag))
        self.states: dict[str, str] = {}
        for task in self._dag.topological_sort():
            if task.task_id not in self.states:
                self.states[task.task_id] = self._decide(task.task_id) or self._act(task)

    @property
    def ran(self) -> set[str]:
        return {task.rpartition(".")[2] for task, state in self.states.items() if state == "success"}

    def _decide(self, task_id: str) -> str:
        """The state that Airflow gives a task without running it; empty: it runs."""
        task, told = self._serialized.get_task(task_id), list[str]()
        before = frozenset(task.upstream_task_ids)
        ended = [
            SimpleNamespace(task=self._serialized.get_task(one), task_id=one, map_index=-1, state=self.states[one])
            for one in before
        ]
        looked: Any = SimpleNamespace(
            flag_upstream_failed=True,
            ensure_finished_tis=lambda run, session: ended,
            upstream_task_id_counts={("dag", "r", before): [(one, 1) for one in before]},
            wait_for_past_depends_before_skipping=False,
            have_changed_ti_states=False,
        )
        instance: Any = SimpleNamespace(
            task=task, task_id=task_id, dag_id="dag", run_id="r", map_index=-1, get_dagrun=lambda session: None,
            set_state=lambda state, session=None: told.append(str(state.value)) or True,
        )  # fmt: skip
        session: Any = None
        if before:
            list(TriggerRuleDep()._evaluate_trigger_rule(ti=instance, dep_context=looked, session=session))
        return told[-1] if told else ""

    def _act(self, task: Any) -> str:
        steps: dict[str, Callable[[], object]] = {
            "materialize": lambda: fold(self._pipeline, "dag/r"),
            "confirm": lambda: confirm(self._pipeline, "accounts"),
            **dict.fromkeys(("choose", "quality", "alarms"), lambda: None),
        }
        if task.task_id in steps:
            steps[task.task_id]()
            return "success"
        if task.task_id == "abort":
            return "skipped"  # It finds nothing to abort.
        for skipped in execute(task):
            self.states[skipped if isinstance(skipped, str) else skipped[0]] = "skipped"
        return "success"


def execute(task: Any) -> list[Any]:
    """Runs a task, and returns those that it skips."""
    task.logs = ["accounts", "tellers"]
    instance = SimpleNamespace(
        xcom_push=lambda key, value: None, task_id=task.task_id, task=SimpleNamespace(upstream_list=[])
    )
    context = {
        "dag_run": SimpleNamespace(dag_id="dag", run_id="r"), "ti": instance,
        "params": SimpleNamespace(kind=AS_CONFIGURED),
    }  # fmt: skip
    try:
        type(task).execute.__wrapped__(task, context)
    except DownstreamTasksSkipped as skip:
        return list(skip.tasks)
    return []


@dataclass(frozen=True, slots=True)
class StoreState:
    """A state of the store. runs: which tasks have work, beside those that always run.

    snapshots: how many are published. news: changes wait. copies: old local copies are there; None: there are no local
    copies at all. retention: how many snapshots are kept. remains: a scratch folder has an old entry.
    """

    runs: set[str]
    snapshots: int = 1
    news: bool = False
    copies: bool | None = False
    retention: str = "all"
    remains: bool = False


ALWAYS = {"choose", "ingest", "alarms"}
NEWS = {"materialize", "quality", "confirm", "subsume"}
# The table: a state of the store, and which tasks run. `local_retention` and `clean` were skipped after a skipped one.
STORE_STATES = {
    "nothing new": StoreState(set()),
    "nothing new, no copies": StoreState(set(), copies=None),
    "news": StoreState(NEWS | {"local_retention"}, news=True),
    "news, no copies": StoreState(NEWS, news=True, copies=None),
    "news, no copies, remains": StoreState(NEWS | {"clean"}, news=True, copies=None, remains=True),
    "news, remains": StoreState(NEWS | {"local_retention", "clean"}, news=True, remains=True),
    "news, one kept": StoreState(NEWS | {"truncate", "local_retention"}, news=True, retention="1"),
    "news, one kept, no copies": StoreState(NEWS | {"truncate"}, news=True, retention="1", copies=None),
    "news, one kept, no copies, remains": StoreState(
        NEWS | {"truncate", "clean"}, news=True, retention="1", copies=None, remains=True
    ),
    "old copies": StoreState({"local_retention"}, snapshots=2, copies=True),
    "old copies, remains": StoreState({"local_retention", "clean"}, snapshots=2, copies=True, remains=True),
    "remains": StoreState({"clean"}, remains=True),
    "remains, no copies": StoreState({"clean"}, copies=None, remains=True),
    # The manifests of retired snapshots are for `clean`.
    "fewer kept": StoreState({"subsume", "truncate", "clean"}, snapshots=4, retention="1"),
    "fewer kept, no copies": StoreState({"subsume", "truncate", "clean"}, snapshots=4, retention="1", copies=None),
    "fewer kept, no copies, remains": StoreState(
        {"subsume", "truncate", "clean"}, snapshots=4, retention="1", copies=None, remains=True
    ),
    "fewer kept, old copies": StoreState(
        {"subsume", "truncate", "local_retention", "clean"}, snapshots=4, retention="1", copies=True
    ),
    "everything": StoreState(
        NEWS | {"truncate", "local_retention", "clean"},
        snapshots=4, news=True, retention="1", copies=True, remains=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORE_STATES)
def test_exactly_the_tasks_with_work_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Also after skipped ones. After the run nothing is left that a retention task would remove."""
    state = STORE_STATES[name]
    # Scratch folders of other processes of this machine are none of this store.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = make_pipeline(tmp_path / "root")
    path = made.config.path
    local = "" if state.copies is None else "local: {mode: files, path: copies}\n"
    text = path.read_text().replace("store: store\n", f"store: store\n{local}retention: {{snapshots: all}}\n")
    path.write_text(text)
    for number in range(state.snapshots):
        put(open_pipeline(path), [{"id": 1, "text": f"run-{number}"}])
        fold(open_pipeline(path), f"run-{number}")
        confirm(open_pipeline(path), "accounts")
    truncate(open_pipeline(path), "accounts")
    path.write_text(text.replace("snapshots: all", f"snapshots: {state.retention}"))
    pipeline = open_pipeline(path)
    if state.copies is False:
        retain_local(pipeline, ["accounts", "tellers"])
    if state.news:
        put(pipeline, [{"id": 1, "text": "news"}])
    if state.remains:
        old = path.parent / "var" / "results" / "old"
        old.mkdir(parents=True)
        os.utime(old, (0, 0))
    run = Simulated(pipeline)
    assert run.ran == ALWAYS | state.runs
    assert set(run.states.values()) <= {"success", "skipped"}
    after, logs = open_pipeline(path), ["accounts", "tellers"]
    planned = [*(subsume(after, log, plan=True) for log in logs), *(truncate(after, log, plan=True) for log in logs)]
    planned += [*retain_local(after, logs, plan=True), *clean(after, logs, plan=True)]
    assert {outcome.status for outcome in planned} == {Status.NOTHING}


def test_a_task_whose_logs_nobody_named_is_skipped(pipeline: Pipeline) -> None:
    """Retention starts after whatever happened, also if the task that names the logs failed."""
    dag = tidefold_dag("dag", schedule=None, config=str(pipeline.config.path))
    ti = SimpleNamespace(xcom_pull=lambda **_: None)
    for name in ("materialize", "quality", "read_back", "abort", *KEEPING):
        with pytest.raises(AirflowSkipException, match="`choose` named no logs"):
            dag.get_task(name).logs.resolve({"ti": ti})
