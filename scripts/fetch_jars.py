"""Fetches the two Delta jars into .jars/, once, by checksum. Spark then resolves nothing when a job starts.

It uses the Ivy that pyspark ships, which knows the machine's proxy and mirror settings as any Java program does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

JARS = Path(__file__).resolve().parents[1] / ".jars"


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of Maven Central, and the checksum it must have."""

    group: str
    name: str
    version: str
    sha256: str

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


def main() -> int:
    """Fetches what is missing; 1 when a jar cannot be had or is not what it must be."""
    missing = [jar for jar in DELTA if not jar.good(JARS)]
    for jar in missing:
        if not fetched(jar, JARS):
            print(f"install: {jar.path(JARS).name} could not be fetched, or its checksum is wrong.", file=sys.stderr)
            return 1
    print(f"install: .jars {'fetched and checked' if missing else 'are up to date'}")
    return 0


def fetched(jar: Jar, folder: Path) -> bool:
    """Fetches the jar into the folder; False when it could not be had or is not what it must be."""
    folder.mkdir(parents=True, exist_ok=True)
    jar.path(folder).unlink(missing_ok=True)
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    cache = folder / ".ivy"
    command = [java, f"-Divy.default.ivy.user.dir={cache}", "-jar", str(_ivy()), "-cache", str(cache)]
    command += ["-dependency", jar.group, jar.name, jar.version, "-notransitive", "-confs", "default", "-types", "jar"]
    command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(cache, ignore_errors=True)
    if asked.returncode or not jar.path(folder).exists():
        print(asked.stdout[-3000:] + asked.stderr[-1000:], file=sys.stderr)
    return jar.good(folder)


def _ivy() -> Path:
    # Found without importing pyspark, which takes a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("install: pyspark is not installed in this environment.")
    return next((Path(spec.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))


if __name__ == "__main__":
    sys.exit(main())
