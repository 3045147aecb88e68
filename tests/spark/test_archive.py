"""The archive of classes that `make install` leaves is really used by Spark's JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import archive_classes
from tidefold.spark.submit import ARCHIVE


def test_the_jvm_has_mapped_the_archive(spark: SparkSession) -> None:
    if not archive_classes.is_current():
        pytest.skip("the archive was made for another environment")
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid = jvm.java.lang.ProcessHandle.current().pid()
    assert str(ARCHIVE) in Path(f"/proc/{pid}/maps").read_text()
