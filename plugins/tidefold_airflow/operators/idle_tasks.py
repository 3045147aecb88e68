"""Finds the tasks of a run that would do nothing, so that Airflow starts no process for them.

The task before them finds this out in its own process and skips them. A skipped task still runs if it is cleared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import DownstreamTasksSkipped

from tidefold.errors import TidefoldError
from tidefold.operations.outcome import Outcome, Status

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold_airflow.operators.results import Summary
    from tidefold_airflow.operators.run_context import TaskScope

# A task, or one copy of a mapped task.
Skipped = str | tuple[str, int]


def find_idle_retention(task: Any, scope: TaskScope) -> list[Skipped]:
    """Returns the retention tasks after this one that would delete nothing now."""
    from tidefold_airflow.operators.retention import TidefoldRetentionOperator

    after = [one for one in _list_after(task) if isinstance(one, TidefoldRetentionOperator)]
    return [one.task_id for one in after if _is_idle(one, scope)]


def find_idle_steps(task: Any, scope: TaskScope, context: Context) -> list[Skipped]:
    """Returns the tasks after an ingest without news: all if no log has anything to fold, to publish or to abort."""
    steps = {getattr(one, "task_type", ""): one for one in _list_after(task)}
    fold, abort = steps.get("TidefoldMaterializeOperator"), steps.get("TidefoldAbortOperator")
    quality, confirm = steps.get("TidefoldQualityOperator"), steps.get("TidefoldConfirmOperator")
    if not (fold and quality and confirm and abort) or not _is_folded(scope, task.render_template(fold.kind, context)):
        return []
    copies = [(confirm.task_id, index) for index in range(-1, len(scope.logs))]
    return [fold.task_id, quality.task_id, *copies, abort.task_id, *find_idle_retention(task, scope)]


def skip(tasks: Iterable[Skipped], summary: Summary, context: Context) -> NoReturn:
    """Ends the task with success and skips others. The result of the task is kept."""
    context["ti"].xcom_push("return_value", summary)
    raise DownstreamTasksSkipped(tasks=list(tasks))  # type: ignore[no-untyped-call]


def is_without_work(outcomes: Iterable[Outcome]) -> bool:
    """Whether nothing was done, and nothing failed."""
    return all(outcome.status is Status.NOTHING and not outcome.error for outcome in outcomes)


def _is_idle(task: Any, scope: TaskScope) -> bool:
    try:
        return is_without_work(task.remove(scope, dry_run=True))
    except TidefoldError:
        return False


def _is_folded(scope: TaskScope, kind: str | None) -> bool:
    from tidefold.domain.snapshot.kind_selection import KindPolicy
    from tidefold.operations.snapshot.materialize import prepare
    from tidefold.operations.snapshot.request import Fold

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
    """Returns the tasks after this one in its own group: a DAG may have several groups of tidefold."""
    return [one for one in task.get_flat_relatives(upstream=False) if _name_group(one) == _name_group(task)]


def _name_group(task: Any) -> str | None:
    """Returns the id of the group of a task; None: it is in none."""
    return task.task_group.group_id if task.task_group else None
