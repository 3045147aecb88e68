"""The base of the operators that never start a JVM. Each acts on one log after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tidefold_airflow.observability.links import ReportLink, SnapshotLink
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import Logs, TaskScope, airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome


class TidefoldLogOperator(BaseOperator):
    """
    Base of the operators that act on one log after the other.

    The task returns ``{log: {result, snapshot, error, engine}}``. A failed log does not stop the other logs.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = ("logs", "config", "only")
    operator_extra_links = (SnapshotLink(), ReportLink())

    def __init__(self, *, logs: Logs = (), config: str | None = None, only: Sequence[str] = (), **kwargs: Any) -> None:
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
        from tidefold.operations.outcome import for_each_log

        return for_each_log(scope.logs, lambda log: self.act(scope, log))

    def act(self, scope: TaskScope, log: str) -> Outcome:
        """Acts on one log."""
        raise NotImplementedError
