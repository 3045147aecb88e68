"""The operator that confirms snapshots, starts approvals of refused ones, and sends events and lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidefold_airflow.observability.assets import TABLES, announce, asset_in
from tidefold_airflow.observability.lineage import lineage_of
from tidefold_airflow.operators.approval_run import ask_about, find_asked, needs_answer, still_waits
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors, open_scope, require_ran, waiting_logs
from tidefold_airflow.ui.mount import address, snapshot_path

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from tidefold.domain.log_state import Snapshot
    from tidefold.operations.outcome import Outcome


class TidefoldConfirmOperator(TidefoldLogOperator):
    """
    Confirms and publishes every log whose verdict allows it. Fails if a log did not pass.

    Logs of a set are published together, or not at all: the first of their tasks decides for all of them.

    Sends an asset event for each table that shows a new snapshot (`tidefold_airflow.observability.assets.table_asset`).

    :param approval_dag: The DAG that asks a person where the gate refused (`tidefold_approval_dag`). The snapshot then
        stays STAGED, and the run continues without it. In a set, all its logs wait for the answer. None: nobody is
        asked, and the log fails.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def __init__(self, *, approval_dag: str | None = None, **kwargs: Any) -> None:
        outlets = [outlet for outlet in kwargs.pop("outlets", ()) if outlet != TABLES]
        super().__init__(outlets=[*outlets, TABLES], **kwargs)
        self.approval_dag = approval_dag
        self._waiting: frozenset[str] = frozenset()
        self._lineage: OperatorLineage[Any, Any] | None = None

    def execute(self, context: Context) -> Summary:
        """Confirms snapshots that passed, and starts approvals of those that did not."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            require_ran(context)
        self._waiting = waiting_logs(context)
        return self._report(scope, self.act_on_all(scope), context)

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.errors import GateFailedError
        from tidefold.operations.sets.confirm import confirm_log

        if log in self._waiting and self.approval_dag:
            return still_waits(scope, log, self.approval_dag)
        try:
            outcome = confirm_log(scope.pipeline, log, run_id=scope.run)
        except GateFailedError:
            staged = scope.pipeline.ledger(log).read().open_of(scope.run)
            if self.approval_dag is None or staged is None:
                raise
            return ask_about(self.approval_dag, log, staged)
        if outcome.error and self.approval_dag and scope.pipeline.config.set_of(log):
            return self._ask_for_set(scope, log, self.approval_dag) or outcome
        return outcome

    def _ask_for_set(self, scope: TaskScope, log: str, dag: str) -> Outcome | None:
        """Asks about this log of a held set if its gate refused; None: no answer of a person would help."""
        state = scope.pipeline.ledger(log).find()
        staged = state.open_of(scope.run) if state else None
        if staged and needs_answer(staged):
            return ask_about(dag, log, staged)
        return find_asked(scope, log)

    def _report(self, scope: TaskScope, outcomes: list[Outcome], context: Context) -> Summary:
        shown = {o.log: o.snapshot for o in outcomes if not o.error and o.snapshot is not None}
        published = _find_published(scope, shown)
        for log, snapshot in published.items():
            announce(context, asset_in(scope.pipeline.config, log), _describe(log, snapshot, self.config))
        self._lineage = lineage_of(scope.pipeline, published)
        return report(outcomes, context)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Returns inputs and outputs for OpenLineage, which calls this in the process that ran the task."""
        return self._lineage


def report_page(log: str, snapshot: int, config: str | None) -> str:
    """Returns the address of a stored report."""
    return address(f"{snapshot_path(log, snapshot, config)}/report")


def _find_published(scope: TaskScope, shown: dict[str, int]) -> dict[str, Snapshot]:
    found = {log: scope.pipeline.ledger(log).read().snapshot(snapshot) for log, snapshot in shown.items()}
    return {log: snapshot for log, snapshot in found.items() if snapshot and snapshot.published}


def _describe(log: str, snapshot: Snapshot, config: str | None) -> dict[str, Any]:
    """Returns the content of an asset event: small, and JSON."""
    verdict = snapshot.verdict
    return {
        "log": log,
        "snapshot": snapshot.id,
        "version": snapshot.table_version,
        "rows": snapshot.rows,
        "verdict": verdict.summary if verdict else "",
        "override_by": verdict.override_by if verdict else None,
        "report": report_page(log, snapshot.id, config),
    }
