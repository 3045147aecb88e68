"""Operators of the steps that may need Spark: ingest, materialize, quality, audit, and snapshots as of an instant.

They are thin: scope, one call, report. No operation runs while a DAG is parsed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidefold.config.models.spark import Scheduled, is_connect
from tidefold.errors import GateFailedError, InvalidInputError
from tidefold.operations.ground.outcome import ErrorInfo, Status
from tidefold_airflow.operators import base, run_context
from tidefold_airflow.operators.approval_run import still_waits, waits
from tidefold_airflow.operators.spark_submit import TidefoldSubmitOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.ground.outcome import Outcome
    from tidefold.operations.requests import Fold, PointInTime, SnapshotRequest
    from tidefold.spark.steps import AnyStep

# How long a task without `execution_timeout` waits for a Spark Connect server, and how long before it another ends.
_PATIENCE = timedelta(minutes=10)
_BEFORE_TIMEOUT = timedelta(seconds=15)
# A run by hand has no data interval.
INSTANT = "{{ params.get('as_of') or (data_interval_end if data_interval_end is defined else '') }}"


class TidefoldSparkOperator(TidefoldSubmitOperator):
    """
    Base of the operators of one step that may need Spark.

    A step without rows runs without Spark. ``spark.scheduled`` of the configuration says where the others run:

    - ``connect``: on a Spark Connect server, whatever their size. The step runs in the task's process and sends its
      work there, so no JVM is started. If the server is away, the task waits for it until its ``execution_timeout``
      (10 minutes without one). This is the default if Airflow has the connection ``connect_conn_id``.
    - ``submit``: for all logs in one job of spark-submit, where ``conn_id`` says.
    - ``by_size``: as ``submit``, but up to ``spark.above`` bytes in the task's process. This is the default otherwise.

    The task returns ``{log: {result, snapshot, error, engine}}``. A failed log does not stop the other logs. The task
    then fails, names the failed logs, and retries only if a retry may help.

    :param logs: The logs to work on; none: all that the configuration names. (templated)
    :param only: The only logs that the DAG may work on; other logs are refused. Users who may see the DAG see them
        on the page. None: all. (templated)
    :param config: Path of ``tidefold.yaml``; default: ``TIDEFOLD_CONFIG``. (templated)
    :param connect_conn_id: Connection of the type ``spark_connect``. (templated)
    """

    template_fields: Sequence[str] = (
        *TidefoldSubmitOperator.template_fields, "logs", "only", "config", "connect_conn_id",
    )  # fmt: skip
    # The DAG that asks a person about snapshots that the gate refused.
    approval_dag: str | None = None
    # Skip the step where nothing but a JVM of its own would run it for a few rows.
    only_on_spark = False
    # Whether a Spark Connect server runs the step, or any Spark; known when it executes.
    on_server = on_spark = False
    _is_connected = False

    def __init__(
        self,
        *,
        logs: run_context.Ids = (),
        config: str | None = None,
        only: Sequence[str] = (),
        connect_conn_id: str = run_context.CONNECT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.connect_conn_id = connect_conn_id
        self.logs = logs
        self.config = config
        self.only = list(only)

    def execute(self, context: Context) -> base.Summary:  # type: ignore[override]
        """Runs the step without a JVM for the logs that need none, and submits a job for the others."""
        with run_context.airflow_errors():
            scope = run_context.open_scope(self.config, self.logs, context, self.only)
            outcomes = self._run_step(scope, context)
        return base.report(outcomes, context)

    def _run_step(self, scope: run_context.TaskScope, context: Context) -> list[Outcome]:
        return self.run_one_step(scope, self._build_step(scope), context)

    def run_one_step(self, scope: run_context.TaskScope, step: AnyStep, context: Context) -> list[Outcome]:
        """Runs a step without a JVM for the logs that need none, and where the configuration says for the others."""
        from tidefold.spark.dispatch import run_without_spark

        address = run_context.find_server(self.connect_conn_id)
        way, reason = scope.pipeline.config.spark.choose_scheduled(bool(address))
        self.on_server = way is Scheduled.CONNECT or is_connect(scope.pipeline.config.spark.master)
        self.on_spark = run_context.has_spark(scope, address)
        if self.only_on_spark and not self.on_spark:
            base.end_as_skipped(f"No Spark runs this step: {reason}.")
        above = None if way is Scheduled.BY_SIZE else 0
        local = run_without_spark(scope.pipeline, step, scope.logs, above=above)
        if not local.spark:
            self.log.info("Nothing in %s needs Spark: no Spark job started.", ", ".join(scope.logs))
            done: list[Outcome] = []
        elif self.on_server:
            self.log.info("The Spark Connect server works on %s: %s.", ", ".join(local.spark), reason)
            done = self._run_connected(scope, local.step, local.spark, address)
        else:
            self.log.info("spark-submit works on %s: %s.", ", ".join(local.spark), reason)
            done = self._submit(scope, local.step, local.spark, context)
        return [self._explain_wait(scope, outcome) for outcome in (*local.done, *done)]

    def _build_step(self, scope: run_context.TaskScope) -> AnyStep:
        """Returns the step that the job or this process runs."""
        raise NotImplementedError

    def _explain_wait(self, scope: run_context.TaskScope, outcome: Outcome) -> Outcome:
        """Returns the outcome; if the log's open snapshot waits for a person, the outcome says so and is no failure."""
        # Query Airflow only if another attempt blocks this one.
        if self.approval_dag is None or outcome.error_code != "ATTEMPT_OPEN":
            return outcome
        return waits(scope, outcome.log, self.approval_dag) or outcome

    def _run_connected(
        self, scope: run_context.TaskScope, step: AnyStep, logs: Sequence[str], address: str
    ) -> list[Outcome]:
        """Runs the step in the process of this task, on a Spark Connect server."""
        from tidefold.compute.connect_session import close_connected
        from tidefold.spark.connect import run_patiently

        if not address and not is_connect(scope.pipeline.config.spark.master):
            message = f"`spark.scheduled` is `connect`, and Airflow has no connection `{self.connect_conn_id}`."
            hint = "Make it, of the type `spark_connect`, or set `spark.master: sc://host:port`."
            raise InvalidInputError("CONNECT_NO_ADDRESS", message, hint=hint)
        # The task then ends by itself, with the reason.
        patience = self.execution_timeout - _BEFORE_TIMEOUT if self.execution_timeout else _PATIENCE
        ends = time.monotonic() + patience.total_seconds()
        self._is_connected = True
        try:
            return run_patiently(scope.pipeline, step, logs, address, lambda: ends, self.log.warning)
        finally:
            close_connected()

    def on_kill(self) -> None:
        """Ends the driver, also one on a cluster; or cancels what a Spark Connect server does for this task."""
        if self._is_connected:
            from tidefold.compute.connect_session import interrupt_connected

            interrupt_connected()
            return
        super().on_kill()


class TidefoldIngestOperator(TidefoldSparkOperator):
    """
    Ingests the landed files of each log.

    :param skip_idle: If nothing landed and no log has anything to fold or to publish, skip the tasks after this one
        that would do nothing; also the one that reads back, if it has no Spark.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "ingest"

    def __init__(self, *, skip_idle: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skip_idle = skip_idle

    def execute(self, context: Context) -> base.Summary:  # type: ignore[override]
        """Ingests, then finds out whether the tasks after this one have work."""
        with run_context.airflow_errors():
            scope = run_context.open_scope(self.config, self.logs, context, self.only)
            outcomes = self._run_step(scope, context)
        summary = base.report(outcomes, context)
        if self.skip_idle:
            idle = base.find_idle_steps(self, scope, context) if base.is_without_work(outcomes) else []
            if not self.on_spark or (idle and not base.are_read_backs_due(scope)):
                idle += base.find_read_backs(self)
            if idle:
                base.skip(idle, summary, context)
        return summary

    def _build_step(self, scope: run_context.TaskScope) -> AnyStep:
        from tidefold.spark.steps import IngestStep

        return IngestStep()


class TidefoldSnapshotOperator(TidefoldSparkOperator):
    """Base of the operators that make a snapshot of each log, as a request says."""

    step = "materialize"
    operator_extra_links = (base.SnapshotLink(), base.ReportLink())

    def _build_step(self, scope: run_context.TaskScope) -> AnyStep:
        from tidefold.spark.steps import MaterializeStep

        return MaterializeStep(self._build_request(scope))

    def _build_request(self, scope: run_context.TaskScope) -> SnapshotRequest:
        raise NotImplementedError


class TidefoldMaterializeOperator(TidefoldSnapshotOperator):
    """
    Folds the new changes of each log into a snapshot, which is staged: readers do not see it.

    :param kind: ``full`` or ``incremental``; none: as the configuration says. (templated)
    :param takeover_after: Seconds (60 or more) after which an attempt of another run that shows no progress is
        superseded; None: never. The task waits only if such an attempt is open. (templated)
    :param approval_dag: The DAG that asks people about snapshots that the gate refused. A log that waits for an answer
        is left out, by name, and does not fail.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

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

    def _build_request(self, scope: run_context.TaskScope) -> Fold:
        from tidefold.domain.snapshot.claim import KindPolicy
        from tidefold.operations.ground.heartbeat import find_stalled
        from tidefold.operations.requests import Fold

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
    operator_extra_links = (base.SnapshotLink(), base.ReportLink())

    def __init__(self, *, approval_dag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval_dag = approval_dag

    def _build_step(self, scope: run_context.TaskScope) -> AnyStep:
        from tidefold.spark.steps import QualityStep

        return QualityStep(scope.run)

    def _run_step(self, scope: run_context.TaskScope, context: Context) -> list[Outcome]:
        run_context.require_ran(context)
        if self.approval_dag is None:
            return super()._run_step(scope, context)
        waiting = run_context.waiting_logs(context)
        skipped = [still_waits(scope, log, self.approval_dag) for log in scope.logs if log in waiting]
        rest = replace(scope, logs=[log for log in scope.logs if log not in waiting])
        return [*super()._run_step(rest, context), *skipped]


class TidefoldAuditOperator(TidefoldSparkOperator):
    """
    Judges the newest completed snapshot of each log again, with the current suite. Fails if a check failed.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "audit"
    operator_extra_links = (base.SnapshotLink(), base.ReportLink())

    def _build_step(self, scope: run_context.TaskScope) -> AnyStep:
        from tidefold.spark.steps import AuditStep

        return AuditStep(scope.run)

    def _run_step(self, scope: run_context.TaskScope, context: Context) -> list[Outcome]:
        return [
            replace(outcome, error=ErrorInfo.of(GateFailedError("GATE_FAILED", outcome.message)))
            if outcome.status is Status.FAILED
            else outcome
            for outcome in super()._run_step(scope, context)
        ]


class TidefoldVerifyReadersOperator(TidefoldSparkOperator):
    """
    Compares each published table, as Delta's reader on Spark returns it, with what was judged, and records the proof.

    :param sample: Read only snapshots that were not read back, and of a large table a share of the files. Skip the task
        if neither a Spark Connect server nor ``spark.scheduled: submit`` is there.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "verify"

    def __init__(self, *, sample: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.only_on_spark = sample

    def _build_step(self, scope: run_context.TaskScope) -> AnyStep:
        from tidefold.spark.steps import VerifyStep

        return VerifyStep(self.only_on_spark)


class TidefoldAsOfOperator(TidefoldSnapshotOperator):
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

    template_fields: Sequence[str] = (*TidefoldSparkOperator.template_fields, "as_of")

    def __init__(self, *, as_of: Any = INSTANT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.as_of = as_of

    def _build_request(self, scope: run_context.TaskScope) -> PointInTime:
        from tidefold.operations.requests import PointInTime
        from tidefold.operations.snapshot.fold import parse_instant

        # A log without commit times is no failure if it was not named.
        return PointInTime(scope.run, parse_instant(str(self.as_of)), skip_undated=not self.logs)
