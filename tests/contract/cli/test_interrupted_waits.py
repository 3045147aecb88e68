"""The first Ctrl-C or SIGTERM ends a command that waits for a store, and a reader who leaves ends none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.s3_server import ENVIRONMENT

CONFIG = """\
version: 1
store: s3://bucket/store
logs:
"""
LOG = """\
  {name}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{name}}}
    key: [id]
    columns: {{id: int}}
"""
# The main thread waits for a lock in native code, where no handler runs, as after a signal that came too early for it.
NATIVE = """
import ctypes, threading
from tidefold.cli import __main__ as entry
from tidefold.storage.outage import wait

def command(prog_name):
    library, mutex, held = ctypes.CDLL(None), ctypes.create_string_buffer(64), threading.Event()

    def hold():
        library.pthread_mutex_lock(mutex)
        held.set()
        print("waiting", flush=True)
        print("interrupted" if wait(3600) else "over", flush=True)
        library.pthread_mutex_unlock(mutex)

    thread = threading.Thread(target=hold, daemon=True)
    try:  # The handler may still run here.
        thread.start()
        held.wait()
        library.pthread_mutex_lock(mutex)
    finally:
        thread.join()

entry.app = command
entry.main()
"""
# DuckDB makes a RuntimeError of what a handler raises while it works.
QUERY = """
from tidefold.changelog.duckdb_connections import connect
from tidefold.cli import __main__ as entry
from tidefold.operations.ground.outcome import for_each_log

def act(log):
    with connect() as duck:
        print("working", flush=True)
        duck.execute("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b").fetchall()

entry.app = lambda prog_name: print(for_each_log(["items"], act), flush=True)
entry.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("script", "said"), [(NATIVE, b"interrupted\n"), (QUERY, b"")], ids=["wait", "query"])
def test_a_signal_ends_what_native_code_does(script: str, said: bytes, number: signal.Signals) -> None:
    """Fault: a signal just before the main thread waited for others ended none of them.

    Fault: one that came in a query failed a log, and the run went on and published.
    """
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        try:
            told, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert told == said
    assert b"KeyboardInterrupt" in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [["validate", "--online"], ["status"]], ids=["on its way out", "in threads"])
def test_the_first_signal_ends_a_command_that_waits_for_a_store(
    tmp_path: Path, command: list[str], number: signal.Signals
) -> None:
    path = tmp_path / "tidefold.yaml"
    path.write_text(CONFIG + LOG.format(name="items") + LOG.format(name="orders"))
    for name in ("items", "orders"):
        (tmp_path / "landing" / name).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        environment = {**os.environ, **ENVIRONMENT, "AWS_ENDPOINT_URL": address, "AWS_MAX_ATTEMPTS": ""}
        arguments = [sys.executable, "-m", "tidefold.cli", *command, "-c", str(path)]
        process = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)
        server.accept()[0].close()  # From now on nobody answers.
    process.send_signal(number)
    told = process.communicate(timeout=30)[1]
    assert process.returncode == 130, told
    assert "[INTERRUPTED]" in told


@pytest.mark.parametrize(("target", "code"), [("| true", 0), (">&-", 0), ("> /dev/full", 1)])
def test_a_run_goes_on_when_its_output_goes_nowhere(tmp_path: Path, target: str, code: int) -> None:
    """Fault: `tidefold run | head -2` ended without a word in the middle of a snapshot, which then stayed open."""
    path = tmp_path / "tidefold.yaml"
    source = "{format: csv, path: landing}, columns: {id: int}, key: [id], order: file"
    path.write_text(f"version: 1\nstore: store\nlogs:\n  items: {{source: {source}}}\n")
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/1.csv").write_text("id\n7\n")
    arguments = [sys.executable, "-m", "tidefold.cli", "run", "-c", str(path)]
    shell = arguments if target == "| true" else ["sh", "-c", f'exec "$@" {target}', "sh", *arguments]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.close()  # Nobody reads.
        told = process.communicate(timeout=60)[1]
    assert process.returncode == code, told
    assert ("[OUTPUT_LOST]" in told) is bool(code)
    assert (tmp_path / "store/tables/items/_delta_log/00000000000000000000.json").exists()


def test_help_that_cannot_be_written_is_told_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "tidefold.cli", "--version"], stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"[OUTPUT_LOST]" in done.stderr
