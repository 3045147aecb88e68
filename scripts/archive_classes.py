"""Makes .jars/spark.jsa: Spark's classes, loaded and checked once, so that a JVM starts with half the work.

It belongs to one Java and to the jars of one environment; others leave it alone. Called by `make install`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tidefold.config import Config, load_config
from tidefold.spark.submit import ARCHIVE, job_env, spark_conf, spark_submit

# What the archive was made for.
STAMP = ARCHIVE.with_suffix(".for")
_CONFIG = "version: 1\nstore: store\nlogs: {any: {key: [id], columns: {id: long}, order: arrival}}\n"


def main() -> int:
    """0 also without an archive: Spark then starts as it does without one."""
    if is_current():
        print("install: the archive of Spark's classes is up to date")
        return 0
    print("install: an archive of Spark's classes (about half a minute)")
    ARCHIVE.unlink(missing_ok=True)
    part = ARCHIVE.with_suffix(".part")
    part.unlink(missing_ok=True)
    done = _spark(part)
    if done.returncode or not part.exists():
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        print(f"install: no archive; each Spark job starts some seconds later. {' '.join(said)}", file=sys.stderr)
        part.unlink(missing_ok=True)
        return 0
    part.replace(ARCHIVE)
    STAMP.write_text(_describe_environment())
    return 0


def is_current() -> bool:
    """Whether there is an archive, of this Java and this environment."""
    return ARCHIVE.exists() and STAMP.exists() and STAMP.read_text() == _describe_environment()


def _describe_environment() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    jars = sorted((Path(sys.prefix) / "lib").glob("python*/site-packages/pyspark/jars/*.jar"))
    return "\n".join([version, sys.prefix, *(f"{jar.name} {jar.stat().st_size}" for jar in jars)])


def _spark(archive: Path) -> subprocess.CompletedProcess[str]:
    """A job that does some of everything; its JVM writes the archive when it ends."""
    with tempfile.TemporaryDirectory(prefix="tidefold-") as folder:
        path = Path(folder) / "tidefold.yaml"
        path.write_text(_CONFIG)
        config = load_config(path)
        return subprocess.run(
            _command(config, archive, folder),
            env={**os.environ, **job_env(config)},
            capture_output=True,
            text=True,
            check=False,
        )


def _command(config: Config, archive: Path, folder: str) -> tuple[str, ...]:
    conf = spark_conf(config)
    conf["spark.driver.extraJavaOptions"] += f' "-XX:ArchiveClassesAtExit={archive}"'
    return spark_submit("local[2]", conf, Path(__file__).with_name("archived_job.py"), folder)


if __name__ == "__main__":
    sys.exit(main())
