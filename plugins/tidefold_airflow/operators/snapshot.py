"""Operators around a snapshot without a JVM: list and write logs, retry records, abort, tail, compact."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidefold_airflow.observability.metrics import of_sets, of_status, send
from tidefold_airflow.operators.approval_run import waits
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import (
    TaskScope,
    airflow_errors,
    open_scope,
    open_set_scope,
    parse_boolean,
    require_one_log,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome


class TidefoldAbortOperator(TidefoldLogOperator):
    """
    Aborts the snapshots that this run began and did not confirm. Use it as a teardown.

    :param approval_dag: The DAG that asks people about snapshots that the gate refused. A snapshot that waits for an
        answer stays.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def __init__(self, *, approval_dag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval_dag = approval_dag

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.snapshot.abort import abort

        if self.approval_dag and (waiting := waits(scope, log, self.approval_dag)):
            return waiting
        return abort(scope.pipeline, log, f"run {scope.run} did not confirm it", run_id=scope.run)


class TidefoldTailOperator(TidefoldLogOperator):
    """
    Takes a tail-only snapshot of each log: it is complete at once, one small file, and never published.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.snapshot.compact_log import take_tail

        return take_tail(scope.pipeline, log, scope.run)


class TidefoldCompactLogOperator(TidefoldLogOperator):
    """
    Merges the waiting change sets of each log: only the changes that count stay. Rows and counts stay the same.

    :param only_due: Do nothing below the numbers of ``compaction``, and leave out what backfills may need.
    :param is_dry_run: Only report what would be merged. (templated: true or false)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "is_dry_run")

    def __init__(self, *, only_due: bool = False, is_dry_run: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.only_due = only_due
        self.is_dry_run = is_dry_run

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.snapshot.compact_log import compact_log

        return compact_log(scope.pipeline, log, parse_boolean("is_dry_run", self.is_dry_run), self.only_due)


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
        from tidefold.operations.snapshot.materialize import FEW_LOGS, find_busy_logs

        statuses = status(scope.pipeline, scope.logs)
        send(of_status(statuses, datetime.now(UTC)))
        if scope.pipeline.config.sets:
            send(of_sets(read_sets(scope.pipeline, statuses), datetime.now(UTC)))
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


class TidefoldWriteOperator(TidefoldLogOperator):
    """
    Appends changes to one log that the configuration names without a ``source``. Starts no Spark.

    ``changes`` gets the number of changes that the log has of this writer, and returns those after them: rows, lists of
    rows or Arrow tables. All of them are in the log when the task succeeds, and none if it fails. A retry or a cleared
    task continues where the log is, so nothing is lost or comes twice. ``uploads`` of the configuration limits batches,
    attempts and memory.

    :param changes: The function that returns the changes from an offset on.
    :param writer: The name of the writer. Tasks that run at the same time need different names.
    :param logs, only, config: As for TidefoldSparkOperator; one log. (templated)
    """

    def __init__(self, *, changes: Callable[[int], Iterable[Any]], writer: str = "airflow", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.changes = changes
        self.writer = writer

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.ingest.write_changes import write_changes

        with airflow_errors():
            require_one_log(scope)
        return write_changes(scope.pipeline, log, self.changes, self.writer)


class TidefoldRetryQuarantineOperator(TidefoldLogOperator):
    """
    Reads the refused records of each log again, with the current program and configuration, and ingests the readable
    ones.

    Each record is ingested once, also if the task is repeated.

    :param code: Only records that were refused for this reason, such as ``VALUE_INVALID``; None: all. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "code")

    def __init__(self, *, code: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.code = code

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.quarantine.retry import retry

        return retry(scope.pipeline, log, self.code or None)
