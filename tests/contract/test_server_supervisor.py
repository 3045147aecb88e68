"""The supervisor of a Spark Connect server, over a small program that answers as a server of gRPC. No JVM."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from typer.testing import CliRunner

from support.airflow_stack import wait_until
from support.pipelines import make_pipeline
from tidefold.cli.app import app
from tidefold.spark import local_server
from tidefold.spark.local_server import free_port
from tidefold.spark.server_supervisor import answers

# Prints its number, sends an empty frame of settings to whoever connects, and prints that somebody asked.
SERVER = """
import os, socket, sys
print("server", os.getpid(), flush=True)
print("Current mem limits: -1 of max -1\\n", flush=True)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.recv(100)
            connection.sendall(bytes(3) + bytes([4]) + bytes(5))
        print("asked", flush=True)
"""
SUPERVISOR = """
import sys
from pathlib import Path
from tidefold.spark import server_supervisor as supervisor
supervisor._LOOK_SECONDS = supervisor._FILES_SECONDS = 0.1
supervisor._EVENT_FILES = 2
sys.exit(supervisor.main(Path(sys.argv[1])))
"""


@contextmanager
def supervised(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A supervisor whose server answers, and the port."""
    port = free_port()
    code, events, scratch = (folder / name for name in ("code", "events", "scratch"))
    for path in (code, events, scratch):
        path.mkdir(parents=True, exist_ok=True)
    plan = {
        "argv": [sys.executable, "-c", SERVER, str(port)],
        "env": {},
        "port": port,
        "ui": f"http://127.0.0.1:{port}",
        "watched": [str(code)],
        "events": str(events),
        "scratch": str(scratch),
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "token").write_text("token")
    process = start(folder)
    try:
        wait_until(lambda: answers(port), 30, every=0.1)
        yield process, port
    finally:
        # A test may have killed it.
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    assert not answers(port)


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(folder)])


def find_servers(folder: Path) -> list[int]:
    """The processes of all servers that were started, by what they printed."""
    lines = (folder / "server.log").read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("server ")]


def count_asked(folder: Path) -> int:
    return (folder / "server.log").read_text().splitlines().count("asked")


def test_a_server_that_answered_is_started_again_without_a_longer_pause(tmp_path: Path) -> None:
    """However often it dies: a run waits for about a minute."""
    with supervised(tmp_path):
        for deaths in range(1, 7):
            # When the supervisor asks a second time, it knows the first answer. Nobody else asks here.
            asked = count_asked(tmp_path)
            wait_until(lambda before=asked: count_asked(tmp_path) > before + 1, 30, every=0.1)
            psutil.Process(find_servers(tmp_path)[-1]).kill()
            wait_until(lambda number=deaths: len(find_servers(tmp_path)) > number, 30, every=0.1)
    pauses = re.findall(r"before the next start is (\S+) s", (tmp_path / "server.log").read_text())
    assert pauses == ["0.1"] * 6


def test_a_server_that_dies_and_one_whose_code_changed_are_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path) as (_, port):
        [first] = find_servers(tmp_path)
        psutil.Process(first).kill()
        wait_until(lambda: len(find_servers(tmp_path)) == 2 and answers(port), 30, every=0.1)
        scratch = tmp_path / "scratch"
        (scratch / "blockmgr-1").mkdir()
        (scratch / "blockmgr-1" / "rows").touch()
        (scratch / "connect.jar").touch()
        (tmp_path / "code" / "new.py").touch()
        wait_until(lambda: len(find_servers(tmp_path)) == 3 and answers(port), 30, every=0.1)
        assert not list(scratch.iterdir())
    assert not [number for number in find_servers(tmp_path) if psutil.pid_exists(number)]
    printed = (tmp_path / "server.log").read_text()
    assert "the server ended with code -9" in printed
    assert "code or jars have changed" in printed
    assert "mem limits" not in printed


def test_a_person_sees_whether_the_server_answers_died_or_was_stopped(tmp_path: Path) -> None:
    config, folder = make_pipeline(tmp_path).config, tmp_path / "var" / "server"

    def ask(action: str = "status") -> tuple[int, str]:
        done = CliRunner().invoke(app, ["spark", action, "-c", str(config.path)])
        return done.exit_code, done.stdout

    assert ask() == (0, "No Spark Connect server runs here.\n")
    with supervised(folder) as (supervisor, port):
        # It finds the server that runs, and waits for its answer.
        assert ask("start") == ask()
        code, text = ask()
        assert (code, f"Its pages: http://127.0.0.1:{port}." in text) == (0, True)
        assert f"process {supervisor.pid}." in text
        server = psutil.Process(find_servers(folder)[-1])
        server.suspend()
        code, text = ask()
        assert (code, "does not answer" in text, "http" in text) == (6, True, False)
        server.resume()
        supervisor.kill()
        supervisor.wait(30)
        code, text = ask()
        assert (code, "have died" in text) == (6, True)
    with supervised(folder):
        assert ask("stop") == (0, "The Spark Connect server was stopped.\n")
        assert ask() == (0, "No Spark Connect server runs here.\n")


def test_an_empty_token_is_made_anew(tmp_path: Path) -> None:
    """A disk that was full left it, and a server with it would let in everybody."""
    (tmp_path / "token").touch()
    token = local_server._read_token(tmp_path)
    assert len(token) == 64
    assert local_server._read_token(tmp_path) == token


def test_a_folder_that_cannot_be_written_has_a_next_step(tmp_path: Path) -> None:
    config = make_pipeline(tmp_path).config
    (tmp_path / "var").mkdir(exist_ok=True)
    (tmp_path / "var" / "server").touch()
    for action in ("start", "stop"):
        done = CliRunner().invoke(app, ["spark", action, "-c", str(config.path)])
        assert done.exit_code == 6, done.output
        assert "CONNECT_NOT_STARTED" in done.stderr
        assert "writable" in done.stderr


def test_one_folder_has_one_supervisor_and_few_files_of_events(tmp_path: Path) -> None:
    with supervised(tmp_path):
        assert start(tmp_path).wait(30) == 1
        for number, name in enumerate(["old/events_1_a", "new/events_1_b", "new/events_2_b", "new/events_3_b"]):
            path = tmp_path / "events" / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
            os.utime(path, (number, number))
        left = lambda: sorted(path.name for path in tmp_path.glob("events/*/*"))  # noqa: E731
        wait_until(lambda: left() == ["events_1_b", "events_2_b", "events_3_b"], 30, every=0.1)


def test_a_server_that_speaks_something_else_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request")

        thread = threading.Thread(target=reply)
        thread.start()
        assert not answers(listening.getsockname()[1])
        thread.join()
