"""Thin operators over tidefold's operations: scope, one call, report. No operation runs while a DAG is parsed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from tidefold_airflow.outcomes import Summary, read_outcomes, report, result_path
from tidefold_airflow.scope import Scope, airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome

Step = Literal["ingest", "materialize", "quality"]
_OPERATIONS = {"ingest": "ingest", "materialize": "materialize", "quality": "judge"}


class TidefoldSparkOperator(SparkSubmitOperator):
    """Runs one step for all logs with ONE spark-submit, or without any when no log has work for it.

    :param step: `ingest`, `materialize` or `quality`.
    :param logs: the logs to work on (templated); none: all that the configuration names.
    :param config: path of `tidefold.yaml` (templated); default: TIDEFOLD_CONFIG.

    Returns ``{log: {result, snapshot, error}}``. A log's failure does not stop the other logs; the task fails naming
    it, without a retry unless trying again may help.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "logs", "config")

    def __init__(
        self, *, step: Step, logs: Sequence[str] | None = None, config: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(name=f"tidefold-{step}", **kwargs)
        self.step = step
        self.logs = logs
        self.config = config

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Asks without a JVM which logs have work, submits for those, reports what the job wrote."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
            pending = self._pending(scope)
            if not pending:
                self.log.info("Nothing to %s in %s: no Spark job started.", self.step, ", ".join(scope.logs))
                return {log: {"result": "nothing", "snapshot": None, "error": None} for log in scope.logs}
            return self._submit(scope, pending, context)

    def _pending(self, scope: Scope) -> list[str]:
        operation = importlib.import_module(f"tidefold.operations.{_OPERATIONS[self.step]}")
        arguments = (scope.pipeline, scope.logs) if self.step == "ingest" else (scope.pipeline, scope.logs, scope.run)
        return cast("list[str]", operation.pending(*arguments))

    def _submit(self, scope: Scope, logs: list[str], context: Context) -> Summary:
        result = result_path(scope, self.step, context["ti"].try_number)
        config = scope.pipeline.config
        self._prepare(scope, {"config": str(config.path), "logs": logs, "run": scope.run, "result": str(result)})
        try:
            super().execute(context)
        except AirflowException:
            # A job that ends in order with failed logs also exits non-zero: its outcomes say more than the exit code.
            outcomes = read_outcomes(result)
            if not any(outcome.error for outcome in outcomes):
                raise
            return report(outcomes, context)
        return report(read_outcomes(result), context)

    def _prepare(self, scope: Scope, request: dict[str, Any]) -> None:
        from tidefold.launch import job_env, job_path, spark_conf

        config = scope.pipeline.config
        self.application = str(job_path(self.step))
        self.application_args = [json.dumps({**request, "takeover": False})]
        self.conf = {**spark_conf(config), **(self.conf or {})}
        self.env_vars = {**job_env(config), **(self.env_vars or {})}


class TidefoldConfirmOperator(BaseOperator):
    """Confirms and publishes every log whose verdict allows it, then fails if some log did not pass. No JVM.

    :param logs, config: as for TidefoldSparkOperator.
    """

    template_fields: Sequence[str] = ("logs", "config")

    def __init__(self, *, logs: Sequence[str] | None = None, config: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.logs = logs
        self.config = config

    def execute(self, context: Context) -> Summary:
        from tidefold.operations.confirm import confirm

        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
            # A configured log that nothing has ever landed for is no failure.
            known = [log for log in scope.logs if scope.pipeline.ledger(log).exists()]
        return report(_each(known, lambda log: confirm(scope.pipeline, log, run_id=scope.run)), context)


class TidefoldAbortOperator(BaseOperator):
    """Aborts what this run began and did not confirm; nothing is open after a good run. No JVM. Meant as a teardown.

    :param logs, config: as for TidefoldSparkOperator.
    """

    template_fields: Sequence[str] = ("logs", "config")

    def __init__(self, *, logs: Sequence[str] | None = None, config: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.logs = logs
        self.config = config

    def execute(self, context: Context) -> Summary:
        from tidefold.operations.abort import abort

        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
        reason = f"run {scope.run} did not confirm it"
        return report(_each(scope.logs, lambda log: abort(scope.pipeline, log, reason, run_id=scope.run)), context)


def _each(logs: Iterable[str], operation: Callable[[str], Outcome]) -> list[Outcome]:
    """Calls the operation for every log, whatever it says about the others."""
    from tidefold.lifecycle.errors import TidefoldError
    from tidefold.operations.outcome import Outcome

    outcomes = []
    for log in logs:
        try:
            outcomes.append(operation(log))
        except TidefoldError as error:
            outcomes.append(Outcome.of_error(log, error))
    return outcomes
