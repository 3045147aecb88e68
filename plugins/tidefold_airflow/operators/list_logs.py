"""The operator that returns the logs of a run, for tasks that are mapped over them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidefold_airflow.observability.metrics import of_sets, of_status, send
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import airflow_errors, open_scope, open_set_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

# Below Airflow's own default of `core.max_map_length`, 1,024.
_MOST = 1_000


class TidefoldListLogsOperator(TidefoldLogOperator):
    """
    Returns the names of the logs that the run works on, for tasks that are mapped over them. Refuses unknown logs.

    :param skip_idle: Of more than 100 logs, leave out those without landed files, changes to fold or open snapshots.
        A run works on at most 1,000 logs. It begins at another log each time, so each log has its turn.
    :param of_set: The set whose logs are chosen; None: as `logs` says. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "of_set")

    def __init__(self, *, skip_idle: bool = False, of_set: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skip_idle = skip_idle
        self.of_set = of_set

    def execute(self, context: Context) -> list[str]:  # type: ignore[override]
        """Returns the logs in configured order, which is also the order of mapped tasks."""
        with airflow_errors():
            if self.of_set:
                scope = open_set_scope(self.config, self.of_set, context, self.only)
            else:
                scope = open_scope(self.config, self.logs, context, self.only)
        from tidefold.operations.inspect.status import status
        from tidefold.operations.sets.status import read_sets
        from tidefold.operations.snapshot.idle import FEW_LOGS, find_busy_logs

        found = status(scope.pipeline, scope.logs)
        send(of_status(found, datetime.now(UTC)))
        if scope.pipeline.config.sets:
            send(of_sets(read_sets(scope.pipeline, found), datetime.now(UTC)))
        chosen = scope.logs
        if self.skip_idle and len(chosen) > FEW_LOGS:
            busy = find_busy_logs(scope.pipeline, chosen)
            # The steps need a log. One without news lets them find out that nothing is to be done.
            chosen = _take_turns(busy, scope.run) or chosen[:1]
            self.log.info(
                "%d of %d logs have something to do; %d of them wait for the next run.",
                len(busy),
                len(scope.logs),
                max(0, len(busy) - len(chosen)),
            )
        self.log.info("This run works on %s.", ", ".join(chosen))
        return chosen


def _take_turns(logs: list[str], run: str) -> list[str]:
    """Returns at most 1,000 logs in their order, as Airflow maps no more tasks by default."""
    if len(logs) <= _MOST:
        return logs
    first = int(hashlib.sha256(run.encode()).hexdigest(), 16) % len(logs)
    taken = {logs[(first + number) % len(logs)] for number in range(_MOST)}
    return [log for log in logs if log in taken]
