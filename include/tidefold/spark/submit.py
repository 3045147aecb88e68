"""How a Spark job of tidefold is started: one definition for the command line and for Airflow."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidefold.compute.spark_session import CODE_SETTING
from tidefold.compute.spark_versions import SETTINGS, require_version
from tidefold.config import Config
from tidefold.config.models.spark import is_one_process
from tidefold.installation import CODE, PACKAGE, SPARK_SUBMIT, find_python_path, jar_folder
from tidefold.spark import jars
from tidefold.spark.request import Request, make_argument
from tidefold.spark.steps import job_path
from tidefold.storage.s3.address import S3Endpoint
from tidefold.storage.safe_files import make_private_folder

# Only steps that open tables as their readers do need Spark's client for S3.
_READS_TABLES = ("verify", "server")

# Spark's classes as `make install` left them, loaded and checked: half of what the start of a JVM costs.
ARCHIVE = jar_folder() / "spark.jsa"

# `1` leaves the JVM's second compiler out.
QUICK_COMPILER = "TIDEFOLD_SPARK_C1"

_LOOPBACK = "127.0.0.1"
_OTHER_MACHINES = ("yarn", "k8s://")
# The packages that executors import.
_SHIPPED = ("tidefold", "pyspark_tidefold")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line and the environment variables it needs beside the current ones."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def spark_conf(config: Config, step: str = "", *, quick: bool = False) -> dict[str, str]:
    """Spark's settings for every job. `spark.jars` says where Delta comes from.

    `step`: what the job is for, or `server` for a Spark Connect server. A job that reads the tables of a store in S3
        through Spark gets a client for S3.
    `quick`: without the JVM's second compiler.
    """
    has_client = step in _READS_TABLES and config.store.startswith("s3://")
    return {
        **_find_jars(config, has_client),
        **(make_s3_conf(S3Endpoint.of()) if has_client else {}),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": config.spark.driver_memory,
        **_place(config, scratch_folder(config, step), quick),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        # Snapshots are judged side by side: the tasks of a large one do not come before those of all others.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "2",
        **SETTINGS,
        # A file that is gone or damaged is an error, never fewer rows.
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.files.ignoreCorruptFiles": "false",
        # Last: what the user sets counts.
        **config.spark.conf,
    }


def scratch_folder(config: Config, step: str = "") -> Path:
    """The folder of temporary files. That of a server is its own, because its supervisor empties it."""
    return config.path.absolute().parent / "var" / ("server/scratch" if step == "server" else "spark")


def _place(config: Config, scratch: Path, quick: bool) -> dict[str, str]:
    """The settings of the driver, which runs where the command runs; without another name, it is on loopback."""
    return {
        "spark.driver.extraJavaOptions": " ".join(_java_options(scratch, quick)),
        **_driver(config.spark.master),
        **_authenticate(config.spark.master),
        **_code(config),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch_folder(config) / "warehouse"),
    }


def _java_options(scratch: Path, quick: bool) -> list[str]:
    # Quoted: the folder's name may hold spaces.
    logging = PACKAGE / "spark" / "log4j2.properties"
    java = [f'"-D{key}={path}"' for key, path in (("java.io.tmpdir", scratch), ("derby.system.home", scratch))]
    java.append(f'"-Dlog4j2.configurationFile={logging}"')
    if ARCHIVE.exists():
        # One of another Java or of other jars is left alone by the JVM; it need not tell.
        java += [f'"-XX:SharedArchiveFile={ARCHIVE}"', "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    if quick or os.environ.get(QUICK_COMPILER) == "1":
        # Half of a short job's CPU time is the second compiler's; jobs over big tables want it.
        java.append("-XX:TieredStopAtLevel=1")
    return java


def make_s3_conf(endpoint: S3Endpoint) -> dict[str, str]:
    """Settings of Spark's client for S3. Credentials are found as all AWS clients find them; none is in here."""
    settings = {
        "aws.credentials.provider": require_version().credentials,
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
        return {"spark.jars.packages": ",".join(jars.list_packages(has_client))}
    found_jars = [*jars.find_delta_jars(), *(jars.find_s3_jars() if has_client else ())]
    # Only classes of the class path come from the archive. The machines of a cluster are sent the jars.
    alone = is_one_process(config.spark.master)
    return {"spark.driver.extraClassPath": ":".join(found_jars)} if alone else {"spark.jars": ",".join(found_jars)}


def _code(config: Config) -> dict[str, str]:
    """The settings that give executors the package: sent to them, or under the path that it has here."""
    if is_one_process(config.spark.master):
        return {}
    own = {"spark.pyspark.driver.python": sys.executable}
    python = {"spark.pyspark.python": config.spark.python, **own} if config.spark.python else {}
    if config.spark.ship_code:
        return {**python, CODE_SETTING: str(archive_code(scratch_folder(config)))}
    return {**python, **{f"spark.executorEnv.{name}": value for name, value in _python_path().items()}}


def archive_code(folder: Path) -> Path:
    """Writes the package as an archive that Python imports, unless it is there. Its name says what it contains."""
    files = sorted(path for name in _SHIPPED for path in (CODE / name).rglob("*.py"))
    texts = {str(path.relative_to(CODE)): path.read_bytes() for path in files}
    digest = hashlib.sha256(b"".join(name.encode() + text for name, text in texts.items())).hexdigest()
    archive = folder / f"tidefold-{digest[:16]}.zip"
    if archive.exists():
        return archive
    make_private_folder(folder)
    part = archive.with_suffix(f".{os.getpid()}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in texts.items():
            packed.writestr(name, text)
    os.replace(part, archive)
    return archive


def _python_path() -> dict[str, str]:
    path = find_python_path()
    beside = [os.path.abspath(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([path, *beside]))} if path else {}


def _driver(master: str) -> dict[str, str]:
    """Where executors find the driver: under the name that TIDEFOLD_DRIVER_HOST gives, else on the loopback.

    On YARN and Kubernetes executors are never on the same machine: there Spark chooses the name.
    """
    host = os.environ.get("TIDEFOLD_DRIVER_HOST")
    if not host and master.startswith(_OTHER_MACHINES):
        return {}
    if not host:
        return {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return {"spark.driver.host": host, "spark.driver.bindAddress": "0.0.0.0"}


def _authenticate(master: str) -> dict[str, str]:
    """Other users of the machine reach the ports of the driver. On one machine Spark makes a secret for each job."""
    return {"spark.authenticate": "true"} if is_one_process(master) else {}


def job_env(config: Config, step: str = "") -> dict[str, str]:
    """Environment of the job's driver and of its Python workers."""
    scratch = scratch_folder(config, step)
    make_private_folder(scratch)
    driver = _driver(config.spark.master)
    return {
        **_python_path(),
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(scratch),
        "SPARK_CONF_DIR": _find_defaults(),
        **({"SPARK_LOCAL_IP": _LOOPBACK} if driver.get("spark.driver.bindAddress") == _LOOPBACK else {}),
        "GX_ANALYTICS_ENABLED": "false",
    }


def _find_defaults() -> str:
    """The folder of `spark-defaults.conf`: SPARK_CONF_DIR, or `conf` of SPARK_HOME.

    Otherwise a folder that does not exist. With a folder of files in its class path a JVM takes no classes from an
    archive.
    """
    folder = os.environ.get("SPARK_CONF_DIR")
    home = Path(os.environ.get("SPARK_HOME", "")) / "conf"
    if not folder and (home / "spark-defaults.conf").is_file():
        return str(home)
    return folder or str(jar_folder() / "conf")


def submit_command(config: Config, request: Request) -> Command:
    """The spark-submit call of a request."""
    argv = spark_submit(
        config.spark.master, spark_conf(config, request.step.name), job_path(request.step.name), make_argument(request)
    )
    return Command(argv, job_env(config))


def spark_submit(master: str, conf: Mapping[str, str], job: Path, *arguments: str) -> tuple[str, ...]:
    """The command line that runs a job with its arguments."""
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return (SPARK_SUBMIT, "--master", master, *settings, str(job), *arguments)
