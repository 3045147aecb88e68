"""The environment of a peer: a venv and at most one jar below var/bench, made once, by checksum."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidefold.errors import TidefoldError
from tidefold.spark.jars import Jar, fetch

PROGRAMS = Path(__file__).parent / "peers"
ENVIRONMENTS = Path(__file__).parents[1] / "var" / "bench"


class PeerError(Exception):
    """A peer cannot run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A program below benchmarks/peers, and what it needs.

    engine: what runs it.
    tables: how it keeps changes: copy-on-write, merge-on-read.
    """

    name: str
    title: str
    engine: str
    rows: int
    packages: tuple[str, ...]
    tables: tuple[str, ...]
    jar: Jar | None = None

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def jar_path(self) -> Path | None:
        return self.jar.path(self.folder) if self.jar else None


def read_peers() -> dict[str, Peer]:
    """All peers, by name."""
    pins = tomllib.loads((PROGRAMS / "pins.toml").read_text())
    return {name: _peer(name, **pin) for name, pin in pins.items()}


def _peer(name: str, packages: list[str], tables: list[str], jar: dict[str, str] | None = None, **more: Any) -> Peer:
    made = Jar(**jar) if jar else None
    return Peer(name, packages=tuple(packages), tables=tuple(tables), jar=made, **more)


def make(peer: Peer) -> None:
    """Makes what is missing. Raises PeerError when something cannot be had."""
    stamp, lock = peer.folder / "requirements.txt", "\n".join([*peer.packages, ""])
    if not stamp.exists() or stamp.read_text() != lock:
        print(f"{peer.title}: packages into {peer.folder.relative_to(ENVIRONMENTS.parents[1])}", flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(peer.folder))
        wanted = peer.folder / "wanted.txt"
        wanted.write_text(lock)
        _run(str(peer.python), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(wanted))
        wanted.rename(stamp)
    if peer.jar and not peer.jar.good(peer.folder):
        try:
            fetch([peer.jar], peer.folder)
        except TidefoldError as error:
            raise PeerError(str(error)) from error


def _run(*command: str) -> None:
    # A machine's own settings must not change what the pins say; the index itself may be a mirror.
    unset = {"PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONSTRAINT", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PYTHONPATH"}
    env = {key: value for key, value in os.environ.items() if key not in unset}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise PeerError(f"`{' '.join(command[1:4])}` failed: {last[:300]}")
