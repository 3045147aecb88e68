"""The structure of `spark` in `tidefold.yaml`: where Spark runs, its settings, and which steps use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidefold.config.models.sizes import Limit, count_bytes
from tidefold.yaml_files.model import StrictModel, Text, mistake, mistakes_below

_HOST = r"[A-Za-z0-9.-]+:[1-9]\d*"
_CONNECT = r"sc://[A-Za-z0-9.-]+(:[1-9]\d*)?(/(;(use_ssl|user_id)=[\w.@-]+)*)?"
_MASTER = (
    rf"({_CONNECT}|local(\[(\*|[1-9]\d*)\])?|local-cluster\[\d+,\d+,\d+\]|spark://{_HOST}(,{_HOST})*|yarn|k8s://\S+)"
)
_FORMS = (
    "local, local[N], local[*], local-cluster[N,CORES,MEMORY], spark://host:port (,host:port), yarn, k8s://URL "
    "or sc://host:port"
)

# Settings by which a job reads every row, finds Delta and compares times; and those that have a key of their own.
_OWN = {
    "spark.sql.extensions": "",
    "spark.sql.catalog.spark_catalog": "",
    "spark.sql.session.timeZone": "",
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
    for name, given in value.items():
        if error := _find_mistake(str(name), given):
            errors[str(name),] = error
    if errors:
        raise mistakes_below(errors, value)
    return {name: str(given).lower() if isinstance(given, bool) else str(given) for name, given in value.items()}


def _find_mistake(name: str, given: Any) -> Any:
    if not name.startswith("spark."):
        return mistake("SPARK_SETTING", "is not a setting of Spark.", "Their names begin with `spark.`.")
    if name in _OWN:
        key = _OWN[name]
        return mistake(
            "SPARK_SETTING",
            "is set by tidefold.",
            f"Use the key `{key}`." if key else "Remove it: another value could hide rows or change times.",
        )
    if name == DEPLOY_MODE and given not in ("client", "cluster"):
        return mistake("SPARK_SETTING", "must be `client` or `cluster`.", "Remove it: `client` is the default.")
    if name in _WAITS and str(given).lower() != "true":
        return mistake("SPARK_SETTING", "must be `true`: the command waits for the outcomes.", "Remove it.")
    if isinstance(given, (dict, list)) or given is None:
        return mistake("CONFIG_WRONG_TYPE", "must be a text, a number, true or false.")
    return None


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
    above: Limit = Field(
        default="64MB",
        description="a step that reads at most this many bytes runs without Spark; 0B: every step with rows uses Spark",
    )

    @property
    def driver_on_cluster(self) -> bool:
        """Whether the cluster runs the driver, too (cluster deploy mode)."""
        return self.conf.get(DEPLOY_MODE) == "cluster"

    @property
    def above_bytes(self) -> int:
        """The number of bytes up to which a step runs without Spark; 0: every step with rows uses Spark."""
        return count_bytes(self.above)
