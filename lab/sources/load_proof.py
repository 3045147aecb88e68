"""Loads beside writers, then the stream of the same slot: equal at rest, whatever is killed while rows are read."""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

from sources.attest_proof import _COLUMNS, _DDL, Writers
from sources.rig import SourceRig
from tidefold.operations.attest.proof import AttestDetails
from torture.capture import Java
from torture.servers import Postgres

_KILLS = ("nothing", "program", "connection", "server")
_FILL = """insert into acct select n, 'n' || n, 'x', n % 1000 / 7.0, 1.500, n / 3.0, n % 2 = 0, '2026-11-27',
'2026-11-27 10:00:00.5+02', '\\x00ff', '{{"b": 1}}', array['a', null] from generate_series(1, {rows}) n"""


def prove_load(server: Postgres, java: Java, folder: Path, runs: int, rows: int) -> str:
    """Returns what differs; empty: nothing."""
    wrong, killed = list[str](), dict.fromkeys(_KILLS, 0)
    # Writers end with their server.
    threading.excepthook = lambda told: None
    for number in range(runs):
        told = _play(server, java, folder / f"load{number}", rows, random.Random(number), _KILLS[number % 4], killed)
        print(f"load run {number}: {told}", flush=True)
        wrong += [] if told.startswith("equal") else [told]
    print(f"killed: {killed}")
    return "; ".join(wrong)


def _play(
    server: Postgres, java: Java, folder: Path, rows: int, rnd: random.Random, kill: str, killed: dict[str, int]
) -> str:
    more = {"snapshot.mode": "no_data", "heartbeat.interval.ms": 1000}
    rig = SourceRig(server, java, folder, "acct", _COLUMNS, **more)
    rig.session.execute(_DDL, _FILL.format(rows=rows), f"create publication {rig.name}_pub for table acct")
    rig.write_configuration()
    writers = Writers(server, rig.name, rows, 60)
    time.sleep(1)
    broken = ""
    if kill != "nothing":
        said, code = _load(rig, rnd, kill)
        if code == 0:
            broken = "(too late)"
        elif "begins at" not in said:
            return f"unequal: no load: {said}"
        elif "taken" in _tidefold(rig, "step", "ingest"):
            return f"unequal: a load that broke off was ingested: {said}"
        else:
            killed[kill] += 1
            if kill == "server":
                rig.session = server.session(rig.name)
                writers = Writers(server, rig.name, rows, 60)
            _tidefold(
                rig, "source", "load", "acct", "--connection", "source", "--slot", f"{rig.name}_slot", "--drop-slot"
            )
    if not broken:
        said, code = _load(rig, rnd, "nothing")
        if code:
            return f"unequal: no load: {said}"
    before = writers.done
    rig.capture.start()
    rig.threads = [threading.Thread(target=one, daemon=True) for one in (rig._land_always, rig._run_always)]
    for thread in rig.threads:
        thread.start()
    time.sleep(8)
    writers.end()
    rig.await_caught_up(240)
    outcome = rig.attest(lag=0.0, patience=2.0)
    rig.end()
    details = outcome.details
    assert isinstance(details, AttestDetails), outcome
    state = f"{details.source.sentence}; {writers.done - before} transactions streamed; {kill} killed {broken}"
    is_equal = outcome.error is None and not details.faults and _dump(server, rig) == _published(rig)
    return f"{'equal' if is_equal else 'unequal'}: {state}; {rig.failed[-1:]}"


def _dump(server: Postgres, rig: SourceRig) -> list[tuple[str, ...]]:
    session = server.session(rig.name)
    told = "select id::text, name, amount::text, (extract(epoch from at) * 1000000)::bigint::text from acct"
    rows = sorted(session.rows(told), key=repr)
    session.close()
    return rows


def _published(rig: SourceRig) -> list[tuple[str, ...]]:
    import duckdb
    from deltalake import DeltaTable

    published = DeltaTable(str(rig.folder / "store/tables/acct")).to_pyarrow_table()
    told = 'select id::varchar, name, amount::varchar, epoch_us("at")::varchar from published'
    return sorted(duckdb.execute(told).fetchall(), key=repr) if published.num_rows else []


def _start(rig: SourceRig, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tidefold.cli", *words, "-c", str(rig.folder / "tidefold.yaml")]
    return subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _tidefold(rig: SourceRig, *words: str) -> str:
    return _start(rig, *words).communicate()[0]


def _load(rig: SourceRig, rnd: random.Random, kill: str) -> tuple[str, int]:
    """Loads, and kills something at one line that the load says. Returns what it said, and its exit code."""
    words = ["--connection", "source", "--slot", f"{rig.name}_slot", "--publication", f"{rig.name}_pub"]
    running = _start(rig, "source", "load", "acct", *words)
    assert running.stdout is not None
    said, at = "", rnd.choice(["begins at", "begins at", "part"])
    for line in running.stdout:
        said += line
        if kill != "nothing" and at in line:
            time.sleep(rnd.uniform(0, 0.15))
            _kill(rig, running, kill)
            kill = "nothing"
    return said, running.wait()


def _kill(rig: SourceRig, running: subprocess.Popen[str], kill: str) -> None:
    if kill == "program":
        running.kill()
    elif kill == "connection":
        mine = "pid <> pg_backend_pid() and (application_name = 'tidefold' or backend_type = 'walsender')"
        rig.session.rows(f"select pg_terminate_backend(pid) from pg_stat_activity where {mine}")
    else:
        server = rig.server
        os.killpg(server.process.pid, 9)
        server.process.wait()
        time.sleep(0.5)
        server.__init__(server.copy_file.parents[1], server.programs, server.port)  # type: ignore[misc]


def measure_load(server: Postgres, java: Java, folder: Path, rows: int) -> str:
    """Prints CPU and memory of a load of many rows beside COPY alone. Returns what is wrong; empty: nothing."""
    rig = SourceRig(server, java, folder / "large", "acct", _COLUMNS, **{"snapshot.mode": "no_data"})
    rig.session.execute(
        _DDL, _FILL.format(rows=rows), f"create publication {rig.name}_pub for table acct", "vacuum acct"
    )
    rig.write_configuration()
    [(size,)] = rig.session.rows("select pg_size_pretty(pg_table_size('acct'))")
    for name, words in (
        ("COPY", ("psql", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", server.user, "-d", rig.name)),
        (
            "load",
            ("source", "load", "acct", "--connection", "source", "--slot", "large_slot", "--publication", "large_pub"),
        ),
        ("ingest", ("step", "ingest")),
    ):
        begun, clock = _spent(), time.monotonic()
        if name == "COPY":
            with open(os.devnull, "wb") as sink:
                subprocess.run([*words, "-c", "copy acct to stdout (format csv)"], stdout=sink, check=True)
            said = ""
        else:
            said = _tidefold(rig, *words)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        spent = _spent() - begun
        print(f"{name}: {rows:,} rows of {size}: {spent:.1f} CPU s, {time.monotonic() - clock:.1f} s, peak {peak} MB")
        if name != "COPY" and not re.search(r"taken", said):
            return said
    rig.session.rows("select pg_drop_replication_slot('large_slot')")
    rig.session.close()
    return ""


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
