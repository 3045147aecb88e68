"""The base of the operators that never start a JVM, what they return, and which tasks would do nothing."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.bases.operatorlink import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.removal_details import EVERYTHING, hosts_of
from tidefold.storage.safe_files import make_private_folder
from tidefold.storage.traffic import traffic
from tidefold_airflow.airflow_versions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    PlainXComArg,
)
from tidefold_airflow.observability.metrics import of_outcomes, send
from tidefold_airflow.operators.run_context import (
    Ids,
    TaskScope,
    airflow_errors,
    find_server,
    has_spark,
    open_scope,
)
from tidefold_airflow.ui.mount import address, run_path, snapshot_path

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

_log = logging.getLogger(__name__)

RETENTION_GROUP = "retention"
# How many copies a mapped task has at most. A copy costs Airflow about as much as the work on a hundred logs.
BATCHES = 8
Made = dict[str, int]
Summary = dict[str, dict[str, Any]]
# A task, or one copy of a mapped task.
Skipped = str | tuple[str, int]


class SnapshotLink(BaseOperatorLink):
    """The link to the snapshot that a task made; for several snapshots, to the page of the run."""

    name = "Snapshot page"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Returns the address below Airflow's; that of the run if the task names no snapshot."""
        return _link(ti_key, lambda log, snapshot: snapshot_path(log, snapshot, _config(operator)))


class ReportLink(BaseOperatorLink):
    """The link to the quality report of the snapshot that a task judged; for several, to the page of the run."""

    name = "Quality report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Returns the address below Airflow's; that of the run if the task names no snapshot."""
        config = _config(operator)
        return _link(ti_key, lambda log, snapshot: f"{snapshot_path(log, snapshot, config)}/report")


def _link(ti_key: TaskInstanceKey, path: Callable[[str, int], str]) -> str:
    made = read_made_snapshots(XCom.get_value(ti_key=ti_key, key="return_value"))
    if len(made) == 1:
        [(log, snapshot)] = made.items()
        return address(path(log, snapshot))
    return address(run_path(ti_key.dag_id, ti_key.run_id))


def _config(operator: BaseOperator) -> str | None:
    config = getattr(operator, "config", None)
    return config if isinstance(config, str) else None


def read_made_snapshots(returned: Any) -> Made:
    """Returns the snapshot of each log in the returned value of a task; none for other values."""
    if not isinstance(returned, Mapping):
        return {}
    told = {log: one.get("snapshot") for log, one in returned.items() if isinstance(one, Mapping)}
    return {log: snapshot for log, snapshot in told.items() if isinstance(log, str) and type(snapshot) is int}


def result_path(scope: TaskScope, context: Context) -> Path:
    """Returns the file for the outcomes of a job: one for each run, task, copy and try, so that no job reads another's.

    A person may choose the id of a run. Two ids never share a file name, and no id is too long for one.
    """
    ti = context["ti"]
    name = hashlib.sha256(json.dumps([scope.run, ti.task_id, ti.map_index, ti.try_number]).encode()).hexdigest()
    path = scope.pipeline.config.path.parent / "var" / "results" / f"{name}.json"
    make_private_folder(path.parent)
    path.unlink(missing_ok=True)
    return path


def report(outcomes: Sequence[Outcome], context: Context, has_events: bool = False) -> Summary:
    """Logs one line for each log and returns the XCom value. Raises an error that names the failed logs, if any.

    has_events: Airflow sends the events of a task only if it succeeds. If no retry may help, the task then succeeds,
    and the task that decides about the run names the failed logs.
    """
    send(of_outcomes(context["ti"].task_id.rpartition(".")[2], outcomes))
    summary = {outcome.log: _summarize(outcome) for outcome in outcomes}
    for outcome in outcomes:
        _log.log(logging.ERROR if outcome.error else logging.INFO, "%s: %s", outcome.log, outcome.message)
    if traffic.requests:
        _log.info("This task: %s.", traffic)
    failed = [o for o in outcomes if o.error]
    if failed:
        # A failed task returns nothing, but its results for the other logs must be visible.
        context["ti"].xcom_push("return_value", summary)
        failure = _failure(failed, len(outcomes))
        if not (has_events and _is_final(failure, context["ti"])):
            raise failure
        _log.error("%s Airflow still sends the events of the others.", failure)
    return summary


def _summarize(outcome: Outcome) -> dict[str, Any]:
    engine = outcome.details.engine
    summary = {"result": outcome.status.value, "snapshot": outcome.snapshot, "error": outcome.error_code}
    failed = {"exit_code": outcome.error.exit_code} if outcome.error else {}
    return {**summary, **failed, **({"engine": engine.value} if engine else {})}


def _failure(failed: Sequence[Outcome], of: int) -> AirflowException:
    kind = AirflowException if any(o.error and o.error.transient for o in failed) else AirflowFailException
    return kind(f"{len(failed)} of {of} logs failed. " + " ".join(f"{o.log}: {o.message}" for o in failed))


def _is_final(failure: AirflowException, instance: Any) -> bool:
    return isinstance(failure, AirflowFailException) or instance.try_number > instance.max_tries


def end_as_skipped(reason: str) -> NoReturn:
    """Ends the task as skipped. Airflow's page of its log shows only `Skipping task.`, so the reason is logged too."""
    _log.info("%s", reason)
    raise AirflowSkipException(reason)


class ChosenLogs(PlainXComArg):
    """The logs that a task before named, without a line from it in the graph. A task without them is skipped."""

    def iter_references(self) -> Iterator[Any]:
        """None: the tasks between them say what comes after what."""
        return iter(())

    def resolve(self, context: Mapping[str, Any], *more: Any, **named: Any) -> Any:
        """Returns the names, also of a task that returned them in batches."""
        logs = super().resolve(context, *more, **named)
        if logs is None:
            end_as_skipped(f"`{self.operator.task_id}` named no logs: it failed, or did not run.")
        return [log for batch in logs for log in ([batch] if isinstance(batch, str) else batch)]


def into_batches(logs: Sequence[str]) -> list[list[str]]:
    """Returns at most eight lists of logs, in their order: one copy of a mapped task works on each."""
    size = -(-len(logs) // BATCHES) or 1
    return [list(logs[first : first + size]) for first in range(0, len(logs), size)]


class TidefoldLogOperator(BaseOperator):
    """
    Base of the operators that act on one log after the other.

    The task returns ``{log: {result, snapshot, error, engine}}``. A failed log does not stop the other logs.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = ("logs", "config", "only")

    def __init__(self, *, logs: Ids = (), config: str | None = None, only: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.logs = logs
        self.config = config
        self.only = list(only)

    def execute(self, context: Context) -> Summary:
        """Acts on every log, then fails if some log failed."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
        return report(self.act_on_all(scope), context)

    def act_on_all(self, scope: TaskScope) -> list[Outcome]:
        """Returns one outcome for each log."""
        from tidefold.operations.ground.outcome import for_each_log

        return for_each_log(scope.logs, lambda log: self.act(scope, log))

    def act(self, scope: TaskScope, log: str) -> Outcome:
        """Acts on one log."""
        raise NotImplementedError


# The task before them finds this out in its own process and skips them. A skipped task still runs if it is cleared.
def find_idle_retention(task: Any, scope: TaskScope) -> list[Skipped]:
    """Returns the retention tasks after this one that would delete nothing now.

    If one of them has work and decides about those after it, none: what it retires gives them work.
    """
    after = [one for one in _list_after(task) if getattr(one, "is_retention", False)]
    idle = [one for one in after if _is_idle(one, scope)]
    decides = any(getattr(one, "skip_idle", False) and one not in idle for one in after)
    return [] if decides else [one.task_id for one in idle]


def find_idle_steps(task: Any, scope: TaskScope, context: Context) -> list[Skipped]:
    """Returns the tasks after an ingest without news: all if no log has anything to fold, to publish or to abort."""
    steps = {getattr(one, "task_type", ""): one for one in _list_after(task)}
    fold, abort = steps.get("TidefoldMaterializeOperator"), steps.get("TidefoldAbortOperator")
    quality, confirm = steps.get("TidefoldQualityOperator"), steps.get("TidefoldConfirmOperator")
    if not (fold and quality and confirm and abort) or not _is_folded(scope, task.render_template(fold.kind, context)):
        return []
    copies = [(confirm.task_id, index) for index in range(-1, min(BATCHES, len(scope.logs)))]
    return [fold.task_id, quality.task_id, *copies, abort.task_id, *find_idle_retention(task, scope)]


def is_renewal(task: Any, context: Context) -> bool:
    """Whether the run was asked to make a full snapshot of each log, also without news."""
    from tidefold.domain.snapshot.claim import KindPolicy

    folds = (one for one in _list_after(task) if one.task_type == "TidefoldMaterializeOperator")
    return any(task.render_template(one.kind, context) == KindPolicy.FULL for one in folds)


def find_idle_run(task: Any, scope: TaskScope, context: Context) -> list[Skipped]:
    """Returns the tasks of a run without landed files that would do nothing, its ingest too; none if one has work."""
    ingest = next((one for one in _list_after(task) if one.task_type == "TidefoldIngestOperator"), None)
    idle = find_idle_steps(task, scope, context)
    if ingest is None or not idle:
        return []
    server = find_server(task.render_template(ingest.connect_conn_id, context))
    unread = has_spark(scope, server) and are_read_backs_due(scope)
    return [ingest.task_id, *idle, *([] if unread else find_read_backs(task))]


def find_read_backs(task: Any) -> list[Skipped]:
    """Returns the tasks after this one that read tables back only where Spark is."""
    return [one.task_id for one in _list_after(task) if getattr(one, "only_on_spark", False)]


def are_read_backs_due(scope: TaskScope) -> bool:
    """Whether a published snapshot was not proved yet: of this run, of a restore, of an approval, after an outage."""
    from tidefold.operations.verify.check_readers import is_due

    try:
        return any(is_due(scope.pipeline, log, True) for log in scope.logs)
    except TidefoldError:
        return True


def skip(tasks: Iterable[Skipped], summary: Any, context: Context) -> NoReturn:
    """Ends the task with success and skips others. The result of the task is kept."""
    context["ti"].xcom_push("return_value", summary)
    raise DownstreamTasksSkipped(tasks=list(tasks))  # type: ignore[no-untyped-call]


def skip_this(outcomes: Iterable[Outcome], summary: Summary, context: Context) -> NoReturn:
    """Ends the task as skipped, with a word for each log. The result of the task is kept."""
    context["ti"].xcom_push("return_value", summary)
    raise AirflowSkipException(" ".join(f"{outcome.log}: {outcome.message}" for outcome in outcomes))


def is_without_work(outcomes: Iterable[Outcome]) -> bool:
    """Whether nothing was done, and nothing failed."""
    return all(outcome.status in (Status.NOTHING, Status.SKIPPED) and not outcome.error for outcome in outcomes)


def _is_idle(task: Any, scope: TaskScope) -> bool:
    try:
        planned = task.remove(scope, dry_run=True, approved=EVERYTHING)
        # A list of hosts is only seen if the task runs.
        return is_without_work(planned) and not any(map(hosts_of, planned))
    except TidefoldError:
        return False


def _is_folded(scope: TaskScope, kind: str | None) -> bool:
    from tidefold.domain.snapshot.claim import KindPolicy
    from tidefold.operations.requests import Fold
    from tidefold.operations.snapshot.materialize import prepare

    request = Fold(scope.run, kind=KindPolicy(kind) if kind else None)
    try:
        return all(
            _is_published(scope, log) and is_without_work(_list_outcomes(prepare(scope.pipeline, log, request)))
            for log in scope.logs
        )
    except TidefoldError:
        return False


def _is_published(scope: TaskScope, log: str) -> bool:
    """Whether no attempt is open, and readers see the newest snapshot."""
    state = scope.pipeline.ledger(log).find()
    if state is None:
        return True
    return state.open_attempt is None and (state.latest is None or state.latest.published)


def _list_outcomes(planned: Any) -> list[Outcome]:
    return [planned] if isinstance(planned, Outcome) else [Outcome("", Status.PLANNED, "")]


def _list_after(task: Any) -> list[Any]:
    return [one for one in task.get_flat_relatives(upstream=False) if _name_group(one) == _name_group(task)]


def list_steps_before(task: Any) -> list[Any]:
    """Returns tidefold's tasks before this one in its own group, in the order in which they run."""
    before = [one for one in task.get_flat_relatives(upstream=True) if _name_group(one) == _name_group(task)]
    return sorted(before, key=lambda one: len(one.get_flat_relative_ids(upstream=True)))


def _name_group(task: Any) -> str:
    """Returns the id of the group of a task: a DAG may have several groups of tidefold. Retention is a part of one."""
    name = (task.task_group.group_id if task.task_group else None) or ""
    return str(name).removesuffix(RETENTION_GROUP).rstrip(".")
