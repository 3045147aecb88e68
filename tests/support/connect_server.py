"""A Spark Connect server of this environment's Spark, in a process of its own."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

from local_airflow.ports import free_port
from tidefold.spark.jars import find_delta_jars

_SECONDS = 120
# Where the server and its clients look for the token that both must have.
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectProcess:
    """A server on a free port of the loopback, with a token. `path`: what its Python workers import from."""

    def __init__(self, folder: Path, path: str) -> None:
        self.port, self.token = free_port(), secrets.token_hex(16)
        self.output = folder / "server.log"
        settings = {
            "spark.ui.enabled": "false",
            "spark.jars": ",".join(find_delta_jars()),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder}",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        words = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        program = str(Path(sys.executable).with_name("spark-submit"))
        command = [
            program,
            "--master",
            "local[2]",
            "--driver-memory",
            "1g",
            "--class",
            _CLASS,
            *words,
            "spark-internal",
        ]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
        env[TOKEN_VARIABLE] = self.token
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(command, env=env, stdout=sink, stderr=subprocess.STDOUT, cwd=folder)

    @property
    def address(self) -> str:
        # A client with a token wants TLS, except of a host with this name.
        return f"sc://localhost:{self.port}"

    def wait(self) -> None:
        """Waits until the server answers."""
        ends = time.monotonic() + _SECONDS
        while time.monotonic() < ends and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise AssertionError(self.output.read_text()[-3000:])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
