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
from pathlib import Path

JARS = Path(__file__).resolve().parents[1] / ".jars"
DELTA = "4.4.0"
SHA256 = {
    "delta-spark_4.2_2.13": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "delta-storage": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
}


def main() -> int:
    """Fetches what is missing; 1 when a jar cannot be had or is not what it must be."""
    missing = [name for name in SHA256 if not _good(name)]
    for name in missing:
        _fetch(name)
        if not _good(name):
            print(f"install: {_jar(name).name} could not be fetched, or its checksum is wrong.", file=sys.stderr)
            return 1
    shutil.rmtree(JARS / ".ivy", ignore_errors=True)
    print(f"install: .jars {'fetched and checked' if missing else 'are up to date'}")
    return 0


def _jar(name: str) -> Path:
    return JARS / f"{name}-{DELTA}.jar"


def _good(name: str) -> bool:
    jar = _jar(name)
    return jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == SHA256[name]


def _fetch(name: str) -> None:
    JARS.mkdir(exist_ok=True)
    _jar(name).unlink(missing_ok=True)
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    cache = JARS / ".ivy"
    command = [java, f"-Divy.default.ivy.user.dir={cache}", "-jar", str(_ivy()), "-cache", str(cache)]
    command += ["-dependency", "io.delta", name, DELTA, "-notransitive", "-confs", "default", "-types", "jar"]
    command += ["-retrieve", f"{JARS}/[artifact]-[revision].[ext]"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode or not _jar(name).exists():
        print(fetched.stdout[-3000:] + fetched.stderr[-1000:], file=sys.stderr)


def _ivy() -> Path:
    # Found without importing pyspark, which takes a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("install: pyspark is not installed in this environment.")
    return next((Path(spec.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))


if __name__ == "__main__":
    sys.exit(main())
