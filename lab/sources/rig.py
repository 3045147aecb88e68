"""A real PostgreSQL with a table, Debezium's engine, a lander and tidefold itself, for proofs of `tidefold source`."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.attest.attest import attest
from tidefold.operations.attest.proof import AttestRequest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import connect
from torture.capture import Capture, Java
from torture.servers import Postgres

_DEBIAN = Path("/usr/lib/postgresql/15/bin")
Fault = Callable[[dict[str, Any]], "dict[str, Any] | None"]


def start_server(folder: Path) -> Postgres:
    """Starts PostgreSQL 15 where Debian's package has it, else the wheel's."""
    shutil.rmtree(folder, ignore_errors=True)
    return Postgres(folder, _DEBIAN if _DEBIAN.exists() else None)


class SourceRig:
    """One database with one table, its connector, and the log of the table.

    fault: may change a captured record before it lands, or leave it out; it then becomes None by itself.
    """

    def __init__(self, server: Postgres, java: Java, folder: Path, table: str, columns: str, **more: object) -> None:
        self.server, self.folder, self.table, self.topic = server, folder, table, f"{folder.name}.public.{table}"
        self.name = folder.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        own = server.session("")
        for (slot,) in own.rows("select slot_name from pg_replication_slots"):
            held = f"pg_replication_slots where slot_name = '{slot}' and active"
            own.rows(f"select pg_terminate_backend(active_pid) from {held}")
            time.sleep(0.5)
            own.rows(f"select pg_drop_replication_slot('{slot}')")
        own.execute(f'drop database if exists "{self.name}" with (force)', f'create database "{self.name}"')
        own.close()
        self.session = server.session(self.name)
        self.columns = columns
        self.fault: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
        self.capture = Capture(java, folder, self._list_properties(more), 100_000)
        self._taken, self._runs, self._stop = 0, 0, threading.Event()
        self.failed: list[str] = []
        self.threads: list[threading.Thread] = []
        os.environ["AIRFLOW_CONN_SOURCE"] = f"postgres://{server.user}@127.0.0.1:{server.port}/{self.name}"

    def _list_properties(self, more: Mapping[str, object]) -> dict[str, object]:
        return {
            "name": self.name, "topic.prefix": self.name,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1", "database.port": self.server.port, "database.user": self.server.user,
            "database.password": "x", "database.dbname": self.name, "table.include.list": f"public.{self.table}",
            "plugin.name": "pgoutput", "slot.name": f"{self.name}_slot", "publication.name": f"{self.name}_pub",
            "publication.autocreate.mode": "disabled", "decimal.handling.mode": "string", "poll.interval.ms": 100,
            "offset.flush.interval.ms": 1000, "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false", "header.converter.schemas.enable": "false", **more,
        }  # fmt: skip

    def start(self) -> None:
        """Starts connector, lander and tidefold's runs."""
        self.session.execute(f"create publication {self.name}_pub for table {self.table}")
        self.write_configuration()
        self.capture.start()
        self.threads = [threading.Thread(target=one, daemon=True) for one in (self._land_always, self._run_always)]
        for thread in self.threads:
            thread.start()

    def write_configuration(self, quality: str = "quality: {max_refused: 1}") -> None:
        lines = ["version: 1", "store: store", "spark: {above: 8GB}", "logs:", f"  {self.table}:"]
        lines += [f"    source: {{format: debezium-json, connector: postgresql, path: landing/{self.topic}}}"]
        lines += ["    key: [id]", f"    columns: {self.columns}", f"    {quality}", ""]
        (self.folder / "tidefold.yaml").write_text("\n".join(lines))
        (self.folder / "landing" / self.topic).mkdir(parents=True, exist_ok=True)

    def _land_always(self) -> None:
        while not self._stop.is_set():
            self.land()
            time.sleep(0.3)

    def land(self) -> None:
        """Lands the captured lines that did not land, changed by the fault that is planted."""
        lines = []
        for file in sorted((self.capture.out / self.topic).glob("*.jsonl")):
            begin = int(file.name.rpartition("+")[2].removesuffix(".jsonl"))
            whole = file.read_bytes().rpartition(b"\n")[0].splitlines()
            if begin + len(whole) > self._taken:
                lines += whole[max(0, self._taken - begin) :]
                self._taken = begin + len(whole)
        kept = []
        for line in lines:
            if self.fault is not None:
                changed = self.fault(json.loads(line))
                if changed is None:
                    continue
                line = json.dumps(changed).encode()
            kept.append(line)
        if kept:
            first = json.loads(kept[0])["offset"]
            landing = self.folder / "landing" / self.topic
            part = landing / ".part"
            part.write_bytes(b"\n".join(kept) + b"\n")
            part.replace(landing / f"{self.topic}+0+{first:010d}.jsonl")

    def _run_always(self) -> None:
        while not self._stop.is_set():
            self.run_once()
            time.sleep(0.3)

    def run_once(self) -> None:
        """Ingests, folds and publishes, in this process."""
        pipeline = connect(load_config(self.folder / "tidefold.yaml"))
        self._runs += 1
        [taken] = ingest(pipeline, [self.table], in_process)
        state = pipeline.ledger(self.table).find()
        if taken.error or state is None:
            self.failed += [taken.message] if taken.error else []
            return
        [folded] = materialize(pipeline, [self.table], Fold(f"r{self._runs}"), in_process)
        if pipeline.ledger(self.table).read().open_attempt:
            judge_all(pipeline, self.table)
            confirm(pipeline, self.table, Confirmation(run=f"r{self._runs}"))
        self.failed += [folded.message] if folded.error else []

    def await_caught_up(self, seconds: float = 120) -> None:
        """Waits until the published table has what was written before, by a change of a row that changes nothing."""
        pipeline = connect(load_config(self.folder / "tidefold.yaml"))
        [(position,)] = self.session.rows("select (pg_current_wal_insert_lsn() - '0/0')::bigint")
        self.session.execute(f"update {self.table} set id = id where id = (select min(id) from {self.table})")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            state = pipeline.ledger(self.table).find()
            if state and state.latest and state.latest.published and not state.unfolded:
                reached = max((n for p in state.positions for n in p.stream.max_order), default=0)
                if reached >= int(position):
                    return
            time.sleep(0.3)
        raise SystemExit(f"{self.name} did not catch up: {self.failed[-1:]}")

    def attest(self, **options: Any) -> Outcome:
        pipeline = connect(load_config(self.folder / "tidefold.yaml"))
        return attest(pipeline, self.table, AttestRequest("source", by="lab", **options))

    def end(self) -> None:
        self._stop.set()
        for thread in self.threads:
            thread.join()
        if self.capture.running:
            self.capture.stop()
        self.session.close()
