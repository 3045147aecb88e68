"""The thin operators by themselves, on a real store: what they do to the logs of a task, without a scheduler."""

from __future__ import annotations

import json
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from airflow.sdk.exceptions import AirflowFailException

import airflow
import tidefold_airflow
from support import fake_approvals
from support.page_store import Story
from support.pipelines import CONFIG, judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.snapshot.claim import WatchedAttempt
from tidefold.errors import RefusedError
from tidefold.operations.ground.heartbeat import find_stalled
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ingest.stop_resume import stop
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline
from tidefold_airflow import operators
from tidefold_airflow.dags.factory import tidefold_dag
from tidefold_airflow.observability.assets import TABLES
from tidefold_airflow.operators.confirm import _take_turns
from tidefold_airflow.operators.spark import INSTANT
from tidefold_airflow.provider import get_provider_info


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Snapshot 1 of `accounts` is published, and one more change waits."""
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": "a"} for i in range(20)])
    materialize(made, ["accounts"], Fold("run-1"), in_process)
    judge_all(made)
    confirm(made, "accounts")
    put(made, [{"id": 1, "text": "b"}])
    return made


def execute(kind: type[Any], pipeline: Pipeline, run: str = "manual-1", **given: Any) -> Any:
    """What a task of that operator returns."""
    task = kind(task_id="task", config=str(pipeline.config.path), **given)
    instance = SimpleNamespace(
        xcom_push=lambda key, value: None, task_id="task", task=SimpleNamespace(upstream_list=[])
    )
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id=run), "ti": instance}
    # Airflow wraps `execute`, so that only its task runner calls it.
    return kind.execute.__wrapped__(task, context)


def test_tail_takes_one_a_run_and_a_retry_finds_it(pipeline: Pipeline) -> None:
    first = execute(operators.TidefoldTailOperator, pipeline, logs=["accounts"])
    assert first == {"accounts": {"result": "completed", "snapshot": 2, "error": None}}
    assert execute(operators.TidefoldTailOperator, pipeline, logs=["accounts"])["accounts"]["result"] == "already"
    found = pipeline.ledger("accounts").read().snapshots[-1]
    assert (found.kind, found.run) == (SnapshotKind.TAIL, "dag/manual-1")


def test_tail_fails_for_a_log_that_was_never_materialized_and_names_it(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "a"}], log="tellers")
    with pytest.raises(AirflowFailException, match=r"1 of 2 logs failed\. tellers: \[NOTHING_MATERIALIZED\]"):
        execute(operators.TidefoldTailOperator, pipeline)
    assert len(pipeline.ledger("accounts").read().snapshots) == 2


def test_clean_reports_the_store_beside_the_logs(pipeline: Pipeline) -> None:
    found = execute(operators.TidefoldCleanOperator, pipeline)
    assert {log: what["result"] for log, what in found.items()} == {
        "(store)": "nothing", "accounts": "nothing", "tellers": "nothing",
    }  # fmt: skip


def test_choose_returns_the_logs_of_many_that_have_something_to_do(tmp_path: Path) -> None:
    names = [f"log_{number:03d}" for number in range(101)]
    log = CONFIG[CONFIG.index("  accounts:") : CONFIG.index("  tellers:")]
    for name in names:
        (tmp_path / "landing" / name).mkdir(parents=True)
    config = tmp_path / "tidefold.yaml"
    config.write_text("version: 1\nstore: store\nlogs:\n" + "".join(log.replace("accounts", name) for name in names))
    made = open_pipeline(config)
    choose = partial(execute, operators.TidefoldListLogsOperator, made)
    assert choose() == choose(logs=names) == names
    # Where nobody has work, one log stays, so that the steps after it find that out.
    assert choose(skip_idle=True) == names[:1]
    put(made, [{"id": 1, "text": "a"}], log=names[7])
    (tmp_path / "landing" / names[50] / "what is this.txt").write_text("x")
    assert choose(skip_idle=True) == [names[7], names[50]]
    assert choose(skip_idle=True, logs=names[:100]) == [names[7], names[50]]
    assert choose(skip_idle=True, in_batches=True) == [[names[7]], [names[50]]]


def test_of_more_logs_than_airflow_maps_a_run_maps_only_those_with_news(tmp_path: Path) -> None:
    """`make bench-scale` has 5,000."""
    names = [f"log_{number:04d}" for number in range(1_100)]
    log = "  {0}:\n    source: {{format: debezium-json, connector: postgresql, path: landing/{0}}}\n"
    log += "    key: [id]\n    columns: {{id: int}}\n    key_groups: 4\n    buckets: 1\n"
    config = tmp_path / "tidefold.yaml"
    config.write_text("version: 1\nstore: store\nlogs:\n" + "".join(map(log.format, names)))
    for name in names:
        (tmp_path / "landing" / name).mkdir(parents=True)
    news = names[::25]
    for name in news:
        (tmp_path / "landing" / name / f"{name}+0+0000000000.json").write_text("{}\n")
    chosen = execute(operators.TidefoldListLogsOperator, open_pipeline(config), skip_idle=True)
    assert (len(chosen), chosen) == (44, news)
    # One task for each chosen log in `confirm`, and one task for all of them in every other step.
    dag = tidefold_dag("many", schedule=None, config=str(config))
    assert [task.task_id for task in dag.tasks if task.is_mapped] == ["confirm"]
    assert dag.get_task("choose").skip_idle


def test_of_more_logs_than_airflow_maps_each_has_its_turn() -> None:
    names = [f"log_{number:04d}" for number in range(3_000)]
    seen: set[str] = set()
    for run in range(20):
        turn = _take_turns(names, f"run-{run}")
        assert len(turn) == 1_000
        assert turn == sorted(turn)
        seen.update(turn)
    assert seen == set(names)
    assert _take_turns(names[:1_000], "run") == names[:1_000]


def materialize_task(pipeline: Pipeline, **given: Any) -> Any:
    return operators.TidefoldMaterializeOperator(task_id="task", config=str(pipeline.config.path), **given)


def test_materialize_takes_over_what_stands_still_if_it_may(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = pipeline.ledger("accounts").commit(lambda s: Fold("dead").claimant(pipeline)(s)).open_attempt
    assert dead
    waited: list[float] = []
    monkeypatch.setattr(find_stalled, "__defaults__", (waited.append,))
    scope = SimpleNamespace(pipeline=pipeline, logs=["accounts", "tellers"], run="dag/manual-1")
    assert materialize_task(pipeline)._build_request(scope) == Fold("dag/manual-1")
    assert waited == []
    # From a template it comes as text.
    asked = materialize_task(pipeline, takeover_after="600")._build_request(scope)
    assert (asked, waited) == (Fold("dag/manual-1", stalled={"accounts": WatchedAttempt(dead, 0)}), [600.0])


def test_so_little_that_spark_is_not_worth_its_start_is_done_by_the_task_itself(pipeline: Pipeline) -> None:
    """Here is no connection to Spark: a job would fail."""
    config = pipeline.config.path
    config.write_text(config.read_text().replace("store: store", "store: store\nspark: {above: 1MB}"))
    done = execute(operators.TidefoldMaterializeOperator, pipeline)
    assert {log: what["result"] for log, what in done.items()} == {"accounts": "staged", "tellers": "nothing"}


def test_only_materialize_takes_over(pipeline: Pipeline) -> None:
    with pytest.raises(TypeError, match="takeover_after"):
        operators.TidefoldQualityOperator(task_id="task", takeover_after=600)


def test_scrub_reads_its_share_repairs_and_raises_an_alarm_that_names_file_and_command(pipeline: Pipeline) -> None:
    whole = execute(operators.TidefoldScrubOperator, pipeline, share="100%")
    assert {log: what["result"] for log, what in whole.items()} == {"accounts": "whole", "tellers": "nothing"}
    [file, *_] = Path(pipeline.store.uri("snapshots/accounts/0000000001/_data")).iterdir()
    file.unlink()
    assert execute(operators.TidefoldScrubOperator, pipeline, logs=["accounts"])["accounts"]["result"] == "repaired"
    file.write_bytes(b"spoilt")
    Path(pipeline.store.uri(f"tables/accounts/_data/{file.name}")).unlink()
    said = rf"accounts: ALARM, data file .*{file.name}.*It means: .* Next: .*`tidefold restore accounts 1"
    for _ in range(2):
        with pytest.raises(AirflowFailException, match=said):
            execute(operators.TidefoldScrubOperator, pipeline, logs=["accounts"])
    with pytest.raises(AirflowFailException, match="SCRUB_SHARE_INVALID"):
        execute(operators.TidefoldScrubOperator, pipeline, share="half")


def test_drill_restores_the_newest_snapshot_and_fails_where_it_cannot(pipeline: Pipeline, tmp_path: Path) -> None:
    config = pipeline.config.path
    config.write_text(f"targets: ['{tmp_path / 'scratch'}']\n{config.read_text()}")
    found = execute(operators.TidefoldDrillOperator, pipeline, scratch=str(tmp_path / "scratch"))
    assert {log: (what["result"], what["snapshot"]) for log, what in found.items()} == {
        "accounts": ("passed", 1), "tellers": ("nothing", None),
    }  # fmt: skip
    segments = [entry.path for entry in pipeline.store.list("changelog")]
    files = [e.path for top in ("snapshots", "tables") for e in pipeline.store.list(top) if "/_data/" in e.path]
    pipeline.store.delete([*files, *segments])
    with pytest.raises(AirflowFailException, match=r"1 of 1 logs failed\. accounts: snapshot 1 cannot be restored"):
        execute(operators.TidefoldDrillOperator, pipeline, logs=["accounts"], scratch=str(tmp_path / "scratch"))
    known = pipeline.ledger("accounts").read().snapshot(1)
    assert known
    assert known.drill
    assert not known.drill.passed
    assert not list((tmp_path / "scratch").iterdir())


def test_as_of_takes_an_instant_that_has_passed_and_leaves_the_attempt_of_another_run(pipeline: Pipeline) -> None:
    """Bad input 95: the codes of the command line."""
    assert operators.TidefoldAsOfOperator(task_id="as_of").as_of == INSTANT
    with pytest.raises(TypeError, match="as_of"):
        operators.TidefoldQualityOperator(task_id="task", as_of=now())
    for text, code in (("", "AS_OF_MISSING"), ("2025-11-05", "AS_OF_INVALID"), ("2999-01-01T00:00Z", "AS_OF_FUTURE")):
        with pytest.raises(AirflowFailException, match=code):
            execute(operators.TidefoldAsOfOperator, pipeline, logs=["accounts"], as_of=text)
    ledger = pipeline.ledger("accounts")
    before = ledger.commit(Fold("run-2").claimant(pipeline))
    # All changes of these logs were committed at the very beginning of 1970.
    made = execute(operators.TidefoldAsOfOperator, pipeline, as_of="1970-01-01T00:00:00.000001Z", logs=["tellers"])
    assert made["tellers"]["result"] == "nothing"
    assert ledger.read() == before


def test_a_drill_writes_only_below_the_targets(pipeline: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(AirflowFailException, match="TARGET"):
        execute(operators.TidefoldDrillOperator, pipeline, scratch=str(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_stopped_log_is_resumed_once(pipeline: Pipeline, tmp_path: Path) -> None:
    stop(pipeline, "accounts", str(tmp_path / "saved"), by="ada", why="a move")
    with pytest.raises(RefusedError, match="accepts no changes"):
        put(pipeline, [{"id": 2, "text": "a"}])
    assert execute(operators.TidefoldResumeOperator, pipeline, logs=["accounts"])["accounts"]["result"] == "resumed"
    put(pipeline, [{"id": 2, "text": "a"}])
    assert execute(operators.TidefoldResumeOperator, pipeline, logs=["accounts"])["accounts"]["result"] == "nothing"


def test_the_example_dag_writes_before_it_folds_and_a_retry_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tidefold.yaml").write_text(
        "version: 1\nstore: store\nlogs: {orders: {order: arrival, key: [id],"
        " columns: {id: long, item: string, amount: long}}}\n"
    )
    monkeypatch.setenv("TIDEFOLD_CONFIG", str(tmp_path / "tidefold.yaml"))
    namespace: dict[str, Any] = {}
    exec((Path(__file__).parents[2] / "docs/examples/orders_dag.py").read_text(), namespace)
    dag = namespace["made"]
    after = {task.task_id for task in dag.get_task("write").get_flat_relatives(upstream=False)}
    assert {"tidefold.ingest", "tidefold.materialize"} < after
    for _ in range(2):
        dag.get_task("write").python_callable()
    made = open_pipeline(tmp_path / "tidefold.yaml")
    assert sum(c.rows for c in made.ledger("orders").read().change_sets) == 2


@pytest.mark.parametrize("name", operators.__all__)
def test_each_operator_says_which_parameters_are_templated(name: str) -> None:
    """A parameter is documented in the class, or in that to which its docstring sends the reader."""
    kind = getattr(operators, name)
    own = set(kind.template_fields) - {
        field for base in kind.__bases__ for field in getattr(base, "template_fields", ())
    }
    described = re.findall(r":param ([^:]+):((?:(?!:param).)*)", kind.__doc__, re.DOTALL)
    templated = {field.strip() for names, text in described if "templated" in text for field in names.split(",")}
    assert own - templated == set()


def test_the_package_offers_its_functions_and_describes_itself_to_airflow() -> None:
    assert {callable(getattr(tidefold_airflow, name)) for name in tidefold_airflow.__all__} == {True}
    with pytest.raises(AttributeError, match="no_such"):
        _ = tidefold_airflow.no_such  # type: ignore[attr-defined]
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    found = get_provider_info()
    jsonschema.validate(found, schema)
    [[module]] = [one["python-modules"] for one in found["operators"]]
    assert set(operators.__all__) <= set(dir(import_module(module)))
    for path in (*found["extra-links"], *found["notifications"]):
        module, _, name = path.rpartition(".")
        assert isinstance(getattr(import_module(module), name), type)


def test_airflow_knows_the_alias_of_the_tables_before_the_first_run(tmp_path: Path) -> None:
    """Else each of two confirm tasks that end at the same moment records it, and Airflow lets one of them fail."""
    from airflow.dag_processing.collection import _find_all_asset_aliases
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    dag = tidefold_dag("shop", schedule=None, config=str(tmp_path / "tidefold.yaml"))
    assert {alias.name for alias in _find_all_asset_aliases([LazyDeserializedDAG.from_dag(dag)])} == {TABLES.name}


def test_the_page_calls_every_operator_once() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "airflow.md").read_text()
    [block] = [
        text for text in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if " as o\n" in text
    ]
    exec(compile(block, "airflow.md", "exec"), {})
    called = re.findall(r"^    o\.(\w+)\(", block, re.MULTILINE)
    bases = {"TidefoldLogOperator", "TidefoldSparkOperator", "TidefoldRetentionOperator"}
    assert sorted(called) == sorted({*operators.__all__} - bases)


def test_the_log_of_a_restore_has_one_short_line_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(tmp_path)
    for number in (1, 2):
        story.land("branches", range(5 * number))
        story.ingest("branches")
        story.cycle("branches", number)
    given: dict[str, Any] = {"log_position": "replay", "is_dry_run": True, "logs": ["branches"]}
    for snapshot in (1, 2):
        capsys.readouterr()
        fake_approvals.execute(operators.TidefoldRestoreOperator, story.pipeline, "run-x", snapshot=snapshot, **given)
        lines = re.findall(r"key groups .*?(?= \[|$)", capsys.readouterr().out)
        files = story.pipeline.ledger("branches").read().snapshots[snapshot - 1].files
        assert len(lines) == files
        assert all(line.endswith(f" of snapshot {snapshot}: from local") and len(line) < 80 for line in lines), lines
