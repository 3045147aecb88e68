"""Airflow's SparkSubmitOperator, imported without OpenLineage.

The provider of Spark imports the provider of OpenLineage, which most task processes never use: two thirds of the CPU
time that a task needs to read our DAG file. Here its functions are imported by their first call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

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

__all__ = ["SparkSubmitOperator"]
