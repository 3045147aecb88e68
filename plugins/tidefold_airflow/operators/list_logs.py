"""The operator that returns the logs of a run, for tasks that are mapped over them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidefold_airflow.observability.metrics import of_status, send
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context


class TidefoldListLogsOperator(TidefoldLogOperator):
    """
    Returns the names of the logs that the run works on, for tasks that are mapped over them. Refuses unknown logs.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def execute(self, context: Context) -> list[str]:  # type: ignore[override]
        """Returns the logs in configured order, which is also the order of mapped tasks."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
        from tidefold.operations.inspect.status import status

        send(of_status(status(scope.pipeline, scope.logs), datetime.now(UTC)))
        self.log.info("This run works on %s.", ", ".join(scope.logs))
        return scope.logs
