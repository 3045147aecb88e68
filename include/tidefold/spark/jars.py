"""The jars that Spark needs beside its own: Delta, and for some steps a client for S3.

`spark.jars` of the configuration chooses where they come from. `fetched`: `tidefold spark jars` fetched them once, by
checksum, so a job resolves nothing when it starts. `packages`: Spark resolves them by `spark.jars.packages`. `spark`:
Spark has them. They are fetched by the Ivy in pyspark. It knows the machine's proxy and mirror settings, as any Java
program does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidefold.compute.spark_versions import find_spark, find_version, require_version
from tidefold.errors import NotFoundError, StorageError
from tidefold.installation import PACKAGE, SPARK_SUBMIT, jar_folder

_IVY = """\
<ivy-module version="2.0"><info organisation="tidefold" module="jars"/><dependencies>{jars}</dependencies></ivy-module>
"""
_HINT = (
    "Run `tidefold spark jars`, which fetches them into that folder; TIDEFOLD_JARS names another. Or set `spark: "
    "{jars: packages}`, and Spark fetches them; or `{jars: spark}`, if Spark has them."
)
_INSTALL = (
    'Install it: `pip install "tidefold[spark]"`, then run `tidefold spark jars`. Or set `spark: {above: 10GB}`: then '
    "steps of up to so many bytes run without Spark, if the memory is enough."
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of a Maven repository, and the checksum it must have."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def dependency(self) -> str:
        where = f'org="{self.group}" name="{self.name}" rev="{self.version}"'
        return f'<dependency {where} transitive="false" conf="default->master"/>'

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}-{self.version}.jar"

    def good(self, folder: Path) -> bool:
        jar = self.path(folder)
        return jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == self.sha256


def list_delta_jars() -> tuple[Jar, ...]:
    """The jars of Delta for the Spark of this environment. Raises RefusedError."""
    return tuple(Jar("io.delta", *jar) for jar in require_version().delta)


def list_s3_jars() -> tuple[Jar, ...]:
    """The jars of Spark's client for S3, which `tidefold check verify --spark` needs. Raises RefusedError."""
    spark = require_version()
    lines = [line.split() for line in (PACKAGE / "spark" / "s3_jars.txt").read_text().splitlines()]
    return Jar("org.apache.hadoop", *spark.s3), *(Jar(*words) for part, *words in lines if part == spark.aws)


def list_packages(has_client: bool) -> list[str]:
    """What `packages` names: Spark's Ivy finds what they need. Raises RefusedError."""
    return [list_delta_jars()[0].coordinates, *([list_s3_jars()[0].coordinates] if has_client else [])]


def list_jars() -> list[Path]:
    """Where the fetched jars of Delta must be; none for a Spark that is not supported."""
    return [jar.path(jar_folder()) for jar in list_delta_jars()] if find_version(find_spark()) else []


def find_delta_jars() -> list[str]:
    """The fetched jars of Delta. Raises NotFoundError, RefusedError."""
    return _require([jar.path(jar_folder()) for jar in list_delta_jars()])


def find_s3_jars() -> list[str]:
    """The fetched jars of Spark's client for S3. Raises NotFoundError, RefusedError."""
    return _require([jar.path(s3_folder()) for jar in list_s3_jars()], "Spark's client for S3: ")


def s3_folder() -> Path:
    """The folder of the jars that only readers of tables in S3 need."""
    return jar_folder() / "s3"


def _require(jars: Sequence[Path], what: str = "") -> list[str]:
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        require_spark()  # Without it no jar helps.
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise NotFoundError("JARS_MISSING", f"{what}{named} not found in {jars[0].parent}.", hint=_HINT)
    return [str(jar) for jar in jars]


def fetch_missing() -> bool:
    """Fetches every jar that is not there, by checksum; False: all were there.

    Raises StorageError if a jar cannot be fetched, or is not what it must be; RefusedError for a Spark not supported.
    """
    is_fetched = False
    for jars, folder in ((list_delta_jars(), jar_folder()), (list_s3_jars(), s3_folder())):
        missing = [jar for jar in jars if not jar.good(folder)]
        if missing:
            fetch(missing, folder)
            is_fetched = True
    return is_fetched


def fetch(jars: Sequence[Jar], folder: Path) -> None:
    """Fetches the jars into the folder. Raises StorageError, NotFoundError."""
    folder.mkdir(parents=True, exist_ok=True)
    for jar in jars:
        jar.path(folder).unlink(missing_ok=True)
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        wanted = Path(cache) / "ivy.xml"
        wanted.write_text(_IVY.format(jars="".join(jar.dependency for jar in jars)))
        command = [java, f"-Divy.default.ivy.user.dir={cache}", "-jar", str(_find_ivy()), "-cache", cache]
        command += ["-ivy", str(wanted), "-confs", "default", "-types", "jar", "bundle"]
        command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            hint = "Install Java 17, or set JAVA_HOME."
            raise NotFoundError("JAVA_MISSING", f"There is no `{java}`.", hint=hint) from error
    bad = [jar.path(folder).name for jar in jars if not jar.good(folder)]
    if bad:
        lines = [line.strip() for line in done.stdout.splitlines() if "ERROR" in line or "WARN" in line]
        detail = f" {lines[-1]}" if lines else ""
        raise StorageError("JARS_NOT_FETCHED", f"Not fetched, or with a wrong checksum: {', '.join(bad[:3])}.{detail}")


def _find_ivy() -> Path:
    return next((_find_spark_package() / "jars").glob("ivy-*.jar"))


def _find_spark_package() -> Path:
    require_spark()
    # Found without importing pyspark, which takes a second.
    spec = importlib.util.find_spec("pyspark")
    assert spec
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def require_spark() -> None:
    """Raises NotFoundError if there is no spark-submit. A client of Spark Connect brings none."""
    if not os.access(SPARK_SUBMIT, os.X_OK):
        message = f"pyspark is not installed in this environment: there is no {SPARK_SUBMIT}."
        raise NotFoundError("SPARK_MISSING", message, hint=_INSTALL)
