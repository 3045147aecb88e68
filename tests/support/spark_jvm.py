"""A Spark in this process whose context is changed for the tests that need other settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidefold.config import Config
from tidefold.spark.submit import spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkJvm:
    """Has one Spark context at a time. One with other settings takes its place, which is cheaper than another JVM."""

    def __init__(self, config: Config) -> None:
        self._settings = spark_conf(config)
        # A tenth of the CPU time is that of the threads of the default collector.
        self._settings["spark.driver.extraJavaOptions"] += " -XX:+UseSerialGC"
        self._current: tuple[str, Mapping[str, str]] = "", {}
        self._session: SparkSession | None = None

    def open_session(self, master: str = "local[2]", more: Mapping[str, str] | None = None) -> SparkSession:
        """Returns the session of a context with these settings, which is the present one if they are the same."""
        from pyspark.sql import SparkSession

        settings = {**self._settings, **(more or {})}
        if self._session and self._current == (master, settings):
            return self._session
        self.stop()
        builder = SparkSession.builder.master(master).appName("tidefold tests")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._session, self._current = builder.getOrCreate(), (master, settings)
        self._session.sparkContext.setLogLevel("ERROR")
        # At the very end it speaks to a stream that pytest has closed.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        return self._session

    def stop(self) -> None:
        if self._session:
            self._session.stop()
            self._session = None
