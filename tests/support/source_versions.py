"""Versions of a Delta table as Spark reads them and as tidefold does, in a form that compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidefold.sources.delta.log import DeltaLog, open_source
from tidefold.sources.delta.rows import AFTER, CHANGE, INSERT, read_changes, snapshot_rows
from tidefold.sources.delta.source_version import SourceVersion, read_files, read_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

Rows = Counter[str]
_UNFIT = ("struct", "map", "array<struct", "variant")
# Tables of ten rows: to compile a plan costs more than to run it, and one part of anything is enough.
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


@contextmanager
def small_tables(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with settings for tables of a few rows."""
    before = {name: spark.conf.get(name, None) for name in _SMALL}
    for name, value in _SMALL.items():
        spark.conf.set(name, value)
    try:
        yield spark
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def write_rows(rows: Iterable[Mapping[str, Any]], names: Mapping[str, str] | None = None) -> Rows:
    """Rows as they compare, each how often it is there. names: the columns to compare, and their names; None: all."""
    return Counter(
        str(sorted((own, _write(row[name])) for name, own in (names or dict(zip(row, row, strict=True))).items()))
        for row in rows
    )


def _write(value: Any) -> str:
    """One way for each value: of numbers whatever their type is, of times in UTC."""
    if isinstance(value, list):
        return str([_write(one) for one in value])
    if isinstance(value, (bytearray, bytes)):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, float) and value.is_integer() and str(value) != "-0.0":
        return str(int(value))
    return str(value)


def read_by_spark(spark: SparkSession, folder: Path, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a version, or of the newest one, which costs less; without columns that no log can have."""
    reader = spark.read.format("delta")
    table = (reader if version is None else reader.option("versionAsOf", version)).load(str(folder))
    fit = [name for name, kind in table.dtypes if not kind.startswith(_UNFIT)]
    return [row.asDict() for row in table.select(*(f"`{name}`" for name in fit)).collect()]


def read_versions(spark: SparkSession, folder: Path, after: int) -> dict[int, list[dict[str, Any]]]:
    """The rows of all versions after this one."""
    versions = [version for version in open_log(folder).versions if version > after]
    return {version: read_by_spark(spark, folder, None if version == versions[-1] else version) for version in versions}


def compare_version(
    log: DeltaLog, version: int, spark_rows: list[dict[str, Any]], before: Rows
) -> tuple[Rows, set[str]]:
    """Compares a version, and the changes that lead to it from the rows of the version before.

    Returns its rows and the kinds of its changes. Raises AssertionError.
    """
    table, commit = read_version(log, version), log.read_commit(version)
    names = {column.name: column.name for column in table.columns if column.type is not None}
    found = write_rows(snapshot_rows(log.store, table, read_files(log, version)).to_pylist(), names)
    expected = write_rows(spark_rows)
    assert found == expected, f"version {version}: {dict(found - expected)} instead of {dict(expected - found)}"
    changes = read_changes(log, commit, table).to_pylist()
    after = before.copy()
    for change in changes:
        [text] = write_rows([change], names)
        after[text] += 1 if change[CHANGE] in (INSERT, AFTER) else -1
    # Where columns change, the rows of the version before are other texts.
    if not any(action.meta_data for action in commit.actions):
        assert +after == found, f"changes of version {version}: {dict(+after - found)} instead of {dict(found - after)}"
    return found, {change[CHANGE] for change in changes}


def open_log(folder: Path) -> DeltaLog:
    """Opens the log of a table as it is now."""
    return DeltaLog(open_source(str(folder)))


def read_newest(log: DeltaLog) -> SourceVersion:
    """The newest version of a table."""
    assert log.newest is not None
    return read_version(log, log.newest)
