"""A change that is streamed with a position before that of the snapshot's rows (decision 0068), with and without the
mend: the product is equal to its source, and what it would lose without the mend is named by `attest`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from sources.rig import SourceRig
from tidefold.operations.attest.proof import AttestDetails
from torture.capture import Java
from torture.servers import Postgres, PostgresSession

_ROOT = Path(__file__).parents[2]
# Where the clocks show it, the log stops by name, and there is nothing to attest.
_CLOCK = "            self._check_time(order, time)\n"
_MEND = "a row of a snapshot is older than what its connector streams after it"


def prove_overlap(server: Postgres, java: Java, folder: Path) -> str:
    """Returns what went wrong; empty: nothing did."""
    rig = SourceRig(server, java, folder / "overlap", "acct", "{id: long, name: string}")
    rig.session.execute(
        "create table acct (id bigint primary key, name text)",
        "insert into acct select n, 'begin' from generate_series(1, 100) n",
        f"create publication {rig.name}_pub for table acct",
    )
    rig.write_configuration()
    _overlap(rig, server)
    for _ in range(3):  # So that the log goes past the source's position.
        rig.session.execute("update acct set name = 'later' where id = 50")
    _await("all came", lambda: _count(rig) >= 100 + 4 + 3)  # A delete has a tombstone.
    rig.capture.stop()
    rig.land()
    wrong = []
    for mended in (True, False):
        shutil.rmtree(rig.folder / "store", ignore_errors=True)
        _run(rig, mended)
        outcome = rig.attest(lag=0.0, patience=1.0)
        assert isinstance(outcome.details, AttestDetails), outcome
        keys = sorted(str(fault.key["id"]) for fault in outcome.details.faults)
        which = "with the mend" if mended else "without the mend"
        told = f"{which}: {outcome.details.source.sentence}: {', '.join(keys) or 'none'}"
        print(told, flush=True)
        wrong += [] if keys == ([] if mended else ["3", "4", "5000"]) else [told]
    rig.end()
    return "; ".join(wrong)


def _overlap(rig: SourceRig, server: Postgres) -> None:
    first, second, third = (server.session(rig.name) for _ in range(3))
    waits = "select 1 from pg_locks where locktype = 'transactionid' and not granted and transactionid::text = '{}'"
    number = _begin(first, "update acct set name = 'A' where id = 1")
    rig.capture.start()
    _await("the slot waits for the first", lambda: bool(rig.session.rows(waits.format(number))))
    number = _begin(second, "update acct set name = 'B' where id = 2")
    first.execute("commit")
    _await("the slot waits for the second", lambda: bool(rig.session.rows(waits.format(number))))
    _begin(third, "update acct set name = 'C' where id = 3")
    third.execute("delete from acct where id = 4", "insert into acct values (5000, 'C')")
    second.execute("commit")
    slot = f"select 1 from pg_replication_slots where slot_name = '{rig.name}_slot' and confirmed_flush_lsn is not null"
    _await("the slot is made", lambda: bool(rig.session.rows(slot)))
    third.execute("commit")


def _begin(session: PostgresSession, statement: str) -> str:
    session.execute("begin", statement)
    return str(session.rows("select pg_current_xact_id()::xid::text")[0][0])


def _count(rig: SourceRig) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in (rig.capture.out / rig.topic).glob("*.jsonl"))


def _run(rig: SourceRig, mended: bool) -> None:
    """Ingests and publishes by a copy of the program, from which the mend may be taken out."""
    code = rig.folder / "include"
    shutil.copytree(_ROOT / "include", code, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    if not mended:
        listed = tomllib.loads((_ROOT / "lab/mutations/mutants.toml").read_text())["mutant"]
        [mutant] = [one for one in listed if one["without"] == _MEND]
        file = rig.folder / mutant["file"]
        text = file.read_text()
        assert text.count(mutant["old"]) == text.count(_CLOCK) == 1
        file.write_text(text.replace(mutant["old"], mutant["new"]).replace(_CLOCK, ""))
    command = [sys.executable, "-m", "tidefold.cli", "run", "-c", str(rig.folder / "tidefold.yaml")]
    environment = {**os.environ, "PYTHONPATH": str(code)}
    subprocess.run(command, env=environment, check=False, capture_output=True)


def _await(what: str, happened: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)
