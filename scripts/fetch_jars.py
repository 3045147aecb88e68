"""Fetches the two Delta jars, and Spark's client for S3, into .jars/, once, by checksum. Spark then resolves nothing
when a job starts.

It uses the Ivy that pyspark ships, which knows the machine's proxy and mirror settings as any Java program does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / ".jars"
_IVY = """\
<ivy-module version="2.0"><info organisation="tidefold" module="jars"/><dependencies>{jars}</dependencies></ivy-module>
"""


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of Maven Central, and the checksum it must have."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def dependency(self) -> str:
        where = f'org="{self.group}" name="{self.name}" rev="{self.version}"'
        return f'<dependency {where} transitive="false" conf="default->master"/>'

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}-{self.version}.jar"

    def good(self, folder: Path) -> bool:
        jar = self.path(folder)
        return jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == self.sha256


DELTA = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)


def read_s3_jars() -> tuple[Jar, ...]:
    """The jars of Spark's client for S3, which `tidefold verify --spark` needs."""
    lines = (ROOT / "scripts" / "s3_jars.txt").read_text().splitlines()
    return tuple(Jar(*line.split()) for line in lines if not line.startswith("#"))


def main() -> int:
    """Fetches what is missing; 1 when a jar cannot be had or is not what it must be."""
    fetched = False
    for jars, folder in ((DELTA, JARS), (read_s3_jars(), JARS / "s3")):
        missing = [jar for jar in jars if not jar.good(folder)]
        if missing and not fetch(missing, folder):
            bad = ", ".join(jar.path(folder).name for jar in missing if not jar.good(folder))
            print(f"install: could not be fetched, or the checksum is wrong: {bad}.", file=sys.stderr)
            return 1
        fetched = fetched or bool(missing)
    print(f"install: .jars {'fetched and checked' if fetched else 'are up to date'}")
    return 0


def fetch(jars: Sequence[Jar], folder: Path) -> bool:
    """Fetches the jars into the folder; False when one could not be had or is not what it must be."""
    folder.mkdir(parents=True, exist_ok=True)
    for jar in jars:
        jar.path(folder).unlink(missing_ok=True)
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        wanted = Path(cache) / "ivy.xml"
        wanted.write_text(_IVY.format(jars="".join(jar.dependency for jar in jars)))
        command = [java, f"-Divy.default.ivy.user.dir={cache}", "-jar", str(_ivy()), "-cache", cache]
        command += ["-ivy", str(wanted), "-confs", "default", "-types", "jar", "bundle"]
        command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode:
        print(asked.stdout[-3000:] + asked.stderr[-1000:], file=sys.stderr)
    return all(jar.good(folder) for jar in jars)


def _ivy() -> Path:
    # Found without importing pyspark, which takes a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("install: pyspark is not installed in this environment.")
    return next((Path(spec.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))


if __name__ == "__main__":
    sys.exit(main())
