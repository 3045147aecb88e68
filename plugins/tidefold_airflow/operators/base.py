"""Operators of the steps that never start a JVM. Each acts on one log after the other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tidefold_airflow.observability.links import ReportLink, SnapshotLink
from tidefold_airflow.observability.metrics import of_status, send
from tidefold_airflow.operators.approval_run import waits
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import Logs, TaskScope, airflow_errors, open_scope, parse_boolean

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


class TidefoldVerifyOperator(TidefoldLogOperator):
    """
    Checks every copy of every file of each log. Fails, without a retry, if damage remains.

    :param deep: Read all bytes; otherwise only presence and length are checked.
    :param repair: Repair from a copy that is proved to be intact.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def __init__(self, *, deep: bool = True, repair: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deep = deep
        self.repair = repair

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.verify.result import VerifyDetails
        from tidefold.operations.verify.verify import Asked, verify

        outcome = verify(scope.pipeline, log, Asked(deep=self.deep, repair=self.repair, record=True))
        if isinstance(outcome.details, VerifyDetails):
            for damage in outcome.details.damage:
                self.log.error("%s: %s", log, damage.to_dict())
        return outcome


class TidefoldDrillOperator(TidefoldLogOperator):
    """
    Restores the newest completed snapshot of each log into a scratch folder, checks it and deletes it again. Fails,
    without a retry, if the rows cannot be restored.

    :param scratch: Folder below which it is restored; default: ``var/drill`` next to the configuration. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "scratch")

    def __init__(self, *, scratch: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scratch = scratch

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.restore.drill import Trial, drill_newest

        return drill_newest(scope.pipeline, log, Trial(self.scratch))


class TidefoldCompactLogOperator(TidefoldLogOperator):
    """
    Merges the waiting change sets of each log: only the last change of each key stays. Rows and counts stay the same.

    :param is_dry_run: Only report what would be merged. (templated: true or false)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "is_dry_run")

    def __init__(self, *, is_dry_run: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = is_dry_run

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.snapshot.compact_log import compact_log

        return compact_log(scope.pipeline, log, parse_boolean("is_dry_run", self.is_dry_run))


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
