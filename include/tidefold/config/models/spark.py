"""The structure of `spark` in `tidefold.yaml`: where Spark runs and which steps use it; sizes and times as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidefold.yaml_files.messages import StrictModel, Text, mistake, mistakes_below

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]i?)?B", re.ASCII)
_POWERS = {"k": 1, "M": 2, "G": 3, "T": 4}


def count_bytes(size: str) -> int:
    """Bytes of `500MB`, `1.5 GB` (units of 1000) or `20GiB` (units of 1024); 0 if it is not a size."""
    parts = _SIZE.fullmatch(size)
    unit = (parts[2] or "") if parts else ""
    factor = (1024 if unit.endswith("i") else 1000) ** _POWERS.get(unit[:1], 0)
    return int(Decimal(parts[1]) * factor) if parts else 0


def _require_size(value: Any) -> Any:
    if isinstance(value, str) and count_bytes(value) > 0:
        return value
    hint = "Write it as `500MB`, `20GB` (units of 1000) or `20GiB` (units of 1024)."
    raise mistake("CONFIG_WRONG_TYPE", "must be a size greater than zero, such as 500MB or 20GB.", hint)


def _require_limit(value: Any) -> Any:
    return value if isinstance(value, str) and _SIZE.fullmatch(value) else _require_size(value)


Size = Annotated[
    str | None, BeforeValidator(_require_size), WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$"})
]
# A size that may be zero.
SizeLimit = Annotated[
    str, BeforeValidator(_require_limit), WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$"})
]


_LOG_SPAN = re.compile(r"([1-9]\d{0,5})([mhd])", re.ASCII)
_UNIT_MICROS = {"m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


def _require_log_span(value: Any) -> Any:
    if isinstance(value, str) and _LOG_SPAN.fullmatch(value):
        return value
    raise mistake("CONFIG_WRONG_TYPE", "must be a time such as 12h or 30d.", "Units are m, h and d.")


LogSpan = Annotated[
    str, BeforeValidator(_require_log_span), WithJsonSchema({"type": "string", "pattern": f"^{_LOG_SPAN.pattern}$"})
]


def count_micros(span: str) -> int:
    """Returns the microseconds of a time such as `30d`."""
    return int(span[:-1]) * _UNIT_MICROS[span[-1]]


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

# Where the driver runs: `client` (where the command runs) or `cluster`.
DEPLOY_MODE = "spark.submit.deployMode"
_WAITS = ("spark.yarn.submit.waitAppCompletion", "spark.kubernetes.submission.waitAppCompletion")


def runs_drivers(master: str) -> bool:
    """Whether the machines of a master can run a driver in Python. Spark's standalone master refuses that."""
    return master == "yarn" or master.startswith("k8s://")


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
    if name == DEPLOY_MODE and raw not in ("client", "cluster"):
        return mistake("SPARK_SETTING", "must be `client` or `cluster`.", "Remove it: `client` is the default.")
    if name in _WAITS and str(raw).lower() != "true":
        return mistake("SPARK_SETTING", "must be `true`: the command waits for the outcomes.", "Remove it.")
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
        description="where Delta's jars come from: fetched by `tidefold jars`, Spark's own packages, or Spark has them",
    )
    above: SizeLimit = Field(
        default="64MB",
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
        if self.driver_on_cluster:
            return Scheduled.BY_SIZE, f"`{DEPLOY_MODE}` is `cluster`"
        if has_connection:
            return Scheduled.CONNECT, "Airflow has a connection to a Spark Connect server"
        if is_connect(self.master):
            return Scheduled.CONNECT, "`spark.master` is a Spark Connect server"
        return (
            Scheduled.BY_SIZE,
            "it is not set, and Airflow has no connection to a Spark Connect server",
        )

    @property
    def driver_on_cluster(self) -> bool:
        """Whether the cluster runs the driver, too (cluster deploy mode)."""
        return self.conf.get(DEPLOY_MODE) == "cluster"

    @property
    def above_bytes(self) -> int:
        """The number of bytes up to which a step runs without Spark; 0: every step with rows uses Spark."""
        return count_bytes(self.above)
