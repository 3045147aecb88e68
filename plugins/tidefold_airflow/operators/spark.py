"""Thin operators over tidefold's operations: scope, one call, report. No operation runs while a DAG is parsed.

The operator that makes snapshots as of an instant: `from tidefold_airflow.operators.spark import TidefoldAsOfOperator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from tidefold.errors import GateFailedError
from tidefold.operations.outcome import ErrorInfo, Status
from tidefold.spark.result_file import read_outcomes
from tidefold_airflow.observability.links import ReportLink, SnapshotLink
from tidefold_airflow.operators.approval_run import still_waits, waits
from tidefold_airflow.operators.results import Summary, report, result_path
from tidefold_airflow.operators.run_context import Logs, Scope, airflow_errors, open_scope, require_ran, waiting_logs

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome
    from tidefold.operations.snapshot.request import SnapshotRequest
    from tidefold.spark.steps import AnyStep
    from tidefold.spark.submit import Request


class TidefoldSparkOperator(SparkSubmitOperator):
    """Runs one step for all logs with ONE spark-submit, or without any when no log has rows to touch, or so
    few bytes that `spark.above` says to do it here.

    :param step: `ingest`, `materialize`, `quality` or `audit`, which fails where a check did.
    :param logs: the logs to work on (templated); none: all that the configuration names.
    :param only: the DAG works on these logs alone: any other is refused, and whoever may see the DAG sees these on the
        page; none: on all.
    :param config: path of `tidefold.yaml` (templated); default: TIDEFOLD_CONFIG.
    :param kind: `full` or `incremental` (templated): what `materialize` makes, if not as configured.
    :param takeover_after: seconds (60 or more; templated) after which `materialize` supersedes an attempt of another
        run that shows no progress; None: never. It waits for so long only where such an attempt is open.
    :param approval_dag: the DAG that asks people about snapshots which the gate refused: a log that waits for an answer
        is left out, by name, and does not fail.
    :param as_of: instant with its time zone (templated): `materialize` makes a snapshot of what was committed before
        it, which is kept by a tag and never published, instead of the next one. See `tidefold_airflow.operators.spark`.

    Returns ``{log: {result, snapshot, error}}``. A log's failure does not stop the other logs; the task fails naming
    it, without a retry unless trying again may help.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        *("logs", "only", "config", "kind", "takeover_after", "as_of"),
    )
    operator_extra_links = (SnapshotLink(), ReportLink())

    def __init__(
        self,
        *,
        step: Literal["ingest", "materialize", "quality", "audit", "verify"],
        logs: Logs = (),
        config: str | None = None,
        only: Sequence[str] = (),
        kind: str | None = None,
        takeover_after: float | str | None = None,
        as_of: Any = None,
        approval_dag: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=f"tidefold-{step}", **kwargs)
        for name, given in (("takeover_after", takeover_after), ("as_of", as_of)):
            if given is not None and step != "materialize":
                raise ValueError(f"{name} is for materialize, not for {step}")
        self.step = step
        self.kind = kind
        self.as_of = as_of
        self.takeover_after = takeover_after
        self.logs = logs
        self.config = config
        self.only = list(only)
        self.approval_dag = approval_dag

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Does without a JVM what can be done so, submits for the rest, reports what became of each log."""
        from tidefold.spark.dispatch import run_without_spark

        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            waiting: list[Outcome] = []
            if self.step == "quality":
                require_ran(context)
                scope, waiting = self._without_waiting(scope, context)
            step = self._build_step(scope)
            found = run_without_spark(scope.pipeline, step, scope.logs)
            if not found.spark:
                self.log.info("Nothing in %s is for Spark: no Spark job started.", ", ".join(scope.logs))
            submitted = self._submit(scope, step, found.spark, context) if found.spark else []
            done = [self._unless_waiting(scope, one) for one in (*found.done, *submitted)]
        return report([*(_coloured(self.step, one) for one in done), *waiting], context)

    def _without_waiting(self, scope: Scope, context: Context) -> tuple[Scope, list[Outcome]]:
        """The logs that `materialize` did not leave out, and what is to be said of the others."""
        if self.approval_dag is None:
            return scope, []
        waiting, dag = waiting_logs(context), self.approval_dag
        said = [still_waits(scope, log, dag) for log in scope.logs if log in waiting]
        return replace(scope, logs=[log for log in scope.logs if log not in waiting]), said

    def _unless_waiting(self, scope: Scope, outcome: Outcome) -> Outcome:
        """Looks into Airflow only where another attempt is in the way."""
        if self.approval_dag is None or outcome.error_code != "ATTEMPT_OPEN":
            return outcome
        return waits(scope, outcome.log, self.approval_dag) or outcome

    def _build_step(self, scope: Scope) -> AnyStep:
        from tidefold.spark.steps import AuditStep, IngestStep, MaterializeStep, QualityStep, VerifyStep

        if self.step in ("ingest", "verify"):
            return IngestStep() if self.step == "ingest" else VerifyStep()
        if self.step == "materialize":
            return MaterializeStep(self._build_request(scope))
        return QualityStep(scope.run) if self.step == "quality" else AuditStep(scope.run)

    def _build_request(self, scope: Scope) -> SnapshotRequest:
        from tidefold.domain.snapshot.kind_selection import Rule
        from tidefold.operations.snapshot.heartbeat import find_stalled
        from tidefold.operations.snapshot.point_in_time import parse_instant
        from tidefold.operations.snapshot.request import Fold, PointInTime

        if self.as_of is not None:
            return PointInTime(scope.run, parse_instant(str(self.as_of)))
        kind = Rule(self.kind) if self.kind else None
        if self.takeover_after is None:
            return Fold(scope.run, kind=kind)
        stalled = find_stalled(scope.pipeline, scope.logs, scope.run, float(self.takeover_after))
        return Fold(scope.run, kind=kind, stalled=stalled)

    def _submit(self, scope: Scope, step: AnyStep, logs: Sequence[str], context: Context) -> list[Outcome]:
        from tidefold.spark.submit import Request

        result = result_path(scope, self.step, context["ti"].try_number)
        config = scope.pipeline.config
        self._prepare(scope, Request(str(config.path), tuple(logs), step, str(result)))
        try:
            super().execute(context)
        except AirflowException:
            # A job that ends in order with failed logs also exits non-zero: its outcomes say more than the exit code.
            outcomes = read_outcomes(result)
            if not any(outcome.error for outcome in outcomes):
                raise
            return outcomes
        return read_outcomes(result)

    def _prepare(self, scope: Scope, request: Request) -> None:
        from tidefold.spark.submit import job_env, job_path, spark_conf

        config = scope.pipeline.config
        self.application = str(job_path(self.step))
        self.application_args = [request.encode()]
        self.conf = {**spark_conf(config), **(self.conf or {})}
        self.env_vars = {**job_env(config), **(self.env_vars or {})}


def _coloured(step: str, outcome: Outcome) -> Outcome:
    """A gate that says no is no failure of `quality`: confirm fails. Nothing follows an audit."""
    if step != "audit" or outcome.status is not Status.FAILED:
        return outcome
    return replace(outcome, error=ErrorInfo.of(GateFailedError("GATE_FAILED", outcome.message)))


# A run by hand has no data interval.
INSTANT = "{{ params.get('as_of') or (data_interval_end if data_interval_end is defined else '') }}"


class TidefoldAsOfOperator(TidefoldSparkOperator):
    """Makes a snapshot of each log as of an instant, staged: `quality` judges it, TidefoldConfirmOperator keeps it.

    It holds what was committed at the source before the instant. Nothing is published, and a scheduled run goes on
    beside it. A log of which nothing was committed before has none; one that was cut beyond the instant fails, naming
    the oldest possible one.

    :param as_of: the instant with its time zone (templated); default: the parameter `as_of`, else the end of the run's
        data interval.
    :param logs, config: as for TidefoldSparkOperator.
    """

    def __init__(self, *, as_of: Any = INSTANT, **kwargs: Any) -> None:
        super().__init__(step="materialize", as_of=as_of, **kwargs)
