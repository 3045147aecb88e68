"""`python -m torture SEEDS|failed FIRST [postgresql|mariadb|both]`: random tables and workloads of real databases.

A seed is a database with five tables, in four phases: transactions run while Debezium's engine captures them; the
records arrive in pieces, are ingested, folded and published; then every table equals the database's own dump.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torture import page
from torture.capture import CaptureError, Java
from torture.person import FoundError
from torture.plan import CONNECTORS
from torture.seed import Seed, Totals
from torture.servers import Maria, Postgres, Server

FAILED = Path(__file__).parents[1] / "data" / "torture-failed-seeds.txt"


def _cpu() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def play(number: int, server: Server, java: Java, work: Path, totals: Totals) -> str:
    """What was found with a seed; empty: nothing."""
    seed = Seed(number, server, java, work, totals)
    finding = ""
    try:
        seed.play()
    except FoundError as error:
        finding = str(error)
    except CaptureError as error:
        finding = f"the rig: {error}"
        java.kill()
        seed.capture.running = False
    except Exception:
        finding = f"the rig: {traceback.format_exc()}"
    seed.close()
    totals.seeds += 1
    if not finding and not os.environ.get("TORTURE_KEEP"):
        shutil.rmtree(seed.folder)
    return finding


def main(numbers: Sequence[int], databases: str, engines: Path, programs: Path, work: Path) -> int:
    chosen = CONNECTORS if databases == "both" else (databases,)
    servers: dict[str, tuple[Server, Java]] = {}
    totals: dict[str, Totals] = {name: Totals() for name in chosen}
    found: list[int] = []
    try:
        for number in numbers:
            connector = CONNECTORS[number % 2] if databases == "both" else databases
            if connector not in servers:
                home = work / "data" / connector
                server: Server = Postgres(home) if connector == "postgresql" else Maria(home, programs)
                servers[connector] = server, Java(engines / server.engine, work / f"{connector}-engine.log")
            begun, cpu = time.monotonic(), _cpu()
            of_seed = Totals()
            finding = play(number, *servers[connector], work, of_seed)
            said, used = "found" if finding else "equal", _cpu() - cpu
            took = f"{time.monotonic() - begun:.0f} s, {used:.0f} s of CPU without servers and engine"
            print(f"seed {number} ({connector}): {said}, {took}", flush=True)
            if os.environ.get("TORTURE_RECORD"):
                page.record(number, _recorded(connector, of_seed, finding, used))
            total = totals[connector]
            total.add(of_seed)
            print(
                f"  {connector} so far: {total.phases} phases, {total.comparisons} comparisons, {total.rows} rows, "
                f"{total.counts['records']} records, {total.kills} kills",
                flush=True,
            )
            if finding:
                found.append(number)
                print(f"  {finding}\n  again with: make torture SEEDS=1 FIRST={number}", flush=True)
    finally:
        for server, java in servers.values():
            java.close()
            server.stop()
            print(f"{server.connector}: {java.starts} engine processes")
        _report(totals, found)
    return 1 if found else 0


def _recorded(database: str, total: Totals, finding: str, cpu: float) -> dict[str, Any]:
    """What lab/data/torture.json has of a seed."""
    return {
        "database": database,
        "found": finding.replace(f"{Path(__file__).parents[2]}/", "")[:200],
        "phases": total.phases,
        "comparisons": total.comparisons,
        "rows": total.rows,
        "records": total.counts["records"],
        "kills": total.kills,
        "cpu": round(cpu),
        "workload": dict(sorted(total.workload.items())),
        "commands": dict(sorted(total.commands.items())),
    }


def _report(totals: dict[str, Totals], found: list[int]) -> None:
    for connector, total in totals.items():
        shown: dict[str, Any] = {
            "seeds": total.seeds,
            "phases": total.phases,
            "comparisons": total.comparisons,
            "rows compared": total.rows,
            "engine killed": total.kills,
            **{name: dict(sorted(getattr(total, name).items())) for name in ("counts", "workload", "commands")},
        }
        print(json.dumps({connector: shown}))
    print(f"findings: {found or 'none'}")


def numbers(seeds: str, first: str) -> Sequence[int]:
    """The seeds that a call names: so many from the first on, or those that once found something."""
    if seeds != "failed":
        return range(int(first), int(first) + int(seeds))
    lines = (line for line in FAILED.read_text().splitlines() if not line.startswith("#"))
    return [int(line.split()[0]) for line in lines]


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Servers and engines end with the run, also if it is ended.
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    home = Path(os.environ.get("TORTURE_WORK", "var/torture")).resolve()
    _seeds, _first, _databases = [*sys.argv[1:], "both"][:3]
    sys.exit(main(numbers(_seeds, _first), _databases, home / "engines", home / "mariadb" / "usr", home))
