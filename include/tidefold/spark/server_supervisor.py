"""Keeps a Spark Connect server running: `python -m tidefold.spark.server_supervisor FOLDER`. Standard library only.

It starts the server again if it dies, if it stops to answer, or if code or jars change. What the server prints goes to
`server.log`, which rotates. SIGTERM ends both. The server also ends if this process is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

_LOG_BYTES, _LOG_FILES = 10 << 20, 3
_LOOK_SECONDS, _FILES_SECONDS = 2.0, 10.0
# A server that did not answer for so long is started again.
_SILENT_SECONDS, _STARTING_SECONDS = 60.0, 300.0
_GRACE_SECONDS = 15.0
# Spark writes events of 10 MB to a file. The first one has the application's settings.
_EVENT_FILES = 10
# The preface of HTTP/2 with an empty frame of settings, the number of that frame, and where it is in an answer.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_SETTINGS, _TYPE = 4, 3
_DEATH_SIGNAL = 1
DEATH = "the server ended with code"
# What each Python worker prints when it begins, and the empty line after it.
_NOISE = (b"Current mem limits:", b"\n")


def answers(port: int) -> bool:
    """Whether a server of gRPC answers on this port of the loopback address."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(_HELLO)
            answer = connection.recv(_TYPE + 1)
        return len(answer) > _TYPE and answer[_TYPE] == _SETTINGS
    except OSError:
        return False


def find_state(watched: list[str]) -> tuple[int, int, int]:
    """Returns what changes with the files of these folders: how many there are, their bytes and the newest time."""
    states = []
    for path in (path for folder in watched for ending in ("*.py", "*.jar") for path in Path(folder).rglob(ending)):
        with suppress(OSError):  # It is deleted at this moment.
            states.append(path.stat())
    return len(states), sum(s.st_size for s in states), max((s.st_mtime_ns for s in states), default=0)


class Supervisor:
    """One server, and the loop that looks after it. `plan`: `argv`, `env`, `port`, `watched`, `events`, `scratch`."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self._folder, self._plan, self._ended = folder, plan, threading.Event()
        self._has_answered = False
        self._log = logging.getLogger("server")
        self._log.setLevel(logging.INFO)
        self._log.addHandler(RotatingFileHandler(folder / "server.log", maxBytes=_LOG_BYTES, backupCount=_LOG_FILES))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ended.set())

    def run(self) -> None:
        """Returns after a signal. A server that never answered is tried again, more and more seldom."""
        pause = _LOOK_SECONDS
        # A supervisor that was killed left it.
        self._empty_scratch()
        while not self._ended.is_set():
            state, began = find_state(self._plan["watched"]), time.monotonic()
            self._note("starting the server")
            process = self._start()
            try:
                reason = self._watch(process, state, began)
            finally:
                self._stop(process)
                self._empty_scratch()
            pause = _LOOK_SECONDS if self._has_answered else min(pause * 2, _SILENT_SECONDS)
            is_pausing = bool(process.returncode) and not self._ended.is_set()
            self._note(f"{reason}; the pause before the next start is {pause:g} s" if is_pausing else reason)
            self._ended.wait(pause if is_pausing else 0)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._plan["argv"],
            env={**os.environ, **self._plan["env"]},
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent,
        )
        assert process.stdout
        threading.Thread(target=self._copy, args=(process.stdout,), daemon=True).start()
        return process

    def _watch(self, process: subprocess.Popen[bytes], state: tuple[int, int, int], began: float) -> str:
        """Returns why the server is to be started again, or that this process shall end."""
        limit, seen, looked = _STARTING_SECONDS, began, began
        self._has_answered = False
        while not self._ended.wait(_LOOK_SECONDS):
            if process.poll() is not None:
                return f"{DEATH} {process.returncode}"
            if answers(self._plan["port"]):
                limit, seen, self._has_answered = _SILENT_SECONDS, time.monotonic(), True
            elif time.monotonic() - seen > limit:
                return f"the server did not answer for {limit:.0f} s"
            if time.monotonic() - looked > _FILES_SECONDS:
                looked = time.monotonic()
                if find_state(self._plan["watched"]) != state:
                    return "code or jars have changed"
                self._drop_events()
        return "stopping"

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _empty_scratch(self) -> None:
        """Deletes what a server that was killed left. No server runs now."""
        for path in Path(self._plan["scratch"]).glob("*"):
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):  # It was a folder.
                path.unlink()

    def _drop_events(self) -> None:
        """Deletes old files of events, also those of earlier applications. The name of a file has its number."""
        files = [p for p in Path(self._plan["events"]).glob("*/events_*") if p.name.split("_")[1].isdigit()]
        files.sort(key=lambda path: path.stat().st_mtime)
        for path in files[:-_EVENT_FILES]:
            if not path.name.startswith("events_1_") or path.parent != files[-1].parent:
                path.unlink(missing_ok=True)

    def _copy(self, output: IO[bytes]) -> None:
        for line in output:
            if not line.startswith(_NOISE):
                self._log.info(line.decode(errors="replace").rstrip())

    def _note(self, text: str) -> None:
        self._log.info("%s supervisor: %s", time.strftime("%Y-%m-%dT%H:%M:%S"), text)


def _end_with_parent() -> None:
    with suppress(OSError, AttributeError):  # Linux has it.
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def main(folder: Path) -> int:
    """Runs until SIGTERM; 1: another supervisor has this folder."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 1
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    plan = folder / "plan.json"
    Supervisor(folder, json.loads(plan.read_text())).run()
    # A supervisor that was killed leaves it: `tidefold spark status` tells.
    plan.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
