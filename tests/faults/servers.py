"""S3 servers for the fault tests, each with an empty bucket."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local_cluster.versitygw import MODULE, find_program
from support.s3_server import ENVIRONMENT, S3Server

# Where it is as fast as memory: nothing of a test has to survive the machine.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
_OPTIONS = {"AWS_ALLOW_HTTP": "true"}


@contextmanager
def test_server() -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket of the tests' S3 server, and what a Delta reader needs for it."""
    server, bucket = S3Server(), f"test-{uuid.uuid4().hex[:12]}"
    options = {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.url}
    try:
        os.environ |= options
        urllib.request.urlopen(urllib.request.Request(f"{server.url}/{bucket}", method="PUT"))
        yield bucket, {**options, **_OPTIONS}
    finally:
        server.stop()


@contextmanager
def versitygw() -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket of a real S3 server, the one that docker-compose.yaml names, and what a Delta reader needs for it.

    Raises FileNotFoundError without the program.
    """
    program = find_program() or shutil.which("versitygw")
    if not program:
        raise FileNotFoundError(
            f"There is no versitygw: `go install {MODULE}`, then put it on the PATH or name it in VERSITYGW. "
            "`make cluster` builds it, too."
        )
    keys = {"ROOT_ACCESS_KEY": "testing", "ROOT_SECRET_KEY": "testing-secret"}
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        (Path(folder) / "bucket").mkdir()
        command = [program, "--port", f"127.0.0.1:{port}", "posix", folder]
        log = open(Path(folder).with_suffix(".log"), "wb")  # noqa: SIM115 (closed below)
        server = subprocess.Popen(command, env={**os.environ, **keys}, stdout=log, stderr=log)
        try:
            _wait_for(port)
            options = {
                "AWS_ACCESS_KEY_ID": keys["ROOT_ACCESS_KEY"],
                "AWS_SECRET_ACCESS_KEY": keys["ROOT_SECRET_KEY"],
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
            os.environ |= options
            yield "bucket", {**options, **_OPTIONS}
        finally:
            server.terminate()
            server.wait()
            log.close()
            Path(log.name).unlink()


def _wait_for(port: int) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/")
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("versitygw does not answer")
