"""The golden store of a set: two logs that are published together.

Each transaction of the source moves an amount from a row of `left` to a row of `right`, so the sum of all amounts is
the same at each point. The truth has the rows of both tables at each point, from dicts that take every transaction.

In the store: more versions than one page of the set's ledger holds, some of them retired; one restored; a
snapshot given up; a snapshot by signal that a person released, and one that holds the set; a version that was decided
by a process that died before it published it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from golden.life import KEPT_VERSIONS, LANDED_AT, listed, of_table, pack
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import Verdict
from tidefold.domain.paths import STORED_FORMAT, LogPaths
from tidefold.domain.sets.set_state import SetState
from tidefold.domain.snapshot import transitions
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.sets import confirm as set_confirm
from tidefold.operations.sets.read import find_tables
from tidefold.operations.sets.restore import RestoreSet, restore_set
from tidefold.operations.sets.status import release_set
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify
from tidefold.wiring import open_pipeline

LOGS, ENDS = ("left", "right"), "pair.transaction"
CONFIG = """\
version: 1
store: store
snapshots: {kind: incremental}
retention: {snapshots: 3, grace_versions: 3}
logs:
""" + "".join(
    f"  {log}:\n    source: {{format: debezium-json, connector: postgresql, path: landing/pair.public.{log}}}\n"
    "    key: [id]\n    columns: {id: int, amount: long}\n    key_groups: 8\n    buckets: 1\n"
    "    quality: {max_row_drop: 1}\n"
    for log in LOGS
) + "sets:\n  pair:\n    logs: [left, right]\n    transactions: landing/pair.transaction\n"  # fmt: skip
FIRST, STEP = 1000, 100
ROWS = 4
# The database's clock: a second for each transaction.
BEGAN = int(datetime(2026, 3, 4, 5, 0, 0, tzinfo=UTC).timestamp()) * 1_000_000
Rows = dict[int, dict[str, int]]


def topic_of(log: str) -> str:
    return f"pair.public.{log}"


@dataclass
class Life:
    """A pipeline, the newest rows of both tables, and those at each point."""

    root: Path
    now: dict[str, Rows] = field(default_factory=lambda: {log: {} for log in LOGS})
    points: dict[int, dict[str, Rows]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*map(topic_of, LOGS), ENDS), 0))
    position: int = FIRST
    transactions: int = 0

    def __post_init__(self) -> None:
        self.pipeline = open_pipeline(self.root / "tidefold.yaml")

    @property
    def set(self) -> SetState:
        return self.pipeline.set_ledger("pair").read()

    def land(self, topic: str, records: list[tuple[Any, Any]]) -> None:
        first = self.offsets[topic]
        lines = [
            json.dumps({"topic": topic, "partition": 0, "offset": offset, "key": key, "value": value, "headers": []})
            for offset, (key, value) in enumerate(records, first)
        ]
        self.offsets[topic] += len(lines)
        path = self.root / "landing" / topic / f"{topic}+0+{first:010d}.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (LANDED_AT, LANDED_AT))

    def _record(self, log: str, op: str, row: dict[str, int], mark: str, begin: int, at: int) -> tuple[Any, Any]:
        of_snapshot = op == "r"
        source = {
            "connector": "postgresql", "snapshot": mark, "schema": "public", "table": log, "lsn": at,
            "sequence": json.dumps([None if begin == 0 else str(begin), str(at)]), "txId": self.transactions,
            "ts_us": BEGAN + self.transactions * 1_000_000,
        }  # fmt: skip
        ident = f"{self.transactions}:{at}"
        transaction = {"id": ident, "total_order": 1 + LOGS.index(log), "data_collection_order": 1}
        value = {"before": None, "after": row, "source": source, "op": op}
        return {"id": row["id"]}, {**value, "transaction": None if of_snapshot else transaction}

    def begin(self) -> None:
        """The initial snapshot of both tables."""
        for log in LOGS:
            rows = [{"id": n, "amount": 100 * n} for n in range(1, ROWS + 1)]
            marks = ["first", *["true"] * (ROWS - 2), "last"]
            self.land(
                topic_of(log), [self._record(log, "r", row, m, 0, FIRST) for row, m in zip(rows, marks, strict=True)]
            )
            self.now[log] = {row["id"]: row for row in rows}
        self.points[FIRST] = {log: dict(rows) for log, rows in self.now.items()}

    def move(self, amount: int, ends: bool = True) -> None:
        """One transaction. ends: whether its END has landed, too."""
        self.transactions += 1
        begin, self.position = self.position, self.position + STEP
        for log, sign in zip(LOGS, (-1, 1), strict=True):
            # The transaction topic names the first record's position at the begin, the commit's at the end.
            number = 1 + (self.transactions * 5) % (ROWS + 2)
            before = self.now[log].get(number, {"amount": 0})
            row = {"id": number, "amount": before["amount"] + sign * amount}
            op = "u" if number in self.now[log] else "c"
            self.land(topic_of(log), [self._record(log, op, row, "false", begin, begin + 10 + LOGS.index(log))])
            self.now[log] = {**self.now[log], number: row}
        self.points[self.position] = {log: dict(rows) for log, rows in self.now.items()}
        if ends:
            self.end(begin)

    def end(self, begin: int) -> None:
        counts = [{"data_collection": f"public.{log}", "event_count": 1} for log in LOGS]
        ids = [f"{self.transactions}:{begin + 10}", f"{self.transactions}:{self.position}"]
        of_begin = {"status": "BEGIN", "id": ids[0], "event_count": None, "data_collections": None, "ts_ms": 1}
        of_end = {"status": "END", "id": ids[1], "event_count": len(LOGS), "data_collections": counts, "ts_ms": 1}
        self.land(ENDS, [({"id": one["id"]}, one) for one in (of_begin, of_end)])

    def signal(self, log: str) -> None:
        """A blocking snapshot of one table, at the position that the stream had reached."""
        rows = list(self.now[log].values())
        marks = ["first", *["true"] * (len(rows) - 2), "last"]
        at = self.position
        self.land(
            topic_of(log), [self._record(log, "r", row, mark, at, at) for row, mark in zip(rows, marks, strict=True)]
        )

    def take(self) -> None:
        for outcome in ingest(self.pipeline, LOGS, in_process):
            assert outcome.error is None, outcome

    def stage(self, run: str) -> None:
        for outcome in materialize(self.pipeline, LOGS, Fold(run), in_process):
            assert outcome.error is None, outcome
        self.judge(run)

    def judge(self, run: str) -> None:
        """Gives each snapshot that a run staged a verdict as the gate does."""
        for log in LOGS:
            attempt = self.pipeline.ledger(log).read().find_open(run)
            if attempt and attempt.manifest:
                path = f"{LogPaths(log).quality(attempt.id)}/report.html"
                verdict = Verdict(True, "suite", attempt.manifest, path, "5 checks passed")
                self.pipeline.ledger(log).commit(
                    partial(transitions.record_verdict, snapshot_id=attempt.id, verdict=verdict)
                )

    def publish(self, run: str) -> None:
        self.take()
        self.stage(run)
        for outcome in set_confirm.confirm_logs(self.pipeline, LOGS, run):
            assert outcome.error is None, outcome


def many_versions(life: Life) -> None:
    """More than one page of the set's ledger holds; the oldest are retired."""
    life.begin()
    life.publish("begin")
    for number in range(35):
        life.move(1 + number)
        life.publish(f"run-{number}")
        if number % 10 == 9:
            for log in LOGS:
                assert subsume(life.pipeline, log).error is None
                assert truncate(life.pipeline, log).error is None
    assert life.set.published
    assert life.set.published.number == 36


def restored(life: Life) -> None:
    """An earlier version is published again, and the changes after it once more."""
    assert life.set.published
    request = RestoreSet("back", "pair", life.set.published.number - 1)

    def step(logs: Sequence[str]) -> list[Outcome]:
        return materialize(life.pipeline, logs, request, in_process)

    assert not any(outcome.error for outcome in restore_set(life.pipeline, request, step))
    life.judge("back")
    for outcome in set_confirm.confirm_logs(life.pipeline, LOGS, "back"):
        assert outcome.error is None, outcome
    life.publish("again")


def given_up(life: Life) -> None:
    life.move(50)
    life.take()
    life.stage("given up")
    assert abort(life.pipeline, "left", "made to", run_id="given up").error is None
    assert abort(life.pipeline, "right", "made to", run_id="given up").error is None
    assert life.set.given_up


def signals(life: Life) -> None:
    """A snapshot that a person releases, and a second one that holds the set."""
    [chosen] = life.pipeline.config.sets.values()
    life.signal("right")
    life.take()
    assert life.set.held
    release_set(life.pipeline, chosen, life.position, "ann", "the log said so")
    life.move(60)
    life.publish("released")
    assert life.set.published
    assert life.set.published.released
    life.move(70)
    life.signal("left")
    life.move(80)
    life.take()
    assert life.set.held
    assert life.set.behind
    life.stage("decided")


def make(root: Path) -> Life:
    for topic in (*map(topic_of, LOGS), ENDS):
        (root / "landing" / topic).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(CONFIG)
    life = Life(root)
    many_versions(life)
    restored(life)
    given_up(life)
    signals(life)
    return life


def die(root: Path) -> None:
    """In a process of its own, which ends by SIGKILL after the decision, before the first table shows it."""
    pipeline = open_pipeline(root / "tidefold.yaml")
    set_confirm.publish_decided = _kill_if_decided  # type: ignore[assignment]
    set_confirm.confirm_logs(pipeline, LOGS, "decided")


def _kill_if_decided(pipeline: Any, ledger: Any, state: SetState) -> SetState:
    if state.decided:
        os.kill(os.getpid(), signal.SIGKILL)
    return state


def killed(life: Life) -> None:
    done = subprocess.run([sys.executable, "-m", "golden.sets", str(life.root)], check=False)
    assert done.returncode == -signal.SIGKILL, done
    assert life.set.decided


def rows_at(life: Life, position: int) -> dict[str, list[dict[str, Any]]]:
    return {log: listed(rows.values()) for log, rows in life.points[position].items()}


def truth_of(life: Life) -> dict[str, Any]:
    """The code that wrote the store must agree with the dicts."""
    pipeline, state = life.pipeline, life.set
    assert state.published
    for log, table in find_tables(pipeline, "pair").items():
        assert of_table(pipeline, LogPaths(log).table) == rows_at(life, state.published.position)[log], table
    kept: dict[str, dict[str, Any]] = {}
    for version in state.versions:
        states = {one.log: pipeline.ledger(one.log).read().snapshot(one.snapshot) for one in version.members}
        if all(one and one.state == "COMPLETED" for one in states.values()):
            kept[str(version.number)] = rows_at(life, version.position)
            for one in version.members:
                _, batches = read_rows(pipeline, one.log, ReadRequest(snapshot=one.snapshot))
                found = listed(row for batch in batches for row in batch.to_pylist())
                assert found == kept[str(version.number)][one.log], (version.number, one.log)
    assert all(verify(pipeline, log).status == "whole" for log in LOGS)
    paths = sorted(int(Path(e.path).stem) for e in pipeline.store.list("sets/pair/ledger"))
    return {
        "format": STORED_FORMAT,
        "state": msgspec.to_builtins(state),
        "versions": [[one.number, one.position, one.restored] for one in state.versions],
        "rows": kept,
        "newest": [life.position, rows_at(life, life.position)],
        "oldest": paths[0],
    }


def make_archive(archive: Path) -> None:
    """Makes the store and its truth."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        life = make(root)
        life.pipeline.set_ledger("pair").prune(2 * KEPT_VERSIONS)
        for log in LOGS:
            life.pipeline.ledger(log).prune(KEPT_VERSIONS)
        killed(life)
        pack(root, truth_of(life), archive)


if __name__ == "__main__":
    die(Path(sys.argv[1]))
