"""The golden store of whole lives: logs with all that can happen to one.

Everything goes through the operations that users call, in one process instead of Spark, with a verdict given by hand
instead of by the gate. Rows, snapshots and sqns are the same each time; random names and instants are not. The truth
beside the store has its rows from a dict that takes every change, and its states from the code that wrote them.

Rules for what reads this: every log has a column `text`; record n of a partition has the order 1000 + n.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tidefold.changelog import write_intents
from tidefold.changelog.writer import Changelog
from tidefold.compute.broadcast_work import TaskWork
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import FollowedTtl, LogState, Snapshot, SnapshotKind, State, Verdict
from tidefold.domain.paths import STORED_FORMAT, LogPaths
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.operations.ground import recovery
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.local_copies.manage import copies_here, retain_local
from tidefold.operations.requests import Fold
from tidefold.operations.requests import Restore as RestoreRequest
from tidefold.operations.retention.clean import drop
from tidefold.operations.retention.references import hold, register, tag
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify
from tidefold.wiring import open_pipeline

CONFIG = """\
version: 1
store: store
local: {mode: files, path: local}
retention: {snapshots: 2, grace_versions: 3}
logs:
  accounts:
    source: {format: debezium-json, connector: postgresql, path: landing/accounts}
    key: [id]
    columns: {id: int, text: string}
    key_groups: 16
    buckets: 4
  tellers:
    source: {format: debezium-json, connector: postgresql, path: landing/tellers}
    key: [id]
    columns: {id: int, text: string}
    key_groups: 16
    buckets: 2
  branches:
    source: {format: debezium-json, connector: postgresql, path: landing/branches}
    key: [id]
    columns: {id: int, text: string}
    key_groups: 16
    buckets: 2
  parts:
    source: {format: debezium-json, connector: postgresql, path: landing/parts}
    key: [shop, number]
    columns: {shop: string, number: long, text: string}
    key_groups: 16
    buckets: 2
  events:
    order: arrival
    key: [id]
    columns: {id: int, text: string, yes: boolean, much: long, small: float, real: double, day: date, at: timestamp}
    key_groups: 16
    buckets: 2
"""
LANDED = ["accounts", "tellers", "parts", "branches"]
LANDED_AT = 1_790_000_000  # Time of change of every landed file, which the ledger notes.
KEPT_VERSIONS = 8
# Runs that make incremental snapshots.
INCREMENTAL = ("nine", "four")
NUMBERS = ("version", "epoch", "fence", "generation", "last_snapshot")
Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]


@dataclass
class Oracle:
    """What the rows of one log must be: now, and in each snapshot."""

    log: str
    key: list[str]
    now: Rows = field(default_factory=dict)
    snapshots: dict[int, Rows] = field(default_factory=dict)
    offset: int = 0

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def take(self, changes: Iterable[tuple[str, Row]]) -> None:
        rows = dict(self.now)
        for op, row in changes:
            rows.pop(self.key_of(row), None)
            if op != "d":
                rows[self.key_of(row)] = row
        self.now = rows


class Life:
    """A pipeline, and the oracles of its logs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pipeline = open_pipeline(root / "tidefold.yaml")
        self.of = {log: Oracle(log, list(config.shape.key)) for log, config in self.pipeline.config.logs.items()}

    def land(self, log: str, changes: list[tuple[str, Row]], bad: tuple[str, ...] = ()) -> None:
        """Lands one file: a record a change, after each delete its tombstone, then `bad` lines."""
        oracle = self.of[log]
        first, lines = oracle.offset, []
        for op, row in changes:
            lines.append(self._line(oracle, op, row))
            if op == "d":
                lines.append(self._line(oracle, "tombstone", row))
        for text in bad:
            lines.append(text.replace("OFFSET", str(oracle.offset)))
            oracle.offset += 1
        oracle.take(changes)
        path = self.root / "landing" / log / f"{log}+0+{first:010d}.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (LANDED_AT, LANDED_AT))

    def _line(self, oracle: Oracle, op: str, row: Row) -> str:
        offset = oracle.offset
        oracle.offset += 1
        key = {name: row[name] for name in oracle.key}
        order = 1000 + offset
        source = {
            "connector": "postgresql",
            "snapshot": "false",
            "sequence": f'[null,"{order}"]',
            "ts_us": order * 1000,
        }
        deleted = op == "d"
        value = {"before": row if deleted else None, "after": None if deleted else row, "source": source, "op": op}
        if op == "tombstone":
            value = None  # type: ignore[assignment]
        return json.dumps(
            {"topic": oracle.log, "partition": 0, "offset": offset, "key": key, "value": value, "headers": []}
        )

    def take(self, *logs: str) -> None:
        for outcome in ingest(self.pipeline, logs, in_process):
            assert outcome.status == "taken", outcome

    def stage(self, run: str, *logs: str, back: RestorePoint | None = None, passed: bool = True) -> None:
        """Folds the logs in one round, and gives each snapshot its verdict."""
        kind = KindPolicy.INCREMENTAL if run in INCREMENTAL else None
        request = RestoreRequest(run, back) if back else Fold(run, kind=kind)
        for outcome in materialize(self.pipeline, logs, request, in_process):
            assert (outcome.status, outcome.facts["local"]["warning"]) == ("staged", None), outcome
            oracle = self.of[outcome.log]
            assert outcome.snapshot
            if back:
                rows = oracle.snapshots[back.snapshot]
                oracle.now = rows if back.mode is RestoreMode.SKIP else oracle.now
            else:
                rows = oracle.now
            oracle.snapshots[outcome.snapshot] = rows
            judge(self.pipeline, outcome.log, passed)

    def fold(self, run: str, *logs: str, back: RestorePoint | None = None) -> None:
        self.stage(run, *logs, back=back)
        for log in logs:
            assert confirm(self.pipeline, log, Confirmation(run=run)).status == "published"

    def tail(self, run: str, log: str) -> None:
        outcome = take_tail(self.pipeline, log, run)
        assert outcome.status == "completed", outcome
        assert outcome.snapshot
        self.of[log].snapshots[outcome.snapshot] = self.of[log].now

    def write(self, changes: list[tuple[str, Row]], log: str = "events") -> None:
        """What a program writes, without landed files."""
        with Changelog(self.pipeline.store, local=self.pipeline.local, clock=lambda: INSTANT) as changelog:
            writer = changelog.log(log, self.pipeline.log(log).shape)
            writer.append([{**row, **({"_op": "delete"} if op == "d" else {})} for op, row in changes])
        self.of[log].take(changes)

    def retire(self, log: str) -> None:
        assert subsume(self.pipeline, log).status == "subsumed"
        assert truncate(self.pipeline, log).status == "truncated"


INSTANT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def judge(pipeline: Pipeline, log: str, passed: bool) -> None:
    """A verdict as the gate gives it."""

    def move(state: LogState) -> LogState:
        attempt = state.open_attempt
        assert attempt
        assert attempt.manifest
        path = f"{LogPaths(log).quality(attempt.id)}/report.html"
        summary = "5 checks passed" if passed else "1 of 5 checks failed: made to"
        return transitions.record_verdict(state, attempt.id, Verdict(passed, "suite", attempt.manifest, path, summary))

    pipeline.ledger(log).commit(move)


def put(numbers: Iterable[int], text: str) -> list[tuple[str, Row]]:
    return [("u", {"id": i, "text": f"{text} {i}"}) for i in numbers]


def cut(*numbers: int) -> list[tuple[str, Row]]:
    return [("d", {"id": i, "text": ""}) for i in numbers]


def part(shop: str, number: int, text: str) -> Row:
    return {"shop": shop, "number": number, "text": text}


def event(number: int, text: str | None) -> Row:
    odd = number % 2 == 1
    return {
        "id": number,
        "text": text,
        "yes": odd,
        "much": 2**40 + number,
        "small": number / 4,
        "real": number / 8 if odd else None,
        "day": date(2026, 1, 1 + number % 28),
        "at": datetime(2026, 3, 4, 5, 6, 7, number, tzinfo=UTC),
    }


def accounts_and_tellers(life: Life) -> None:
    """Two logs whose changes share segments."""
    pair = ("accounts", "tellers")
    life.land("accounts", put(range(30), "a"), bad=("{not a record}", BAD_TYPE))
    life.land("tellers", put(range(12), "a"))
    life.take(*pair)
    life.fold("one", *pair)
    tag(life.pipeline, "accounts", "first", 1)
    life.land("accounts", [*put(range(25, 35), "b"), *cut(0, 1, 2)])
    life.land("tellers", [*put([3, 20], "b"), *cut(5)])
    life.take(*pair)
    life.fold("two", *pair)
    life.land("accounts", [*put([4], "c"), *cut(6)])
    life.land("tellers", put([21], "c"))
    life.take(*pair)
    life.stage("three", "accounts", passed=False)
    assert abort(life.pipeline, "accounts", "the gate refused it").snapshot == 3
    life.fold("four", *pair)
    accounts(life)
    tellers(life)


BAD_TYPE = json.dumps(
    {
        "topic": "accounts",
        "partition": 0,
        "offset": "OFFSET",
        "key": {"id": 1},
        "value": {
            "before": None,
            "after": {"id": 1, "text": 5},
            "source": {"connector": "postgresql", "snapshot": "false", "sequence": '[null,"1031"]', "ts_us": 1},
            "op": "u",
        },
        "headers": [],
    }
).replace('"OFFSET"', "OFFSET")


def accounts(life: Life) -> None:
    """Tails, a restore that skips, retention, a squash; a tag, a hold, a reader."""
    pipeline = life.pipeline
    for run in ("tail-5", "tail-6"):
        life.land("accounts", put([40, 41], run))
        life.take("accounts")
        life.tail(run, "accounts")
    life.fold("seven", "accounts")
    life.fold("eight", "accounts", back=RestorePoint(2, RestoreMode.SKIP))
    for run in ("nine", "ten"):
        life.land("accounts", [*put([7, 50], run), *cut(8)])
        life.take("accounts")
        life.fold(run, "accounts")
    life.retire("accounts")
    hold(pipeline, "accounts", "audit", 9, "the auditors replay it")
    for number in range(5):
        life.land("accounts", [*put([9, 60 + number], f"late {number}"), *cut(10 + number)])
        life.take("accounts")
        if number == 1:
            life.tail("tail-11", "accounts")
    state = pipeline.ledger("accounts").read()
    register(pipeline, "accounts", "search", state.last_sqn)
    assert compact_log(pipeline, "accounts").status == "compacted"


def tellers(life: Life) -> None:
    """A restore that replays, and an attempt that waits for its confirmation."""
    life.fold("back", "tellers", back=RestorePoint(1, RestoreMode.REPLAY))
    life.fold("again", "tellers")
    life.retire("tellers")
    life.land("tellers", [*put([30, 31], "staged"), *cut(9)])
    life.take("tellers")
    life.stage("waits", "tellers")


def parts(life: Life) -> None:
    """A log that was dropped and begun anew, with more files than one page of the ledger holds; its newest snapshot is
    confirmed, and whoever confirmed it died before it was published.
    """
    pipeline = life.pipeline
    for number in range(40):
        life.land("parts", [("c", part("north" if number % 3 else "south", number, f"p {number}"))])
    life.take("parts")
    life.fold("one", "parts")
    assert drop(pipeline, "parts", plan=False).status == "dropped"
    life.of["parts"].snapshots.clear()
    life.take("parts")
    life.fold("anew", "parts")
    life.land("parts", [("u", part("south", 0, "new")), ("d", part("north", 1, ""))])
    life.take("parts")
    life.stage("unseen", "parts")
    pipeline.ledger("parts").commit(lambda state: transitions.confirm(state, 3))


def branches(life: Life) -> None:
    """A log of which a snapshot was being made when the process was killed."""
    life.land("branches", put(range(10), "a"))
    life.take("branches")
    life.fold("one", "branches")
    life.land("branches", [*put(range(5, 15), "b"), *cut(1)])
    life.take("branches")


def events(life: Life) -> None:
    """A log that a program writes: more snapshots than one page of the ledger holds, nearly all of them retired."""
    life.write([("u", event(i, f"e {i}")) for i in range(20)])
    life.fold("one", "events")
    for number in range(34):
        life.write([("u", event(number % 7, f"tail {number}"))])
        life.tail(f"tail-{number}", "events")
    for run in ("two", "three", "four", "five"):
        life.write([("u", event(30, run)), ("d", event(len(run), None)), ("u", event(31, None))])
        life.fold(run, "events")
    life.retire("events")
    life.write([("u", event(32, "waits"))])
    life.tail("last-tail", "events")
    life.write([("d", event(32, None))])


def make(root: Path) -> Life:
    for log in LANDED:
        (root / "landing" / log).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(CONFIG)
    life = Life(root)
    accounts_and_tellers(life)
    parts(life)
    branches(life)
    events(life)
    # As trusted metadata of a state log does.
    follow = FollowedTtl(4, 3)
    life.pipeline.ledger("branches").commit(lambda state: replace(state, followed_ttl=follow))
    logs = list(life.of)
    assert retain_local(life.pipeline, logs)[0].status == "removed"
    for log in logs:
        life.pipeline.ledger(log).prune(KEPT_VERSIONS)
    return life


def die(root: Path, how: str) -> None:
    """In a process of its own, which ends by SIGKILL."""
    pipeline = open_pipeline(root / "tidefold.yaml")
    if how == "writer":  # Between the upload and the ledger.
        changelog = Changelog(pipeline.store, clock=lambda: INSTANT)
        writer = changelog.log("events")
        writer.append([event(99, "never confirmed")])
        writer.persist(0).result()
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fold":  # After the first of its tasks.

        def folding(work: TaskWork, tasks: Sequence[str]) -> list[Any]:
            in_process(work, tasks[:1])
            os.kill(os.getpid(), signal.SIGKILL)
            return []

        materialize(pipeline, ["branches"], Fold("killed"), folding)
    # After the run has said what it brings, before the first log is told.
    recovery.commit_ingest = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    ingest(pipeline, LANDED, in_process)


def killed(life: Life, how: str) -> None:
    done = subprocess.run([sys.executable, "-m", "golden.life", how, str(life.root)], check=False)
    assert done.returncode == -signal.SIGKILL, done


def plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def listed(rows: Iterable[Row]) -> list[Row]:
    """Rows as the truth has them: sorted by their JSON, instants as text."""
    found = [{name: plain(value) for name, value in row.items()} for row in rows]
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))


def read(pipeline: Pipeline, log: str, wanted: ReadRequest) -> list[Row]:
    _, batches = read_rows(pipeline, log, wanted)
    return listed(row for batch in batches for row in batch.to_pylist())


def of_table(pipeline: Pipeline, path: str) -> list[Row]:
    return listed(DeltaTable(pipeline.store.uri(path)).to_pyarrow_table().to_pylist())


def told(snapshot: Snapshot) -> dict[str, Any]:
    names = (
        "id", "epoch", "run", "kind", "state", "base", "restored_from", "from_sqn", "to_sqn", "skipped_from", "rows",
        "files", "bytes_full", "table_version", "abort_reason",
    )  # fmt: skip
    return {
        **{name: getattr(snapshot, name) for name in names},
        "passed": snapshot.verdict.passed if snapshot.verdict else None,
    }


def truth_of(life: Life, log: str, live: Rows) -> dict[str, Any]:
    """What must be read of one log; `live` are its rows without what killed runs brought."""
    state = life.pipeline.ledger(log).read()
    return {**rows_to_read(life, state, live), **facts_to_read(life.pipeline, state)}


def rows_to_read(life: Life, state: LogState, live: Rows) -> dict[str, Any]:
    """Rows as the oracle has them; the code that wrote the store must agree."""
    pipeline, log, oracle = life.pipeline, state.log, life.of[state.log]
    with_rows = [s for s in state.snapshots if s.state in (State.COMPLETED, State.STAGED)]
    kept = {s.id: listed(oracle.snapshots[s.id].values()) for s in with_rows}
    for snapshot in with_rows:
        assert read(pipeline, log, ReadRequest(snapshot=snapshot.id)) == kept[snapshot.id], (log, snapshot)
        if snapshot.kind is SnapshotKind.FULL:
            assert of_table(pipeline, LogPaths(log).snapshot(snapshot.id)) == kept[snapshot.id], (log, snapshot)
    shown = next(s.id for s in reversed(state.snapshots) if s.published)
    assert of_table(pipeline, LogPaths(log).table) == read(pipeline, log, ReadRequest()) == kept[shown]
    assert read(pipeline, log, ReadRequest(What.LIVE)) == listed(live.values())
    assert verify(pipeline, log).status == "whole"
    return {
        "table": kept[shown],
        "snapshots": {str(i): rows for i, rows in kept.items()},
        "live": listed(live.values()),
        "whole": listed(oracle.now.values()),
    }


def facts_to_read(pipeline: Pipeline, state: LogState) -> dict[str, Any]:
    keep = pipeline.config.retention.keep
    return {
        "history": [told(s) for s in state.snapshots],
        "attempt": state.open_attempt.id if state.open_attempt else None,
        "latest": state.latest.id if state.latest else None,
        "change_sets": [[c.begin, c.sqn, c.rows] for c in state.change_sets],
        "truncated_to": state.truncated_to,
        "bounds": [[bound.name, bound.sqn] for bound in log_bounds.bounds(state, keep)],
        "tags": [asdict(one) for one in state.tags],
        "holds": [asdict(one) for one in state.holds],
        "consumers": [asdict(one) for one in state.consumers],
        "numbers": {
            name: getattr(state, name) for name in ("version", "epoch", "fence", "generation", "last_snapshot")
        },
        "garbage": len(state.garbage),
        "landed": len(state.landed),
        "next_offset": state.positions[0].next_offset,
        "refused": refused(pipeline, state),
        "local": list(copies_here(pipeline, state).whole),
        "oldest": oldest(pipeline, state.log),
    }


def refused(pipeline: Pipeline, state: LogState) -> list[list[Any]]:
    """Reason, file and line of every record in quarantine."""
    paths = dict.fromkeys(entry.quarantine for entry in state.landed if entry.quarantine)
    entries = [entry for path in paths for entry in map(json.loads, pipeline.store.read(path).splitlines())]
    return [[entry["reason"], entry["file"], entry["line"]] for entry in entries]


def oldest(pipeline: Pipeline, log: str) -> dict[str, int]:
    """What the oldest kept version of the ledger says."""
    version = min(int(Path(entry.path).stem) for entry in pipeline.store.list(LogPaths(log).ledger))
    state = pipeline.ledger(log).read_version(version)
    return {
        "version": version,
        "last_sqn": state.last_sqn,
        "snapshots": len(state.snapshots),
        "landed": len(state.landed),
    }


def pack(root: Path, truth: Any, archive: Path) -> None:
    """Packs a store and its truth. Files that are links of each other stay links in the archive."""
    (root / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")

    def nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as packed:
        for path in sorted(root.iterdir()):
            packed.add(path, path.name, filter=nobody)


def make_archive(archive: Path) -> None:
    """Makes the store and its truth."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        life = make(root)
        live = {log: oracle.now for log, oracle in life.of.items()}
        killed(life, "writer")
        killed(life, "fold")
        life.land("accounts", [*put([70], "brought"), *cut(20)])
        life.land("tellers", put([33], "brought"))
        life.land("parts", [("u", part("west", 1, "brought"))])
        killed(life, "ingest")
        logs = {log: truth_of(life, log, live[log]) for log in life.of}
        runs = write_intents.read_announced(life.pipeline.store)
        left = [{"written": run.takings is not None, "logs": sorted(run.logs)} for run in runs]
        pack(root, {"format": STORED_FORMAT, "left": sorted(left, key=json.dumps), "logs": logs}, archive)


if __name__ == "__main__":
    die(Path(sys.argv[2]), sys.argv[1])
