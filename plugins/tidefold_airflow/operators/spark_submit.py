"""The base of operators that run a step by spark-submit: Airflow's operator, imported without OpenLineage.

The provider of Spark imports the provider of OpenLineage, which most task processes never use: two thirds of the CPU
time that a task needs to read our DAG file. Here its functions are imported by their first call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tidefold_airflow.airflow_versions import AirflowException
from tidefold_airflow.operators.base import result_path
from tidefold_airflow.operators.run_context import TaskScope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.config import Config
    from tidefold.operations.outcome import Outcome
    from tidefold.operations.pipeline import Pipeline
    from tidefold.spark.steps import AnyStep

_LATER = "airflow.providers.openlineage.utils.spark"
# Imports all of these names at once.
_IMPORTER = "airflow.providers.common.compat.openlineage.utils.spark"


class _Later(ModuleType):
    """Stands for a module while another one imports functions from it."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(import_module(self.__name__), name)(*args, **kwargs)

        return call


@contextmanager
def _load_later() -> Iterator[None]:
    if _LATER in sys.modules or _IMPORTER in sys.modules or find_spec("airflow.providers.openlineage") is None:
        yield
        return
    sys.modules[_LATER] = _Later(_LATER)
    try:
        yield
    finally:
        del sys.modules[_LATER]


with _load_later():
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator


class TidefoldSubmitOperator(SparkSubmitOperator):
    """Runs a step for some logs in one job of spark-submit, where the connection says."""

    step: ClassVar[Literal["ingest", "materialize", "quality", "audit", "verify", "register"]]
    # Ends a driver on a cluster.
    _end_driver: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(name=f"tidefold-{self.step}", **kwargs)

    def on_kill(self) -> None:
        """Ends the driver, also one on a cluster."""
        self._end_driver()
        super().on_kill()

    def _submit(self, scope: TaskScope, step: AnyStep, logs: Sequence[str], context: Context) -> list[Outcome]:
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
        cluster = {"master": connection["master"], "conf": {**spark.conf, DEPLOY_MODE: mode}}
        config = pipeline.config.model_copy(update={"spark": spark.model_copy(update=cluster)})
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
        from tidefold.spark.steps import job_path
        from tidefold.spark.submit import job_env, spark_conf

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
