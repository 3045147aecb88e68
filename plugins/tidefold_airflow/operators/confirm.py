"""The operator that makes a snapshot count: it confirms, asks where the gate said no, tells who listens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidefold_airflow.observability.assets import TABLES, announce, asset_in
from tidefold_airflow.observability.lineage import lineage_of
from tidefold_airflow.operators.approval import Answer, Question, answer_of, ask
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import Scope, airflow_errors, open_scope, require_ran
from tidefold_airflow.ui.mount import address, snapshot_path

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from tidefold.domain.log_state import Snapshot
    from tidefold.operations.outcome import Outcome


class TidefoldConfirmOperator(TidefoldLogOperator):
    """Confirms and publishes every log whose verdict allows it; fails if some log did not pass.

    Sends an asset event for each table that shows a new snapshot (`tidefold_airflow.observability.assets.table_asset`).

    :param approval: where the gate said no, ask a person, who may take so long to answer; None: nobody is asked.
        Approved: the snapshot is published, and name and reason stay with it. Rejected, or no answer: it is aborted.
    :param logs, config: as for TidefoldSparkOperator. Mapped over single logs, none waits for another's answer.
    """

    def __init__(self, *, approval: timedelta | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[*kwargs.pop("outlets", ()), TABLES], **kwargs)
        self.approval = approval
        self._lineage: OperatorLineage[Any, Any] | None = None

    def execute(self, context: Context) -> Summary:
        """Confirms, or asks first."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
            require_ran(context)
            failed = _failed(scope) if self.approval else []
        if failed and self.approval:
            # Those that passed do not wait for an answer about those that did not.
            passed = [log for log in scope.logs if log not in {log for log, _ in failed}]
            self._confirm(scope, passed, None)
            ask(_question(failed, self.approval), context, failed=[log for log, _ in failed])
        return self._report(scope, self._confirm(scope, scope.logs, None), context)

    def execute_complete(self, context: Context, event: dict[str, Any], failed: list[str]) -> Summary:
        """Goes on after the answer."""
        answer = answer_of(event)
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
        self.log.info("%s by %s. %s", "Approved" if answer.approved else "Rejected", answer.by or "nobody", answer.why)
        passed = [log for log in scope.logs if log not in failed]
        outcomes = self._confirm(scope, passed, None) + self._confirm(scope, failed, answer)
        return self._report(scope, outcomes, context)

    def _confirm(self, scope: Scope, logs: Sequence[str], answer: Answer | None) -> list[Outcome]:
        from tidefold.operations.outcome import each_log

        return each_log(logs, lambda log: _confirmed(scope, log, answer))

    def _report(self, scope: Scope, outcomes: list[Outcome], context: Context) -> Summary:
        shown = {o.log: o.snapshot for o in outcomes if not o.error and o.snapshot is not None}
        published = _published(scope, shown)
        for log, snapshot in published.items():
            announce(context, asset_in(scope.pipeline.config, log), _told(log, snapshot))
        self._lineage = lineage_of(scope.pipeline, published)
        return report(outcomes, context)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """What was read and what is shown now, for OpenLineage; it asks in the process that ran the task."""
        return self._lineage


def _confirmed(scope: Scope, log: str, answer: Answer | None) -> Outcome:
    from tidefold.errors import GateFailedError
    from tidefold.operations.snapshot.abort import abort
    from tidefold.operations.snapshot.confirm import confirm

    if answer is None:
        return confirm(scope.pipeline, log, run_id=scope.run)
    if answer.approved:
        # An override without a name or a reason is refused there, as it is on the command line.
        return confirm(scope.pipeline, log, run_id=scope.run, override_by=answer.by or " ", why=answer.why or " ")
    who = f"rejected by {answer.by}" if answer.by else "rejected"
    abort(scope.pipeline, log, f"{who}: {answer.why or 'no reason given'}", run_id=scope.run)
    raise GateFailedError(
        "GATE_FAILED", f"The snapshot of `{log}` failed its quality gate and was {who}.", hint="It is aborted."
    )


def _failed(scope: Scope) -> list[tuple[str, Snapshot]]:
    """The logs whose snapshot of this run the gate refused and nobody let through."""
    from tidefold.domain.snapshot import claim

    found = []
    for log in scope.logs:
        state = scope.pipeline.ledger(log).find()
        mine = claim.of_run(state, scope.run) if state else None
        if mine and mine.open and mine.verdict and not mine.verdict.allows:
            found.append((log, mine))
    return found


def _question(failed: Sequence[tuple[str, Snapshot]], patience: timedelta) -> Question:
    names = ", ".join(log for log, _ in failed)
    lines = [f"- **{log}**, snapshot {s.id}: {_said(s)} ([report]({_page(log, s.id)}))" for log, s in failed]
    end = "Approve: publish it all the same, under your name. Reject: it is aborted, the table stays as it is."
    body = "\n".join(["The quality gate said no:", "", *lines, "", end])
    return Question(f"Publish {names} though the quality gate failed?", body, patience)


def _said(snapshot: Snapshot) -> str:
    """A summary may quote what was found in the data: as code, so that nothing of it is Markdown."""
    return f"`{(snapshot.verdict.summary if snapshot.verdict else 'not judged').replace('`', chr(39))}`"


def _page(log: str, snapshot: int) -> str:
    return address(f"{snapshot_path(log, snapshot)}/report")


def _published(scope: Scope, shown: dict[str, int]) -> dict[str, Snapshot]:
    found = {log: scope.pipeline.ledger(log).read().snapshot(snapshot) for log, snapshot in shown.items()}
    return {log: snapshot for log, snapshot in found.items() if snapshot and snapshot.published}


def _told(log: str, snapshot: Snapshot) -> dict[str, Any]:
    """What an asset event says: small, and JSON."""
    verdict = snapshot.verdict
    return {
        "log": log,
        "snapshot": snapshot.id,
        "version": snapshot.table_version,
        "rows": snapshot.rows,
        "verdict": verdict.summary if verdict else "",
        "override_by": verdict.override_by if verdict else None,
        "report": _page(log, snapshot.id),
    }
