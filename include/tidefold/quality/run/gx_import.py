"""Loads Great Expectations on first use, without the libraries that judging never needs."""

from __future__ import annotations

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

# Great Expectations imports every library that it finds. The clients of object stores, which judging never uses, are
# hidden from that import. Libraries of single expectations (statistics, charts, Spark's machine learning) are loaded
# when they are needed.
_HIDDEN = ("pyspark.ml", "boto3", "botocore", "sqlalchemy")
_LATER = frozenset({"scipy.stats", "altair"})
_one_at_a_time = threading.RLock()


def load() -> None:
    """Loads Great Expectations, so that its seconds do not count as the cost of a log's checks."""
    with _one_at_a_time:
        # Before the import, which reads it.
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        if "great_expectations.expectations" in sys.modules:
            return
        # At the level of Airflow's tasks it writes 300 lines about its own classes.
        logger = logging.getLogger("great_expectations")
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
        with _hide_unused(), _load_later(), pause_collection():
            import great_expectations.expectations  # noqa: F401


def load_for_spark() -> None:
    """Loads what Great Expectations needs to judge on Spark, also in a process that has judged without it."""
    with _one_at_a_time:
        load()
        from great_expectations.compatibility import pyspark
        from pyspark.ml.feature import Bucketizer

        pyspark.Bucketizer = Bucketizer
        # A module that is loaded by its first use must not be used by two threads first.
        getattr(sys.modules.get("scipy.stats"), "norm", None)


@contextmanager
def _hide_unused() -> Iterator[None]:
    hidden = [name for name in _HIDDEN if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: Python's way to say that there is none
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


class _LaterFinder(MetaPathFinder):
    """Finds the modules that are executed when one of their names is used."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in _LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextmanager
def _load_later() -> Iterator[None]:
    finder = _LaterFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
