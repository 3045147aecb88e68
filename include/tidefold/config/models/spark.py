"""The structure of `spark` in `tidefold.yaml`: where Spark runs and which steps use it; sizes and times as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidefold.config.models.units import SizeLimit
from tidefold.yaml_files.document import ConfigProblem, YamlDocument
from tidefold.yaml_files.messages import StrictModel, Text, mistake, mistakes_below

_HOST = r"[A-Za-z0-9.-]+:[1-9]\d*"
_CONNECT = r"sc://[A-Za-z0-9.-]+(:[1-9]\d*)?(/(;(use_ssl|user_id)=[\w.@-]+)*)?"
_MASTER = (
    rf"({_CONNECT}|local(\[(\*|[1-9]\d*)\])?|local-cluster\[\d+,\d+,\d+\]|spark://{_HOST}(,{_HOST})*|yarn|k8s://\S+)"
)
_FORMS = (
    "local, local[N], local[*], local-cluster[N,CORES,MEMORY], spark://host:port (,host:port), yarn, k8s://URL "
    "or sc://host:port"
)
# Settings by which a job reads every row, finds Delta, compares times and fails a check; those that have a key of their
# own.
_OWN = {
    "spark.sql.extensions": "",
    "spark.sql.catalog.spark_catalog": "",
    "spark.sql.session.timeZone": "",
    "spark.sql.ansi.enabled": "",
    "spark.sql.files.ignoreMissingFiles": "",
    "spark.sql.files.ignoreCorruptFiles": "",
    "spark.master": "spark.master",
    "spark.driver.memory": "spark.driver_memory",
    "spark.jars": "spark.jars",
    "spark.pyspark.python": "spark.python",
}
_DEPLOY_MODE = "spark.submit.deployMode"
# What the start of a Spark Connect server decides.
_OF_THE_SERVER = ("driver_memory", "python", "jars")


def is_one_process(master: str) -> bool:
    """Whether Spark's driver and its executors are one process of this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def is_connect(master: str) -> bool:
    """Whether the master is a Spark Connect server: steps run in this process and send it their tasks."""
    return master.startswith("sc://")


def _refuse_secrets(master: Any) -> Any:
    """Returns the master. An address of Spark Connect may contain a token, or headers that are as secret."""
    if isinstance(master, str) and is_connect(master):
        names = re.findall(r";\s*([^=;]+)", master)
        if "@" in master.split(";")[0] or any(name not in ("use_ssl", "user_id") for name in names):
            hint = "Change the secret. Set SPARK_CONNECT_AUTHENTICATE_TOKEN, or SPARK_REMOTE to the whole address."
            raise mistake("CONFIG_SECRET", "may have the parameters `use_ssl` and `user_id` only.", hint)
    return master


def _require_settings(value: Any) -> Any:
    """Returns the settings as texts, as Spark takes them."""
    if not isinstance(value, dict):
        raise mistake("CONFIG_WRONG_TYPE", "must be `setting: value` lines.", "For example `spark.executor.cores: 4`.")
    errors: dict[tuple[str | int, ...], Any] = {}
    for name, raw in value.items():
        if error := _find_mistake(str(name), raw):
            errors[str(name),] = error
    if errors:
        raise mistakes_below(errors, value)
    return {name: str(raw).lower() if isinstance(raw, bool) else str(raw) for name, raw in value.items()}


def _find_mistake(name: str, raw: Any) -> Any:
    if not name.startswith("spark."):
        return mistake("SPARK_SETTING", "is not a setting of Spark.", "Their names begin with `spark.`.")
    if name in _OWN:
        key = _OWN[name]
        return mistake(
            "SPARK_SETTING",
            "is set by tidefold.",
            f"Use the key `{key}`."
            if key
            else "Remove it: another value could hide rows, change times or let a check pass.",
        )
    if name == _DEPLOY_MODE and raw != "client":
        return mistake("DEPLOY_MODE", "must be `client`: the driver runs where the command runs.", "Remove it.")
    if isinstance(raw, (dict, list)) or raw is None:
        return mistake("CONFIG_WRONG_TYPE", "must be a text, a number, true or false.")
    return None


class Scheduled(StrEnum):
    """Where Airflow's tasks run an ingest, a fold or a gate that has rows.

    CONNECT: on a Spark Connect server, whatever its size.
    SUBMIT: in a job of spark-submit, whatever its size.
    BY_SIZE: up to `spark.above` in the task's process, above it as `spark.master` and the Spark connection say.
    """

    CONNECT = "connect"
    SUBMIT = "submit"
    BY_SIZE = "by_size"


class SparkConfig(StrictModel):
    """How Spark is started, and which steps use it."""

    mismatches: ClassVar[Mapping[str, tuple[str, str, str]]] = {
        "master": (
            "NOT_IN_THIS_VERSION",
            f"must be {_FORMS}.",
            "Set `local[*]` (all cores), `local[4]` (four cores), or the address of a cluster.",
        ),
        "driver_memory": (
            "CONFIG_WRONG_TYPE", "must be a whole number followed by m or g.", "For example `2g`.",
        ),
    }  # fmt: skip

    master: Annotated[str, BeforeValidator(_refuse_secrets)] = Field(
        default="local[*]", pattern=f"^{_MASTER}$", description=_FORMS
    )
    driver_memory: str = Field(
        default="2g", pattern=r"^[1-9]\d*[mg]$", description="memory of the Spark driver, such as 512m or 2g"
    )
    conf: Annotated[
        dict[str, str],
        BeforeValidator(_require_settings),
        WithJsonSchema({"type": "object", "propertyNames": {"pattern": r"^spark\."}}),
    ] = Field(default={}, description="further settings of Spark, such as `spark.executor.memory: 8g`")
    python: Text | None = Field(
        default=None, description="the Python that executors start; without it, the path of the driver's own"
    )
    ship_code: bool = Field(
        default=False, description="send the package to the executors, which then need its dependencies only"
    )
    jars: Literal["fetched", "packages", "spark"] = Field(
        default="fetched",
        description="where Delta's jars come from: by `tidefold spark jars`, Spark's packages, or Spark has them",
    )
    above: SizeLimit = Field(
        default="64MB",
        validate_default=True,
        description="a step that reads at most this many bytes runs without Spark; 0B: every step with rows uses Spark",
    )
    scheduled: Literal["connect", "submit", "by_size"] | None = Field(
        default=None,
        description="where the steps of Airflow's tasks run: on a Spark Connect server, by spark-submit, or by `above`",
    )
    unreachable: Literal["wait", "in_process"] = Field(
        default="wait",
        description="what a task does whose Spark Connect server is away: wait for it, or run the step itself",
    )

    def choose_scheduled(self, has_connection: bool) -> tuple[Scheduled, str]:
        """Returns where the steps of Airflow's tasks run, and why.

        has_connection: whether Airflow has a connection to a Spark Connect server.
        """
        if self.scheduled:
            return Scheduled(self.scheduled), f"`spark.scheduled` is `{self.scheduled}`"
        if has_connection:
            return Scheduled.CONNECT, "Airflow has a connection to a Spark Connect server"
        if is_connect(self.master):
            return Scheduled.CONNECT, "`spark.master` is a Spark Connect server"
        return (
            Scheduled.BY_SIZE,
            "it is not set, and Airflow has no connection to a Spark Connect server",
        )


def check_spark(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Checks the local copies, the options of a Spark Connect server, and where tasks run."""
    yield from _find_contradictions(document)
    yield from _folders_of_hosts(document)
    yield from _options_of_server(document)


def _options_of_server(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Refuses options that have no effect on a Spark Connect server, which runs already."""
    spark = document.data.get("spark")
    if not isinstance(spark, dict) or not isinstance(spark.get("master"), str) or not is_connect(spark["master"]):
        return
    for name in _OF_THE_SERVER:
        if name in spark:
            hint = "Remove it. The server is started with its memory, its jars and PYSPARK_PYTHON."
            message = "has no effect on a Spark Connect server."
            yield ConfigProblem("CONNECT_OPTION", document.line(("spark", name)), f"spark.{name}", message, hint)


def _find_contradictions(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Refuses a `scheduled` or an `unreachable` that another setting makes impossible."""
    spark = document.data.get("spark")
    if not isinstance(spark, dict):
        return
    scheduled = spark.get("scheduled")
    on_server = isinstance(spark.get("master"), str) and is_connect(spark["master"])
    if scheduled == "submit" and on_server:
        message = "cannot be `submit` with `spark.master: sc://...`: spark-submit starts no job on a server."
        yield _contradict(document, "scheduled", message, "Set `connect`, or name the cluster in `spark.master`.")
    if spark.get("unreachable") == "in_process" and scheduled in ("submit", "by_size") and not on_server:
        message = f"has no effect with `spark.scheduled: {scheduled}`: no step waits for a Spark Connect server."
        yield _contradict(document, "unreachable", message, "Remove it, or set `spark.scheduled: connect`.")


def _contradict(document: YamlDocument, key: str, message: str, hint: str) -> ConfigProblem:
    return ConfigProblem("SPARK_SCHEDULED", document.line(("spark", key)), f"spark.{key}", message, hint)


def _folders_of_hosts(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Refuses folders beside the file on a cluster: each host has its copies in a folder with the same path."""
    local, spark = document.data.get("local"), document.data.get("spark")
    master = spark.get("master") if isinstance(spark, dict) else None
    if not isinstance(local, dict) or not isinstance(master, str) or is_one_process(master):
        return
    if local.get("mode") != "files" or local.get("shared") is True:
        return
    key = "path" if "path" in local else "paths"
    for folder in [local.get("path"), *(local.get("paths") or ())]:
        if isinstance(folder, str) and not folder.startswith("/"):
            message = f"is `{folder}`, beside this file. With `spark.master: {_name_master(master)}` each host has one."
            hint = "Use an absolute path, in which every host may write."
            yield ConfigProblem("LOCAL_ON_CLUSTER", document.line(("local", key)), f"local.{key}", message, hint)


def _name_master(master: str) -> str:
    return "sc://..." if is_connect(master) else master  # It may contain a token.
