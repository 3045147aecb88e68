"""A real SFTP server: Debian's sshd on a port of its own, with a key of its own, as the user of the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from support.landing_places import DiskBucket
from tidefold.spark.local_server import free_port

_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/sshd.pid
PasswordAuthentication no
UsePAM no
StrictModes no
Subsystem sftp internal-sftp
"""
_SECONDS = 20


def find_sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass
class SftpServer:
    """An sshd with a home of its own for the client, in a folder."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls, folder: Path) -> SftpServer:
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True)
        made = cls(folder, free_port())
        kind, key, *_ = (folder / "host.pub").read_text().split()
        (folder / ".ssh").mkdir()
        (folder / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{made.port} {kind} {key}\n")
        (folder / "sshd.conf").write_text(_CONFIG.format(port=made.port, folder=folder))
        made.start()
        return made

    @property
    def options(self) -> dict[str, str]:
        """What the settings of fsspec say of the user."""
        return {"username": getpass.getuser(), "key_filename": str(self.folder / "user")}

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        words = [str(find_sshd()), "-D", "-e", "-f", str(self.folder / "sshd.conf")]
        self._process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + _SECONDS
        while not _answers(self.port):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def cut(self) -> None:
        """Ends the server and every connection."""
        assert self._process
        for child in subprocess.run(
            ["pgrep", "-P", str(self._process.pid)], capture_output=True, text=True
        ).stdout.split():
            os.kill(int(child), 9)
        self._process.kill()
        self._process.wait()


def _answers(port: int) -> bool:
    import socket

    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


@dataclass(frozen=True)
class SftpBucket(DiskBucket):
    """A folder of this disk that is read over SFTP. Times there are whole seconds, so each file gets one of its own."""

    port: int = 0
    _seconds: Iterator[int] = field(default_factory=lambda: count(int(time.time())))

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        os.utime(self.folder / key, (second := next(self._seconds), second))

    @property
    def root(self) -> str:
        return f"sftp://127.0.0.1:{self.port}{self.folder}"
