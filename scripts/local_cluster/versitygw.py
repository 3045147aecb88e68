"""The S3 server of the cluster: versitygw, one version, built by Go from the sources that Go's checksums name."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from local_airflow.errors import LocalAirflowError
from local_airflow.processes import Register, Started
from local_airflow.settings import PROJECT
from tidefold.spark.local_server import free_port

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
TOOLS = PROJECT / "var" / "tools"
BUCKET = "tidefold"
_SECONDS = 30


def find_program() -> Path | None:
    """The program that VERSITYGW names, or the one that was built before; None: there is none."""
    named = os.environ.get("VERSITYGW")
    program = Path(named) if named else TOOLS / f"versitygw-{VERSION}" / "versitygw"
    return program if program.is_file() else None


def fetch_program(say: Callable[[str], None]) -> Path:
    """Returns the program. Builds it first if there is none. Raises LocalAirflowError."""
    if found := find_program():
        return found
    if named := os.environ.get("VERSITYGW"):
        raise LocalAirflowError(f"VERSITYGW names {named}, which does not exist.")
    go = shutil.which("go")
    if go is None:
        raise LocalAirflowError(
            f"The S3 server versitygw {VERSION} is built by Go, and there is no `go` on the PATH. Install Go "
            "(https://go.dev/dl/), or name the built program in VERSITYGW."
        )
    folder = TOOLS / f"versitygw-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    say(f"building versitygw {VERSION} by `go install` (once, a minute or two)")
    env = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "", "CGO_ENABLED": "0"}
    done = subprocess.run([go, "install", MODULE], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalAirflowError(f"`go install {MODULE}` failed: {done.stderr.strip()[-500:]}")
    return folder / "versitygw"


@dataclass(frozen=True)
class S3Server:
    """A server on one port, over one folder. It may be killed and started again.

    folder: of its files; the bucket is a folder below it.
    """

    program: Path
    folder: Path
    port: int
    keys: tuple[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, url: str | None = None) -> dict[str, str]:
        """What makes AWS clients use this server, under the given address if a proxy stands before it."""
        return {
            "AWS_ACCESS_KEY_ID": self.keys[0],
            "AWS_SECRET_ACCESS_KEY": self.keys[1],
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url or self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self, register: Register, log: Path) -> Started:
        """Starts the server and waits until it answers. Raises LocalAirflowError."""
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        command = [str(self.program), "--port", f"127.0.0.1:{self.port}", "--health", "/health", "--quiet"]
        started = register.start("s3", [*command, "posix", str(self.folder)], self._env(), log)
        deadline = time.monotonic() + _SECONDS
        while not self._answers():
            if not started.alive:
                raise LocalAirflowError("The S3 server ended while starting.", log)
            if time.monotonic() > deadline:
                raise LocalAirflowError(f"The S3 server did not answer within {_SECONDS} s.", log)
            time.sleep(0.1)
        return started

    def _env(self) -> Mapping[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return {**kept, "ROOT_ACCESS_KEY": self.keys[0], "ROOT_SECRET_KEY": self.keys[1]}

    def _answers(self) -> bool:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.url}/health", timeout=5):
                return True
        except OSError:
            return False


def make_server(program: Path, folder: Path) -> S3Server:
    """A server that is not started yet, with a free port and keys of its own."""
    return S3Server(program, folder, free_port(), ("tidefold", secrets.token_hex(16)))
