"""Loads Great Expectations on first use, without the libraries that judging never needs."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from tidefold.typed_json import pause_collection

# Great Expectations imports every library that it finds. The clients of object stores and databases, which judging
# never uses, are not found by that import. Libraries of single expectations (statistics, charts, schemas, Spark's
# machine learning) are loaded when they are needed.
_UNUSED = frozenset({"azure", "boto3", "botocore", "psycopg2", "pyspark.ml", "sqlalchemy"})
_LATER = frozenset({"altair", "jsonschema", "scipy.stats"})
_one_at_a_time = threading.RLock()


def load(without: str = "") -> None:
    """Loads Great Expectations, so that its seconds do not count as the cost of a log's checks.

    without: `pyspark` saves half a second of CPU in a process that will not judge on Spark.
    """
    with _one_at_a_time:
        # Before the import, which reads it.
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        if "great_expectations.expectations" in sys.modules:
            return
        # At the level of Airflow's tasks it writes 300 lines about its own classes.
        logger = logging.getLogger("great_expectations")
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
        with _load_used(without), pause_collection():
            import great_expectations.expectations  # noqa: F401

            # All of that is old now. Else the next collection searches it as if it were young, for a third of a second.
            # It is not left frozen: at the end of the process DuckDB would report what was not collected.
            gc.freeze()
            gc.unfreeze()


def load_for_spark() -> None:
    """Loads what Great Expectations needs to judge on Spark, also in a process that has judged without it."""
    with _one_at_a_time:
        load()
        from great_expectations.compatibility import pyspark

        if not pyspark.pyspark:
            raise RuntimeError("This process has loaded Great Expectations without pyspark.")
        from pyspark.ml.feature import Bucketizer

        pyspark.Bucketizer = Bucketizer
        # A module that is loaded by its first use must not be used by two threads first, nor sent to Spark's workers.
        getattr(sys.modules.get("scipy.stats"), "norm", None)
        getattr(sys.modules.get("jsonschema"), "validate", None)


class _UsedFinder(MetaPathFinder):
    """Finds no unused library, and others so that they are executed when one of their names is used.

    Only for the thread that made it: another one may open a store at the same time.
    """

    def __init__(self, unused: frozenset[str]) -> None:
        self._thread, self._unused = threading.get_ident(), unused

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if threading.get_ident() != self._thread:
            return None
        if fullname in self._unused:
            raise ModuleNotFoundError(f"A gate does not use {fullname}.", name=fullname)
        spec = PathFinder.find_spec(fullname, path) if fullname in _LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextmanager
def _load_used(without: str = "") -> Iterator[None]:
    finder = _UsedFinder(_UNUSED | {without})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
