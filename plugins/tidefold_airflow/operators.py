"""Thin operators over tidefold's operations: scope, one call, report. No operation runs while a DAG is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from tidefold.operations.result_file import read_outcomes
from tidefold_airflow.outcomes import Summary, report, result_path
from tidefold_airflow.scope import Scope, airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.launch import Request
    from tidefold.operations.asking import Asking
    from tidefold.operations.outcome import Outcome


class TidefoldSparkOperator(SparkSubmitOperator):
    """Runs one step for all logs with ONE spark-submit, or without any when no log has rows to touch.

    :param step: `ingest`, `materialize` or `quality`.
    :param logs: the logs to work on (templated); none: all that the configuration names.
    :param config: path of `tidefold.yaml` (templated); default: TIDEFOLD_CONFIG.
    :param takeover_after: seconds (60 or more; templated) after which `materialize` supersedes an attempt of another
        run that shows no progress; None: never. It waits for so long only where such an attempt is open.

    Returns ``{log: {result, snapshot, error}}``. A log's failure does not stop the other logs; the task fails naming
    it, without a retry unless trying again may help.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "logs", "config", "takeover_after")

    def __init__(
        self,
        *,
        step: Literal["ingest", "materialize", "quality"],
        logs: Sequence[str] | None = None,
        config: str | None = None,
        takeover_after: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=f"tidefold-{step}", **kwargs)
        if takeover_after is not None and step != "materialize":
            raise ValueError(f"takeover_after is for materialize, not for {step}")
        self.step = step
        self.takeover_after = takeover_after
        self.logs = logs
        self.config = config

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Does without a JVM what can be done so, submits for the rest, reports what became of each log."""
        from tidefold.operations.steps import Step, without_spark

        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
            asking = self._asking(scope)
            found = without_spark(scope.pipeline, Step(self.step, asking), scope.logs)
            if not found.spark:
                self.log.info("No rows to touch in %s: no Spark job started.", ", ".join(scope.logs))
            submitted = self._submit(scope, asking, found.spark, context) if found.spark else []
        return report([*found.done, *submitted], context)

    def _asking(self, scope: Scope) -> Asking:
        from tidefold.operations.asking import Asking
        from tidefold.operations.heartbeat import find_stalled

        if self.takeover_after is None:
            return Asking(scope.run)
        patience = float(self.takeover_after)
        return Asking(scope.run, stalled=find_stalled(scope.pipeline, scope.logs, scope.run, patience))

    def _submit(self, scope: Scope, asking: Asking, logs: Sequence[str], context: Context) -> list[Outcome]:
        from tidefold.launch import Request

        result = result_path(scope, self.step, context["ti"].try_number)
        config = scope.pipeline.config
        self._prepare(scope, Request(str(config.path), tuple(logs), asking, str(result)))
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
        from tidefold.launch import job_env, job_path, spark_conf

        config = scope.pipeline.config
        self.application = str(job_path(self.step))
        self.application_args = [request.encoded()]
        self.conf = {**spark_conf(config), **(self.conf or {})}
        self.env_vars = {**job_env(config), **(self.env_vars or {})}


class TidefoldLogOperator(BaseOperator):
    """Base of the operators that do one thing to each log, without a JVM.

    :param logs, config: as for TidefoldSparkOperator.
    """

    template_fields: Sequence[str] = ("logs", "config")

    def __init__(self, *, logs: Sequence[str] | None = None, config: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.logs = logs
        self.config = config

    def execute(self, context: Context) -> Summary:
        """Does it to every log, whatever happens to the others, then fails if it failed for some."""
        from tidefold.operations.outcome import each_log

        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
        return report(each_log(scope.logs, lambda log: self.act(scope, log)), context)

    def act(self, scope: Scope, log: str) -> Outcome:
        """The one thing."""
        raise NotImplementedError


class TidefoldConfirmOperator(TidefoldLogOperator):
    """Confirms and publishes every log whose verdict allows it; fails if some log did not pass."""

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.confirm import confirm

        return confirm(scope.pipeline, log, run_id=scope.run)


class TidefoldAbortOperator(TidefoldLogOperator):
    """Aborts what this run began and did not confirm; nothing is open after a good run. Meant as a teardown."""

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.abort import abort

        return abort(scope.pipeline, log, f"run {scope.run} did not confirm it", run_id=scope.run)


class TidefoldSubsumeOperator(TidefoldLogOperator):
    """Retires completed snapshots beyond `retention.snapshots` and removes the files that only they need."""

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.subsume import subsume

        return subsume(scope.pipeline, log)


class TidefoldTruncateOperator(TidefoldLogOperator):
    """Cuts the log behind the kept snapshots and removes the segments that nothing needs any more."""

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.truncate import truncate

        return truncate(scope.pipeline, log)


class TidefoldLocalRetentionOperator(TidefoldLogOperator):
    """Removes this machine's local copies but that of each log's newest completed snapshot; never fails for a disk."""

    def execute(self, context: Context) -> Summary:
        """Looks at the local folder once for all logs."""
        from tidefold.operations.retain_local import retain_local

        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
            outcomes = retain_local(scope.pipeline, scope.logs)
        return report(outcomes, context)


class TidefoldTailOperator(TidefoldLogOperator):
    """Takes a tail-only snapshot of each log: complete at once, one small file, never published."""

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.tail import take_tail

        return take_tail(scope.pipeline, log, scope.run)


class TidefoldCleanOperator(TidefoldLogOperator):
    """Ends what died runs announced in the store, and removes what they and aborted attempts of each log left."""

    def execute(self, context: Context) -> Summary:
        """Cleans the store, then each log; one outcome more than logs: that of the store."""
        from tidefold.operations.clean import clean

        with airflow_errors():
            scope = open_scope(self.config, self.logs, context)
            outcomes = clean(scope.pipeline, scope.logs)
        return report(outcomes, context)


class TidefoldVerifyOperator(TidefoldLogOperator):
    """Looks at every copy of every file of each log; fails, without a retry, where damage is left.

    :param deep: read all bytes; else only presence and length are looked at.
    :param repair: repair from a copy that is proved good.
    :param logs, config: as for TidefoldSparkOperator.
    """

    def __init__(self, *, deep: bool = True, repair: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deep = deep
        self.repair = repair

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.verify import Asked, verify

        outcome = verify(scope.pipeline, log, Asked(deep=self.deep, repair=self.repair))
        for damage in outcome.facts.get("damage", ()):
            self.log.error("%s: %s", log, damage)
        return outcome


class TidefoldDrillOperator(TidefoldLogOperator):
    """Restores the newest completed snapshot of each log into a scratch place, checks it and removes it again; fails,
    without a retry, where its rows cannot be had.

    :param scratch: folder below which it is restored (templated); default: `var/drill` beside the configuration.
    :param logs, config: as for TidefoldSparkOperator.
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "scratch")

    def __init__(self, *, scratch: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scratch = scratch

    def act(self, scope: Scope, log: str) -> Outcome:
        from tidefold.operations.drill import Trial, drill_newest

        return drill_newest(scope.pipeline, log, Trial(self.scratch))
