"""Operators of the steps that may need Spark: ingest, materialize, quality, audit, and snapshots as of an instant.

They are thin: scope, one call, report. No operation runs while a DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk.exceptions import AirflowException

from tidefold.config.models.spark import is_connect
from tidefold.errors import GateFailedError
from tidefold.operations.outcome import ErrorInfo, Status
from tidefold_airflow.observability.links import ReportLink, SnapshotLink
from tidefold_airflow.operators.approval_run import explain_open, still_waits
from tidefold_airflow.operators.idle_tasks import find_idle_steps, is_without_work, skip
from tidefold_airflow.operators.results import Summary, report, result_path
from tidefold_airflow.operators.run_context import (
    Logs,
    TaskScope,
    airflow_errors,
    open_scope,
    require_ran,
    waiting_logs,
)
from tidefold_airflow.operators.spark_submit import SparkSubmitOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.config import Config
    from tidefold.operations.outcome import Outcome
    from tidefold.operations.pipeline import Pipeline
    from tidefold.operations.snapshot.request import Fold, PointInTime
    from tidefold.spark.steps import AnyStep


class TidefoldSparkOperator(SparkSubmitOperator):
    """
    Base of the operators of one step that may need Spark.

    A step runs for all logs with one spark-submit. It runs without Spark if no log has rows to fold, or if there are
    no more bytes to read than ``spark.above`` of the configuration. If ``spark.master`` is a Spark Connect server, the
    step runs in the task's process and sends its tasks there: no JVM is started, and the Spark connection is not used.

    The task returns ``{log: {result, snapshot, error, engine}}``. A failed log does not stop the other logs. The task
    then fails, names the failed logs, and retries only if a retry may help.

    :param logs: The logs to work on; none: all that the configuration names. (templated)
    :param only: The only logs that the DAG may work on; other logs are refused. Users who may see the DAG see them
        on the page. None: all. (templated)
    :param config: Path of ``tidefold.yaml``; default: ``TIDEFOLD_CONFIG``. (templated)
    """

    step: ClassVar[Literal["ingest", "materialize", "quality", "audit", "verify", "register"]]
    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "logs", "only", "config")
    operator_extra_links = (SnapshotLink(), ReportLink())
    # The DAG that asks a person about snapshots that the gate refused.
    approval_dag: str | None = None
    # Ends a driver on a cluster.
    _end_driver: Callable[[], None] = staticmethod(lambda: None)
    _is_connected = False

    def __init__(self, *, logs: Logs = (), config: str | None = None, only: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(name=f"tidefold-{self.step}", **kwargs)
        self.logs = logs
        self.config = config
        self.only = list(only)

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Runs the step without a JVM for the logs that need none, and submits a job for the others."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            outcomes = self._run_step(scope, context)
        return report(outcomes, context)

    def _run_step(self, scope: TaskScope, context: Context) -> list[Outcome]:
        from tidefold.spark.dispatch import run_without_spark

        step = self._build_step(scope)
        found = run_without_spark(scope.pipeline, step, scope.logs)
        if not found.spark:
            self.log.info("Nothing in %s needs Spark: no Spark job started.", ", ".join(scope.logs))
        submitted = self._submit(scope, step, found.spark, context) if found.spark else []
        return [self._explain_wait(scope, outcome) for outcome in (*found.done, *submitted)]

    def _build_step(self, scope: TaskScope) -> AnyStep:
        """Returns the step that the job or this process runs."""
        raise NotImplementedError

    def _explain_wait(self, scope: TaskScope, outcome: Outcome) -> Outcome:
        """Returns the outcome; if the log's open snapshot waits for a person, the outcome says so and is no failure."""
        # Query Airflow only if another attempt blocks this one.
        if self.approval_dag is None or outcome.error_code != "ATTEMPT_OPEN":
            return outcome
        return explain_open(scope, outcome.log, self.approval_dag) or outcome

    def _submit(self, scope: TaskScope, step: AnyStep, logs: Sequence[str], context: Context) -> list[Outcome]:
        if is_connect(scope.pipeline.config.spark.master):
            return self._run_connected(scope, step, logs)
        if (pipeline := self._find_cluster(scope.pipeline)) is not None:
            return self._submit_to_cluster(pipeline, step, logs, context)
        from tidefold.spark.request import Request, make_argument
        from tidefold.spark.result_file import read_outcomes

        result = result_path(scope, context)
        config = scope.pipeline.config
        argument = make_argument(Request(str(config.path), tuple(logs), step, str(result)))
        return self._run_job(config, (argument,), partial(read_outcomes, result), context)

    def _find_cluster(self, pipeline: Pipeline) -> Pipeline | None:
        """Returns the pipeline with the connection's master, if that master runs the driver; None: it runs here."""
        from tidefold.config.models.spark import DEPLOY_MODE

        connection, spark = self._get_hook()._connection, pipeline.config.spark
        mode = connection["deploy_mode"] or {**spark.conf, **(self.conf or {})}.get(DEPLOY_MODE)
        if mode in (None, "", "client"):
            return None
        there = {"master": connection["master"], "conf": {**spark.conf, DEPLOY_MODE: mode}}
        config = pipeline.config.model_copy(update={"spark": spark.model_copy(update=there)})
        return replace(pipeline, config=config)

    def _submit_to_cluster(
        self, pipeline: Pipeline, step: AnyStep, logs: Sequence[str], context: Context
    ) -> list[Outcome]:
        """Submits a job whose driver runs on the cluster: request and outcomes travel through the store."""
        from tidefold.spark.stored_job import delete_job, describe_application, receive_outcomes, send_job

        job = send_job(pipeline, step, logs)
        self._end_driver = partial(delete_job, pipeline.store, job)
        # A retry sends a job of its own.
        self.durable = False
        read, died = partial(receive_outcomes, pipeline.store, job), None
        try:
            outcomes = self._run_job(pipeline.config, job.arguments, read, context)
        except AirflowException as error:
            outcomes, died = [], error
        finally:
            # A driver that still works ends itself.
            self._end_driver()
        if outcomes:
            return outcomes
        where = describe_application(str(self._hook and self._hook._yarn_application_id))
        message = f"[JOB_DIED] The Spark job of {step.name} ended before it reported a result.{where}"
        raise AirflowException(message) from died

    def _run_job(
        self, config: Config, arguments: Sequence[str], read: Callable[[], list[Outcome]], context: Context
    ) -> list[Outcome]:
        """Runs spark-submit. `read` returns the outcomes that the job has stored."""
        from tidefold.spark.submit import job_env, job_path, spark_conf

        self.application = str(job_path(self.step))
        self.application_args = list(arguments)
        self.conf = {**spark_conf(config, self.step), **(self.conf or {})}
        self.env_vars = {**job_env(config), **(self.env_vars or {})}
        try:
            super().execute(context)
        except AirflowException:
            # A job that completed with failed logs also exits with an error code; its outcomes have the details.
            outcomes = read()
            if not any(outcome.error for outcome in outcomes):
                raise
            return outcomes
        return read()

    def _run_connected(self, scope: TaskScope, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Runs the step in the process of this task, on a Spark Connect server. Airflow's connection is not used."""
        from tidefold.compute.connect_session import close_connected
        from tidefold.spark.connect import run_connected

        self.log.info("The Spark Connect server of `spark.master` works on %s.", ", ".join(logs))
        self._is_connected = True
        try:
            return run_connected(scope.pipeline, step, logs)
        finally:
            close_connected()

    def on_kill(self) -> None:
        """Ends the driver, also one on a cluster; or cancels what a Spark Connect server does for this task."""
        if self._is_connected:
            from tidefold.compute.connect_session import interrupt_connected

            interrupt_connected()
            return
        self._end_driver()
        super().on_kill()


class TidefoldIngestOperator(TidefoldSparkOperator):
    """
    Ingests the landed files of each log.

    :param skip_idle: If nothing landed and no log has anything to fold or to publish, skip the tasks after this one
        that would do nothing.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "ingest"

    def __init__(self, *, skip_idle: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skip_idle = skip_idle

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Ingests, then finds out whether the tasks after this one have work."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            outcomes = self._run_step(scope, context)
        summary = report(outcomes, context)
        if self.skip_idle and is_without_work(outcomes) and (idle := find_idle_steps(self, scope, context)):
            skip(idle, summary, context)
        return summary

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import IngestStep

        return IngestStep()


class TidefoldMaterializeOperator(TidefoldSparkOperator):
    """
    Folds the new changes of each log into a snapshot, which is staged: readers do not see it.

    :param kind: ``full`` or ``incremental``; none: as the configuration says. (templated)
    :param takeover_after: Seconds (60 or more) after which an attempt of another run that shows no progress is
        superseded; None: never. The task waits only if such an attempt is open. (templated)
    :param approval_dag: The DAG that asks people about snapshots that the gate refused. A log that waits for an answer
        is left out, by name, and does not fail.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "materialize"
    template_fields: Sequence[str] = (*TidefoldSparkOperator.template_fields, "kind", "takeover_after")

    def __init__(
        self,
        *,
        kind: str | None = None,
        takeover_after: float | str | None = None,
        approval_dag: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.takeover_after = takeover_after
        self.approval_dag = approval_dag

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import MaterializeStep

        return MaterializeStep(self._build_request(scope))

    def _build_request(self, scope: TaskScope) -> Fold:
        from tidefold.domain.snapshot.kind_selection import KindPolicy
        from tidefold.operations.snapshot.heartbeat import find_stalled
        from tidefold.operations.snapshot.request import Fold

        kind = KindPolicy(self.kind) if self.kind else None
        if self.takeover_after is None:
            return Fold(scope.run, kind=kind)
        stalled = find_stalled(scope.pipeline, scope.logs, scope.run, float(self.takeover_after))
        return Fold(scope.run, kind=kind, stalled=stalled)


class TidefoldQualityOperator(TidefoldSparkOperator):
    """
    Judges the staged snapshot of each log and stores the verdict. A refused snapshot does not fail this task, but
    TidefoldConfirmOperator.

    :param approval_dag: As for TidefoldMaterializeOperator: logs that it left out are left out here, too.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "quality"

    def __init__(self, *, approval_dag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval_dag = approval_dag

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import QualityStep

        return QualityStep(scope.run)

    def _run_step(self, scope: TaskScope, context: Context) -> list[Outcome]:
        require_ran(context)
        if self.approval_dag is None:
            return super()._run_step(scope, context)
        waiting = waiting_logs(context)
        skipped = [still_waits(scope, log, self.approval_dag) for log in scope.logs if log in waiting]
        rest = replace(scope, logs=[log for log in scope.logs if log not in waiting])
        return [*super()._run_step(rest, context), *skipped]


class TidefoldAuditOperator(TidefoldSparkOperator):
    """
    Judges the newest completed snapshot of each log again, with the current suite. Fails if a check failed.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "audit"

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import AuditStep

        return AuditStep(scope.run)

    def _run_step(self, scope: TaskScope, context: Context) -> list[Outcome]:
        return [
            replace(outcome, error=ErrorInfo.of(GateFailedError("GATE_FAILED", outcome.message)))
            if outcome.status is Status.FAILED
            else outcome
            for outcome in super()._run_step(scope, context)
        ]


class TidefoldVerifyReadersOperator(TidefoldSparkOperator):
    """
    Compares each published table, as Delta's reader on Spark returns it, with what was judged.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "verify"

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import VerifyStep

        return VerifyStep()


class TidefoldRegisterOperator(TidefoldSparkOperator):
    """
    Registers published tables in the catalog of the configuration. Starts no Spark if all are registered.

    The tables are published already, so a failure is a warning in the log of the task, which then succeeds.

    :param strict: Fail if a table was not registered.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "register"

    def __init__(self, *, strict: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.strict = strict

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import RegisterStep

        return RegisterStep()

    def _run_step(self, scope: TaskScope, context: Context) -> list[Outcome]:
        from tidefold.operations.catalog.register import list_warnings

        try:
            outcomes = super()._run_step(scope, context)
        except Exception as error:
            if self.strict:
                raise
            self.log.warning("The catalog was not asked: %s. Then: `tidefold register`.", error)
            return []
        if self.strict:
            return outcomes
        for warning in list_warnings(outcomes):
            self.log.warning("%s", warning)
        return [replace(one, status=Status.REFUSED, error=None) if one.error else one for one in outcomes]


# A run by hand has no data interval.
INSTANT = "{{ params.get('as_of') or (data_interval_end if data_interval_end is defined else '') }}"


class TidefoldAsOfOperator(TidefoldSparkOperator):
    """
    Makes a snapshot of each log as of an instant. It is staged: TidefoldQualityOperator judges it, and
    TidefoldConfirmOperator completes it under a tag.

    The snapshot has what the source had committed before the instant. It is never published, and scheduled runs
    continue. A log without a commit before the instant gets no snapshot; nor does a log without commit
    times, unless ``logs`` names it: then it fails. A log that was truncated beyond the instant fails, and the error
    names the oldest possible instant.

    :param as_of: The instant with its time zone; default: the parameter ``as_of``, else the end of the data interval.
        (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "materialize"
    template_fields: Sequence[str] = (*TidefoldSparkOperator.template_fields, "as_of")

    def __init__(self, *, as_of: Any = INSTANT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.as_of = as_of

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import MaterializeStep

        return MaterializeStep(self._build_request(scope))

    def _build_request(self, scope: TaskScope) -> PointInTime:
        from tidefold.operations.snapshot.point_in_time import parse_instant
        from tidefold.operations.snapshot.request import PointInTime

        # A log without commit times is no failure if it was not named.
        return PointInTime(scope.run, parse_instant(str(self.as_of)), skip_undated=not self.logs)
