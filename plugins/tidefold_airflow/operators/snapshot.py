"""Operators that end, take or prepare snapshots without a JVM: abort, tail-only snapshot, compaction of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidefold_airflow.operators.approval_run import waits
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import TaskScope, parse_boolean

if TYPE_CHECKING:
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
        from tidefold.operations.snapshot.tail import take_tail

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
