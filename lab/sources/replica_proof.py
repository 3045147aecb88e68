"""Attestations on a streaming replica: equal when it has caught up, refused while it lags, and it names a fault."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from support.live_table import LiveTable
from tidefold.errors import TidefoldError
from tidefold.operations.attest.attest import attest
from tidefold.operations.attest.proof import AttestRequest
from torture.servers import Postgres, PostgresSession, free_port, unprivileged


class _Replica:
    """A copy of a server that follows it."""

    user = "postgres"

    def __init__(self, server: Postgres, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        self.port = free_port()
        programs, environment = server.programs, {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
        source = ["-h", "127.0.0.1", "-p", str(server.port), "-U", server.user]
        copied = [str(programs / "pg_basebackup"), *source, "-D", str(folder / "data"), "-R", "-c", "fast"]
        subprocess.run([*unprivileged(), *copied], env=environment, check=True, capture_output=True)
        started = [str(programs / "postgres"), "-D", str(folder / "data"), "-c", f"port={self.port}"]
        started += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        self.process = subprocess.Popen([*unprivileged(), *started], env=environment, stderr=subprocess.DEVNULL)


def prove_replica(server: Postgres, folder: Path) -> str:
    """Returns what went wrong; empty: nothing did."""
    own = server.session("")
    own.execute("drop database if exists followed with (force)", "create database followed")
    primary = server.session("followed")
    replica = _Replica(server, folder / "replica")
    try:
        follower = _connect(replica)
        shutil.rmtree(folder / "followed", ignore_errors=True)
        (folder / "followed").mkdir()
        os.environ["AIRFLOW_CONN_SOURCE"] = f"postgres://postgres@127.0.0.1:{replica.port}/followed"
        live = LiveTable(primary, folder / "followed")
        live.write("insert into items select n, 't' || n from generate_series(1, 50) n")
        live.publish()
        _await(lambda: bool(follower.rows("select from pg_class where relname = 'items'")))
        said = [_attest(live)]
        follower.execute("select pg_wal_replay_pause()")
        _await(lambda: follower.rows("select pg_get_wal_replay_pause_state()") == [("paused",)])
        live.write("update items set text = 'new' where id < 5")
        live.publish()
        said.append(_attest(live))
        follower.execute("select pg_wal_replay_resume()")
        _await(lambda: bool(follower.rows("select from items where text = 'new'")))
        said.append(_attest(live))
        live.write("update items set text = 'lost' where id = 9", is_sent=False)
        _await(lambda: bool(follower.rows("select from items where text = 'lost'")))
        said.append(_attest(live))
    finally:
        replica.process.send_signal(signal.SIGINT)
        replica.process.wait()
    return "" if said == ["equal", "ATTEST_BEHIND", "equal", "SOURCE_DIFFERS"] else f"{said}"


def _attest(live: LiveTable) -> str:
    try:
        outcome = attest(live.pipeline, "items", AttestRequest("source", patience=1.0, lag=0.0))
    except TidefoldError as error:
        return error.code
    return outcome.error_code or "equal"


def _connect(replica: _Replica) -> PostgresSession:
    opened: list[PostgresSession] = []

    def connect() -> bool:
        try:
            opened.append(PostgresSession(replica, "followed"))  # type: ignore[arg-type]
        except OSError:
            return False
        return True

    _await(connect)
    return opened[0]


def _await(happened: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise SystemExit("the replica does not follow")
        time.sleep(0.1)
