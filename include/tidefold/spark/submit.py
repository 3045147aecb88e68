"""How a Spark job of tidefold is started: one definition for the command line and for Airflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidefold.config import Config
from tidefold.errors import InvalidInputError
from tidefold.installation import PACKAGE, find_python_path, jar_folder, job_folder
from tidefold.spark import jars
from tidefold.spark.request import Request, make_argument
from tidefold.storage.s3.address import S3Endpoint
from tidefold.storage.safe_files import make_private_folder

STEPS = ("ingest", "materialize", "quality", "audit", "verify", "register")
# Only steps that open tables as their readers do need Spark's client for S3.
_READS_TABLES = ("verify", "register")

# Spark's classes as `make install` left them, loaded and checked: half of what the start of a JVM costs.
ARCHIVE = jar_folder() / "spark.jsa"


@dataclass(frozen=True, slots=True)
class Command:
    """A command line and the environment variables it needs beside the current ones."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def job_path(step: str) -> Path:
    """The spark-submit entry of a step."""
    if step not in STEPS:
        raise InvalidInputError(
            "STEP_UNKNOWN", f"There is no Spark step `{step}`.", hint=f"Use one of {', '.join(STEPS)}."
        )
    return job_folder() / f"{step}.py"


def spark_conf(config: Config, step: str = "") -> dict[str, str]:
    """Spark's settings for every job. `spark.jars` says where Delta comes from; the driver is on loopback.

    `step`: what the job is for; a job that reads the tables of a store in S3 through Spark gets a client for S3.
    """
    scratch = config.path.parent / "var" / "spark"
    has_client = step in _READS_TABLES and config.store.startswith("s3://")
    catalog = config.catalog.settings if config.catalog and step == "register" else {}
    return {
        **_find_jars(config, has_client),
        **(make_s3_conf(S3Endpoint.of()) if has_client else {}),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": config.spark.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(_java_options(scratch)),
        **_driver(),
        **_authenticate(config.spark.master),
        # Where workers are processes of their own, of another machine perhaps, they need our code too.
        **{f"spark.executorEnv.{name}": value for name, value in _python_path().items()},
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "2",
        # A file that is gone or damaged is an error, never fewer rows.
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.files.ignoreCorruptFiles": "false",
        **catalog,
    }


def _java_options(scratch: Path) -> list[str]:
    # Quoted: the folder's name may hold spaces.
    logging = PACKAGE / "spark" / "log4j2.properties"
    java = [f'"-D{key}={path}"' for key, path in (("java.io.tmpdir", scratch), ("derby.system.home", scratch))]
    java.append(f'"-Dlog4j2.configurationFile={logging}"')
    if ARCHIVE.exists():
        # One of another Java or of other jars is left alone by the JVM; it need not tell.
        java += [f'"-XX:SharedArchiveFile={ARCHIVE}"', "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if os.environ.get("TIDEFOLD_SPARK_C1") == "1":
        # Half of a short job's CPU time is the second compiler's; jobs over big tables want it.
        java.append("-XX:TieredStopAtLevel=1")
    return java


def make_s3_conf(endpoint: S3Endpoint) -> dict[str, str]:
    """Settings of Spark's client for S3. Credentials are found as all AWS clients find them; none is in here."""
    settings = {
        "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        # The default needs one more library of AWS.
        "input.stream.type": "classic",
        # A missing table is an error at once, and not after minutes.
        "attempts.maximum": "3",
        "retry.limit": "3",
    }
    if endpoint.url:
        settings["endpoint"] = endpoint.url
        settings["path.style.access"] = "true"
        settings["connection.ssl.enabled"] = str(endpoint.url.startswith("https://")).lower()
    if endpoint.region:
        settings["endpoint.region"] = endpoint.region
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def _find_jars(config: Config, has_client: bool) -> dict[str, str]:
    """The settings that give Spark the jars of Delta, and of a client for S3."""
    if config.spark.jars == "spark":
        return {}
    if config.spark.jars == "packages":
        return {"spark.jars.packages": ",".join((*jars.DELTA_PACKAGES, *(jars.S3_PACKAGES if has_client else ())))}
    found = [*jars.find_delta_jars(), *(jars.find_s3_jars() if has_client else ())]
    # Only classes of the class path come from the archive. The machines of a cluster are sent the jars.
    alone = config.spark.master.startswith("local")
    return {"spark.driver.extraClassPath": ":".join(found)} if alone else {"spark.jars": ",".join(found)}


def _python_path() -> dict[str, str]:
    path = find_python_path()
    return {"PYTHONPATH": path} if path else {}


def _driver() -> dict[str, str]:
    """Where executors find the driver: on the loopback, or under the name that TIDEFOLD_DRIVER_HOST gives."""
    host = os.environ.get("TIDEFOLD_DRIVER_HOST")
    if not host:
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {"spark.driver.host": host, "spark.driver.bindAddress": "0.0.0.0"}


def _authenticate(master: str) -> dict[str, str]:
    """Other users of the machine reach the ports of the driver. On one machine Spark makes a secret for each job."""
    return {"spark.authenticate": "true"} if master.startswith("local") else {}


def job_env(config: Config) -> dict[str, str]:
    """Environment of the job's driver and of its Python workers."""
    scratch = config.path.parent / "var" / "spark"
    make_private_folder(scratch)
    return {
        **_python_path(),
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(scratch),
        # There is none: with a folder of files in its class path a JVM takes no classes from an archive.
        "SPARK_CONF_DIR": os.environ.get("SPARK_CONF_DIR") or str(jar_folder() / "conf"),
        **({} if os.environ.get("TIDEFOLD_DRIVER_HOST") else {"SPARK_LOCAL_IP": "127.0.0.1"}),
        "GX_ANALYTICS_ENABLED": "false",
    }


def submit_command(config: Config, request: Request) -> Command:
    """The spark-submit call of a request."""
    argv = spark_submit(
        config.spark.master, spark_conf(config, request.step.name), job_path(request.step.name), make_argument(request)
    )
    return Command(argv, job_env(config))


def spark_submit(master: str, conf: Mapping[str, str], job: Path, argument: str) -> tuple[str, ...]:
    """The command line that runs a job with its one argument."""
    program = Path(sys.executable).with_name("spark-submit")
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return (str(program), "--master", master, *settings, str(job), argument)
