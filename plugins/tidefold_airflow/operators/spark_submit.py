"""The base of operators that run a step by spark-submit: Airflow's operator, imported without OpenLineage.

The provider of Spark imports the provider of OpenLineage, which most task processes never use: two thirds of the CPU
time that a task needs to read our DAG file. Here its functions are imported by their first call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tidefold.errors import InvalidInputError
from tidefold_airflow.airflow_versions import AirflowException
from tidefold_airflow.operators.base import result_path
from tidefold_airflow.operators.run_context import TaskScope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.ground.outcome import Outcome
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

    # The step that it runs; of a plan, several.
    step: ClassVar[Literal["ingest", "materialize", "quality", "audit", "verify", "plan"]]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(name=f"tidefold-{self.step}", **kwargs)

    def _submit(self, scope: TaskScope, step: AnyStep, logs: Sequence[str], context: Context) -> list[Outcome]:
        from tidefold.spark.request import Request, make_argument
        from tidefold.spark.result_file import read_outcomes
        from tidefold.spark.steps import job_path
        from tidefold.spark.submit import job_env, spark_conf

        self._require_client()
        result, config, plan = result_path(scope, context), scope.pipeline.config, scope.pipeline.plan_of
        request = Request(str(config.path), tuple(logs), step, str(result), plan=plan.state.version if plan else None)
        self.application = str(job_path(step.name))
        self.application_args = [make_argument(request)]
        self.conf = {**spark_conf(config, step.name), **(self.conf or {})}
        self.env_vars = {**job_env(config), **(self.env_vars or {})}
        try:
            super().execute(context)
        except AirflowException:
            # A job that completed with failed logs also exits with an error code; its outcomes have the details.
            outcomes = read_outcomes(result)
            if not any(outcome.error for outcome in outcomes):
                raise
            return outcomes
        return read_outcomes(result)

    def _require_client(self) -> None:
        """Raises InvalidInputError if the connection, or the operator's `conf`, wants the driver on the cluster."""
        mode = self._get_hook()._connection["deploy_mode"] or (self.conf or {}).get("spark.submit.deployMode")
        if mode not in (None, "", "client"):
            raise InvalidInputError("DEPLOY_MODE", f"The driver should run in deploy mode `{mode}`.")
