"""Operators that do one thing to each log, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tidefold_airflow.observability.links import ReportLink, SnapshotLink
from tidefold_airflow.observability.metrics import of_status, send
from tidefold_airflow.operators.approval_run import waits
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import Logs, Scope, airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome


class TidefoldLogOperator(BaseOperator):
    """Base of the operators that do one thing to each log.

    :param logs, only, config: as for TidefoldSparkOperator.
    """

    template_fields: Sequence[str] = ("logs", "config", "only")
    operator_extra_links = (SnapshotLink(), ReportLink())

    def __init__(self, *, logs: Logs = (), config: str | None = None, only: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.logs = logs
        self.config = config
        self.only = list(only)

    def execute(self, context: Context) -> Summary:
        """Does it to every log, whatever happens to the others, then fails if it failed for some."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
        return report(self.act_on_all(scope), context)

    def act_on_all(self, scope: Scope) -> list[Outcome]:
        """One outcome a log."""
        from tidefold.operations.outcome import for_each_log

        return for_each_log(scope.logs, lambda log: self.act(scope, log))

    def act(self, scope: Scope, log: str) -> Outcome:
        """The one thing."""
        raise NotImplementedError


class TidefoldChooseOperator(TidefoldLogOperator):
    """Gives the names of the logs that the run works on, for tasks that are mapped over them; refuses unknown ones."""

    def execute(self, context: Context) -> list[str]:  # type: ignore[override]
        """The configured order, which is also that of the task instances."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
        from tidefold.operations.inspect.status import status

        send(of_status(status(scope.pipeline, scope.logs), datetime.now(UTC)))
        self.log.info("This run works on %s.", ", ".join(scope.logs))
        return scope.logs


class TidefoldAbortOperator(TidefoldLogOperator):
    """Aborts what this run began and did not confirm; nothing is open after a good run. Meant as a teardown.

    :param approval_dag: the DAG that asks people about snapshots which the gate refused: one that waits for an answer
        stays.
    :param logs, config: as for TidefoldSparkOperator.
    """

    def __init__(self, *, approval_dag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval_dag = approval_dag

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.snapshot.abort import abort

        if self.approval_dag and (waiting := waits(scope, log, self.approval_dag)):
            return waiting
        return abort(scope.pipeline, log, f"run {scope.run} did not confirm it", run_id=scope.run)


class TidefoldTailOperator(TidefoldLogOperator):
    """Takes a tail-only snapshot of each log: complete at once, one small file, never published."""

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.snapshot.tail import take_tail

        return take_tail(scope.pipeline, log, scope.run)


class TidefoldVerifyOperator(TidefoldLogOperator):
    """Looks at every copy of every file of each log; fails, without a retry, where damage is left.

    :param deep: read all bytes; else only presence and length are looked at.
    :param repair: repair from a copy that is proved good.
    :param logs, config: as for TidefoldSparkOperator.
    """

    def __init__(self, *, deep: bool = True, repair: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deep = deep
        self.repair = repair

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.verify.result import VerifyDetails
        from tidefold.operations.verify.verify import Asked, verify

        outcome = verify(scope.pipeline, log, Asked(deep=self.deep, repair=self.repair, record=True))
        if isinstance(outcome.details, VerifyDetails):
            for damage in outcome.details.damage:
                self.log.error("%s: %s", log, damage.to_dict())
        return outcome


class TidefoldDrillOperator(TidefoldLogOperator):
    """Restores the newest completed snapshot of each log into a scratch place, checks it and removes it again; fails,
    without a retry, where its rows cannot be had.

    :param scratch: folder below which it is restored (templated); default: `var/drill` beside the configuration.
    :param logs, config: as for TidefoldSparkOperator.
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "scratch")

    def __init__(self, *, scratch: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scratch = scratch

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.restore.drill import Trial, drill_newest

        return drill_newest(scope.pipeline, log, Trial(self.scratch))
