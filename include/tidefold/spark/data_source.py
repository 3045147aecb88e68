"""The Spark data source `tidefold`: a log's rows or change sets as a DataFrame, in one line.

`spark.read.format("tidefold").option("config", "tidefold.yaml").option("log", "orders").load()`

Spark finds it by itself when this folder is on PYTHONPATH (`pyspark_tidefold`); elsewhere `register(spark)` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidefold.compute.spark_versions import SparkFeature, require_feature
from tidefold.errors import InvalidInputError

require_feature(SparkFeature.DATA_SOURCE)
from pyspark.sql.datasource import DataSource, DataSourceReader  # noqa: E402

# Spark imports this module before it looks any format up, in every session: all else is imported when it is used.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tidefold.domain.key_groups import Share
    from tidefold.operations.ground.read import What
    from tidefold.read.plan import ReadPlan

_OPTIONS = ("config", "log", "what", "snapshot", "since", "key", "share", "distribution", "set")


class TidefoldSource(DataSource):  # type: ignore[misc]  # pyspark is not type-checked here
    """Options: `config` path of tidefold.yaml, `log` its id, `what` one of table (default), live, log; `snapshot` id,
    `since` sqn, `key` JSON object, `share` as 2/8 with `distribution` split, union or broadcast (default: as the
    snapshot says); `set` a set's name: the rows of its published version. The plan is made by `load()` and stays what
    it was.
    """

    _plan: ReadPlan | None = None

    @classmethod
    def name(cls) -> str:
        return "tidefold"

    def schema(self) -> StructType:
        from tidefold.read.spark_reader import spark_schema

        self._plan = plan_of(self.options)
        return spark_schema(self._plan)

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidefold.read.spark_reader import PlanReader, spark_schema

        plan = self._plan or plan_of(self.options)
        if schema != spark_schema(plan):
            raise InvalidInputError("READ_SCHEMA", f"The given schema differs from the schema of `{plan.log}`.")
        return PlanReader(plan)


def register(spark: SparkSession) -> None:
    """Makes the format known to a session whose Python workers do not find `pyspark_tidefold` by themselves."""
    spark.dataSource.register(TidefoldSource)


def plan_of(options: Mapping[str, str]) -> ReadPlan:
    """The plan that the options ask for. Raises InvalidInputError for unknown ones, and what `plan_read` raises."""
    from tidefold.operations.ground.read import ReadRequest, What, plan_read
    from tidefold.wiring import open_pipeline

    for name in options:
        if name not in _OPTIONS:
            hint = "Give the log with `.option('log', ID).load()`." if name == "path" else ""
            raise _wrong(f"There is no option `{name}`. Known are: {', '.join(_OPTIONS)}.", hint)
    wanted = ReadRequest(
        what=_what(options),
        snapshot=_number(options, "snapshot", 1),
        since=_number(options, "since", 0),
        key=options.get("key"),
        share=_share(options),
    )
    pipeline, log = open_pipeline(Path(_require_option(options, "config")).absolute()), _require_option(options, "log")
    if of_set := options.get("set"):
        from tidefold.operations.sets.read import find_member

        if wanted.what is not What.TABLE or wanted.snapshot is not None:
            raise _wrong("`set` reads published rows; it works without `what` and `snapshot`.")
        wanted = replace(wanted, snapshot=find_member(pipeline, of_set, log).snapshot)
    return plan_read(pipeline, log, wanted)


def _require_option(options: Mapping[str, str], name: str) -> str:
    if not options.get(name):
        raise _wrong(f"The option `{name}` is missing.", f"Add `.option('{name}', ...)`.")
    return options[name]


def _what(options: Mapping[str, str]) -> What:
    from tidefold.operations.ground.read import What

    value = options.get("what", What.TABLE)
    if value not in [what.value for what in What]:
        raise _wrong(f"`what` cannot be `{value}`. Allowed: {', '.join(What)}.")
    return What(value)


def _share(options: Mapping[str, str]) -> Share | None:
    from tidefold.domain.key_groups import RedistributionMode, Share

    text = options.get("distribution")
    if text is not None and (text not in list(RedistributionMode) or "share" not in options):
        raise _wrong(f"`distribution` cannot be `{text}` here. Allowed with `share`: {', '.join(RedistributionMode)}.")
    mode = None if text is None else RedistributionMode(text)
    return Share.parse(options["share"], mode) if "share" in options else None


def _number(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise _wrong(f"`{name}` cannot be `{text}`: it is a whole number from {least} on.")
    return int(text)


def _wrong(message: str, hint: str = "") -> InvalidInputError:
    return InvalidInputError("READ_OPTIONS", message, hint=hint or "docs/how-to/read.md explains every option.")
