"""Two coordinators run the same log at the same moment, round after round: `python -m faults.coordinators ROUNDS`.

Promise I20: at least one of them succeeds, the other one is refused by name, and the rows are right.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from faults.product import LOG, configure, land, preload, rows_landed, table_rows
from faults.servers import MEMORY, test_server, versitygw
from faults.workers import Coordinator
from support.processes import alone


@dataclass
class Rounds:
    """What came of some rounds.

    both, one, none: in how many rounds that many succeeded.
    refused: what the others said.
    wrong: rounds after which the rows were not right.
    """

    rounds: int = 0
    both: int = 0
    one: int = 0
    none: int = 0
    wrong: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)


def race(root: Path, store: str, table: str, rounds: int, options: dict[str, str] | None = None) -> Rounds:
    """Rounds of two processes on one store."""
    configure(root, store, local=False)
    preload()
    found = Rounds()
    two = [Coordinator(root) for _ in range(2)]
    for number in range(rounds):
        land(root, LOG, number * 10, [(number % 7, "u"), ((number + 3) % 7, "u"), (100 + number % 5, "u")])
        takeover = " --takeover" if number % 4 == 3 else ""
        if number % 2:
            # Then they meet when they fold.
            two[0].send(f"step ingest {LOG}")
            two[0].receive()
        for one, coordinator in enumerate(two):
            coordinator.send(f"run {LOG} --run r{number}-{one}{takeover if one else ''}")
        said = [coordinator.receive() for coordinator in two]
        done = sum(one.exit == 0 for one in said)
        found.rounds += 1
        found.both += done == 2
        found.one += done == 1
        found.none += done == 0
        found.refused.update(one.word for one in said if one.exit)
        found.failed += [f"round {number}: not by name: {one.text[-2000:]}" for one in said if one.exit in (1, 5)]
        if done == 0:
            found.failed.append(f"round {number}: {[one.text[-300:] for one in said]}")
        two[0].send(f"run {LOG} --run after-{number} --takeover")
        after = two[0].receive()
        if after.exit or table_rows(table, options=options) != rows_landed(root, LOG):
            found.wrong += 1
            found.failed.append(f"round {number}: after it {after.word}; {table_rows(table, options=options)}")
        if number % 10 == 9:
            for command in ("subsume", "truncate"):
                two[0].send(f"retain {command} {LOG}")
                two[0].receive()
    for coordinator in two:
        coordinator.stop()
    return found


def race_on_disk(rounds: int) -> Rounds:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        return race(Path(folder), "store", f"{folder}/store/tables/{LOG}", rounds)


def race_on_real_s3(rounds: int) -> Rounds:
    with tempfile.TemporaryDirectory() as folder, versitygw() as (bucket, options):
        return race(Path(folder), f"s3://{bucket}/store", f"s3://{bucket}/store/tables/{LOG}", rounds, options)


def race_on_s3(rounds: int) -> Rounds:
    with tempfile.TemporaryDirectory() as folder, test_server() as (bucket, options):
        return race(Path(folder), f"s3://{bucket}/store", f"s3://{bucket}/store/tables/{LOG}", rounds, options)


def main(rounds: int = 200, stores: str = "disk,s3") -> int:
    from faults.page import read_record, record

    failed = 0
    acts = {"disk": ("local disk", race_on_disk), "s3": ("versitygw 1.8.0 (S3)", race_on_real_s3)}
    for store in stores.split(","):
        name, act = acts[store]
        began = time.monotonic()
        found = alone(act, rounds)
        failed += len(found.failed)
        print(f"{name}: {found}, {time.monotonic() - began:.0f} s", flush=True)
        kept = {**asdict(found), "refused": dict(found.refused)}
        del kept["failed"]
        record("coordinators", read_record().get("coordinators", {}) | {name: kept})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 200, *sys.argv[2:3]))
