"""Hadoop's mini YARN: a resource manager and two node managers in one process that knows nothing of this clone."""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from local_airflow.errors import LocalAirflowError
from local_airflow.processes import Register, Started
from local_airflow.settings import PROJECT
from tidefold.spark.jars import Jar, fetch

# The version of Spark's own Hadoop. The others are what its classes for tests load.
HADOOP = "3.5.0"
_JARS = tuple(
    Jar(*line.split())
    for line in f"""\
org.apache.hadoop hadoop-client-minicluster {HADOOP} 06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
org.junit.jupiter junit-jupiter-api 5.11.4 ab83ef9e51ac4597d59d26b4b58812129550e2f579a404c8af7d09f5ce5b4293
org.junit.platform junit-platform-commons 1.11.4 9edd969b0d0670c54105bc91ae79bd1c6f503e12115faba82073b84c86bbc334
org.opentest4j opentest4j 1.3.0 48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b
org.bouncycastle bcprov-jdk18on 1.82 14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce
org.bouncycastle bcpkix-jdk18on 1.82 bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63
org.bouncycastle bcutil-jdk18on 1.82 4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d
""".splitlines()
)
_FOLDER = PROJECT / "var" / "tools" / f"yarn-{HADOOP}"
_NODES = 2
_SECONDS = 300
# Hadoop reflects on classes of Java itself.
_OPEN = [
    part for name in ("lang", "util", "io", "net") for part in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")
]
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class YarnCluster:
    """A YARN that may be started below a folder.

    env: what its machines have beside the system's environment, such as the address and the keys of S3.
    """

    root: Path
    env: Mapping[str, str]
    register: Register

    @property
    def settings(self) -> Path:
        """The folder that HADOOP_CONF_DIR names."""
        return self.root / "conf"

    @property
    def spark_jars(self) -> str:
        """The value of `spark.yarn.jars`: all machines have the same Spark."""
        return f"local:{files('pyspark')}/jars/*"

    def start(self) -> Started:
        """Starts it, and waits until it can take applications. Raises LocalAirflowError, StorageError."""
        missing = [jar for jar in _JARS if not jar.good(_FOLDER)]
        if missing:
            fetch(missing, _FOLDER)
        self.settings.mkdir(parents=True, exist_ok=True)
        java = Path(os.path.realpath(shutil.which("java") or "java"))
        known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {**known, **self.env, "JAVA_HOME": str(java.parents[1])}
        program = Path(__file__).with_name("MiniYarn.java")
        classes = os.pathsep.join([f"{files('pyspark')}/jars/*", *(str(jar.path(_FOLDER)) for jar in _JARS)])
        given = (str(self.settings), str(_NODES), ",".join(("JAVA_HOME", "PATH", *self.env)))
        call = [str(java), *_OPEN, "-Xmx512m", "-cp", classes, str(program), *given]
        started = self.register.start("yarn", call, env, self.root / "output.log", cwd=self.root)
        deadline = time.monotonic() + _SECONDS
        while not (self.settings / "yarn-site.xml").exists():
            if not started.alive:
                raise LocalAirflowError("YARN ended while starting.", Path(started.log))
            if time.monotonic() > deadline:
                raise LocalAirflowError(f"YARN is not up after {_SECONDS} s.", Path(started.log))
            time.sleep(0.2)
        return started

    def list_applications(self) -> list[dict[str, Any]]:
        """Returns what the resource manager tells of each application."""
        address = self._read_setting("yarn.resourcemanager.webapp.address")
        with _direct.open(f"http://{address}/ws/v1/cluster/apps", timeout=30) as answer:
            return list((json.load(answer)["apps"] or {"app": []})["app"])

    def logs_of(self, application: str) -> list[Path]:
        """Returns the files that the containers of an application have written."""
        return sorted(self.root.glob(f"target/**/{application}/*/std*"))

    def _read_setting(self, name: str) -> str:
        for entry in ElementTree.parse(self.settings / "yarn-site.xml").iter("property"):
            if entry.findtext("name") == name:
                return entry.findtext("value") or ""
        raise LocalAirflowError(f"YARN has no setting {name}.")
