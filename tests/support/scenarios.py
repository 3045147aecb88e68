"""The scenarios of the crash simulator: each is one operation on a store that other operations have prepared."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import msgspec

from support.instants import judged
from support.landing import record, text_of
from support.simulated import (
    CallKind,
    Fault,
    FaultyStore,
    Killed,
    Rows,
    active,
    commits_of,
    read_rows,
    rows_of_table,
    runner,
    simulated_tables,
)
from tidefold.config import Config, load_config
from tidefold.domain.ingest.append import names
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State, Verdict
from tidefold.domain.paths import INTENTS, LogPaths, data_path
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import TidefoldError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold, PointInTime, Restore
from tidefold.operations.retention import clean as clean_module
from tidefold.operations.retention.clean import clean, drop
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import Store

LOGS = ("items", "orders")
CONFIG = "version: 1\nstore: store\nretention: {snapshots: 2}\nlogs:\n" + "".join(
    f"""  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 1
    buckets: 1
"""
    for log in LOGS
)
# Each of these lands at once, as one file a log: what becomes of each key, and whether there is a line to refuse.
BATCHES = (
    ({1: "c", 2: "c", 3: "c"}, True),
    ({1: "u", 2: "d"}, False),
    ({4: "c"}, True),
    ({3: "d", 1: "u"}, False),
    ({5: "c"}, False),
)
_LATER = "2099-01-01T00:00:00+00:00"
Act = Callable[[Pipeline], None]
Crash = tuple[int, Fault, bool]


@dataclass(frozen=True)
class Scenario:
    """`begins` names the state of the store it begins with, `landed` how many batches have landed by then; `skipped`
    are the batches that a restore of `items` leaves out; `as_of`: how many make the rows of a snapshot that is kept.
    """

    name: str
    begins: str
    act: Act
    landed: int
    skipped: tuple[int, ...] = ()
    dropped: bool = False
    as_of: int | None = None


@dataclass
class Stage:
    """Configurations over landing folders with the first batches, and the initial stores of the scenarios."""

    folder: Path
    stores: dict[str, tuple[FaultyStore, int]] = field(default_factory=dict)
    kinds: dict[str, list[CallKind]] = field(default_factory=dict)
    configs: dict[int, Config] = field(default_factory=dict)

    def pipeline(self, store: Store, landed: int) -> Pipeline:
        if landed not in self.configs:
            self.configs[landed] = self._configured(landed)
        return Pipeline(self.configs[landed], store)

    def _configured(self, landed: int) -> Config:
        root = self.folder / f"landed-{landed}"
        if not root.exists():
            for log in LOGS:
                (root / "landing" / log).mkdir(parents=True)
                for number in range(landed):
                    _land(root, log, number)
            (root / "tidefold.yaml").write_text(CONFIG)
        return load_config(root / "tidefold.yaml")

    def begin(self, scenario: Scenario) -> FaultyStore:
        store, _ = self.stores[scenario.begins]
        return FaultyStore(store.files, store.unfinished)

    def kinds_of(self, scenario: Scenario) -> list[CallKind]:
        """Returns what the calls of an undisturbed scenario do."""
        if scenario.name not in self.kinds:
            store = self.begin(scenario)
            scenario.act(self.pipeline(store, scenario.landed))
            self.kinds[scenario.name] = store.kinds
        return self.kinds[scenario.name]

    def calls_of(self, scenario: Scenario) -> int:
        """Returns how many calls an undisturbed scenario makes."""
        return len(self.kinds_of(scenario))


def _land(root: Path, log: str, number: int) -> None:
    changes, bad = BATCHES[number]
    first = number * 10
    lines: list[dict[str, object] | str] = [
        record(first + i, key, op, after={"id": key, "text": f"t{number}"} if op != "d" else None, topic=log)
        for i, (key, op) in enumerate(changes.items())
    ]
    lines += ["{bad"] if bad else []
    (root / "landing" / log / f"{log}+0+{first:010d}.jsonl").write_bytes(text_of(lines))


def rows_after(batches: Sequence[int]) -> Rows:
    """Returns the rows that these batches make from an empty table."""
    rows: Rows = {}
    for number in batches:
        for key, op in BATCHES[number][0].items():
            rows.pop(key, None)
            if op != "d":
                rows[key] = f"t{number}"
    return rows


def done(outcomes: Sequence[Outcome]) -> None:
    """Ends the run at the error of a log, as in the DAG."""
    for outcome in outcomes:
        if outcome.error_code:
            raise TidefoldError(outcome.error_code, outcome.message)


def take(pipeline: Pipeline) -> None:
    done(ingest(pipeline, LOGS, runner(pipeline.store)))


def fold(pipeline: Pipeline, run: str, restore: RestorePoint | None = None, logs: Sequence[str] = LOGS) -> None:
    done(materialize(pipeline, logs, Restore(run, restore) if restore else Fold(run), runner(pipeline.store)))


def judge(pipeline: Pipeline, logs: Sequence[str] = LOGS) -> None:
    for log in logs:
        state = pipeline.ledger(log).find()
        if state and state.open_attempt and state.open_attempt.state is State.STAGED:
            pipeline.ledger(log).commit(_passed)


def _passed(state: LogState) -> LogState:
    assert state.open_attempt
    verdict = Verdict(True, "suite", state.open_attempt.manifest or "", "report.html", "1 of 1 checks")
    return transitions.record_verdict(state, state.open_attempt.id, verdict)


def cycle(pipeline: Pipeline, run: str, restore: RestorePoint | None = None, logs: Sequence[str] = LOGS) -> None:
    fold(pipeline, run, restore, logs)
    judge(pipeline, logs)
    for log in logs:
        confirm(pipeline, log, Confirmation(run=run))


def keep(pipeline: Pipeline) -> None:
    for log in LOGS:
        subsume(pipeline, log)
        truncate(pipeline, log)
    _clean_later(pipeline)


def _clean_later(pipeline: Pipeline) -> None:
    """Cleans with a clock that is far ahead, but not the scratch folders of other processes of this machine."""
    ahead = mock.patch.object(clean_module, "now", return_value=_LATER)
    with ahead, mock.patch.object(clean_module, "PATTERN", "no-folder-of-*-others"):
        done(clean(pipeline, LOGS))


def _each(act: Callable[[Pipeline, str], object]) -> Act:
    def acts(pipeline: Pipeline) -> None:
        for log in LOGS:
            act(pipeline, log)

    return acts


def _restored(snapshot: int, mode: RestoreMode) -> Act:
    return lambda pipeline: cycle(pipeline, "restore", RestorePoint(snapshot, mode), LOGS[:1])


def _as_of(pipeline: Pipeline) -> None:
    """Makes the rows as of the instant between the second batch and the third."""
    at = record(20)["value"]["source"]["ts_us"]
    done(materialize(pipeline, LOGS, PointInTime("backfill", at), runner(pipeline.store)))
    for log in LOGS:
        judged(pipeline, "backfill", log)
        confirm(pipeline, log, Confirmation(run="backfill"))


def _dropped(pipeline: Pipeline) -> None:
    drop(pipeline, LOGS[1], plan=False)


SCENARIOS = (
    Scenario("ingest", "folded 1", take, 2),
    Scenario("ingest of new logs", "nothing", take, 1),
    Scenario("materialize", "taken 2", lambda pipeline: fold(pipeline, "run"), 2),
    Scenario("judge and confirm", "staged 2", lambda pipeline: (judge(pipeline), _each(_confirm)(pipeline)), 2),
    Scenario("abort", "staged 2", _each(lambda pipeline, log: abort(pipeline, log, "refused", run_id="run")), 2),
    Scenario("whole cycle", "taken 2", lambda pipeline: cycle(pipeline, "run"), 2),
    Scenario("subsume", "folded 5", _each(subsume), 5),
    Scenario("truncate", "subsumed 5", _each(truncate), 5),
    Scenario("restore by skip", "folded 3", _restored(1, RestoreMode.SKIP), 3, skipped=(1, 2)),
    Scenario("restore by replay", "folded 3", _restored(1, RestoreMode.REPLAY), 3),
    Scenario("restore of a tail", "tailed 3", _restored(2, RestoreMode.SKIP), 4, skipped=(3,)),
    Scenario("tail", "taken 3", _each(lambda pipeline, log: take_tail(pipeline, log, "tail")), 3),
    Scenario("squash", "taken 3", _each(compact_log), 3),
    Scenario("as of an instant, files alone", "folded 3", _as_of, 3, as_of=2),
    Scenario("as of an instant", "taken 3", _as_of, 3, as_of=2),
    Scenario("clean", "died 3", _clean_later, 3),
    Scenario("drop", "folded 3", _dropped, 3, dropped=True),
)


def _confirm(pipeline: Pipeline, log: str) -> None:
    confirm(pipeline, log, Confirmation(run="run"))


def templates(folder: Path) -> Stage:
    """Makes the initial stores of the scenarios, by the operations themselves."""
    stage = Stage(folder)
    store, now = FaultyStore(), 0

    def save(name: str) -> None:
        stage.stores[name] = (FaultyStore(store.files, store.unfinished), now)

    save("nothing")
    for number in range(1, len(BATCHES) + 1):
        pipeline = stage.pipeline(store, number)
        take(pipeline)
        save(f"taken {number}")
        cycle(pipeline, f"run-{number}")
        save(f"folded {number}")
    _begin_others(stage)
    return stage


def _begin_others(stage: Stage) -> None:
    """Makes further states: staged, with a tail, with several waiting change sets, with files of dead runs."""

    def onto(begins: str, name: str, *acts: tuple[int, Act]) -> None:
        store = FaultyStore(stage.stores[begins][0].files)
        for landed, act in acts:
            act(stage.pipeline(store, landed))
        stage.stores[name] = (store, 0)

    onto("taken 2", "staged 2", (2, lambda pipeline: fold(pipeline, "run")))
    onto("folded 1", "taken 3", (2, take), (3, take))
    tails = _each(lambda pipeline, log: take_tail(pipeline, log, "tail"))
    onto("folded 1", "tailed 3", (2, take), (3, take), (3, tails), (4, take), (4, lambda p: cycle(p, "on")))
    onto("folded 5", "subsumed 5", (5, _each(subsume)))
    onto("folded 2", "died 3", (3, _die_writing), (3, _die_folding))


def _die_writing(pipeline: Pipeline) -> None:
    store = pipeline.store
    assert isinstance(store, FaultyStore)
    calls = FaultyStore(store.files)
    take(Pipeline(pipeline.config, calls))
    try:
        # Segment and quarantine are written, and what they bring was not said.
        take(Pipeline(pipeline.config, store.armed(calls.calls // 2, Fault.KILLED_BEFORE)))
    except Killed:
        store.at = None


def _die_folding(pipeline: Pipeline) -> None:
    take(pipeline)
    fold(pipeline, "dead")
    for log in LOGS:
        pipeline.ledger(log).commit(lambda state: transitions.abort(state, state.snapshots[-1].id, "by hand"))


def run_case(stage: Stage, scenario: Scenario, crashes: Sequence[Crash]) -> None:
    """Runs the scenario with each crash in turn, then undisturbed, then the next ordinary run. Then checks every
    promise.
    """
    store = stage.begin(scenario)
    pipeline = stage.pipeline(store, scenario.landed)
    shown = [_shown(store, log) for log in LOGS]
    for at, fault, for_ever in crashes:
        store.armed(at, fault, for_ever)
        with suppress(Killed, TidefoldError):
            scenario.act(pipeline)
        store.at = None
        for log, before in zip(LOGS, shown, strict=True):
            _check_readers(store, scenario, log, before)
    scenario.act(pipeline)
    cycle_to_end(pipeline, scenario)
    for log in LOGS:
        _check_log(store, scenario, log)
    _check_left_over(store)


def cycle_to_end(pipeline: Pipeline, scenario: Scenario) -> None:
    if not scenario.dropped:
        take(pipeline)
    for log in LOGS:
        state = pipeline.ledger(log).find()
        if state and state.open_attempt:
            abort(pipeline, log, "the end")
    cycle(pipeline, "last")
    keep(pipeline)


def _shown(store: Store, log: str) -> Rows:
    return rows_of_table(store, LogPaths(log).table)


def _batches(scenario: Scenario, log: str) -> list[int]:
    skipped = scenario.skipped if log == LOGS[0] else ()
    return [number for number in range(scenario.landed) if number not in skipped]


def _check_readers(store: Store, scenario: Scenario, log: str, before: Rows) -> None:
    """Checks that readers always see the complete old state, or the complete new one."""
    if scenario.dropped and log == LOGS[1]:
        return
    possible = [before, rows_after(_batches(scenario, log)), *(rows_after(range(n)) for n in range(scenario.landed))]
    assert _shown(store, log) in possible


def _check_log(store: Store, scenario: Scenario, log: str) -> None:
    state = Pipeline(None, store).ledger(log).find()  # type: ignore[arg-type]
    if scenario.dropped and log == LOGS[1]:
        assert state is None
        return
    assert state
    assert (state.open_attempt, state.as_of_attempts) == (None, ())
    _check_as_of(store, scenario, state)
    assert _shown(store, log) == rows_after(_batches(scenario, log))
    completed = [
        s for s in state.snapshots if s.state is State.COMPLETED and s.kind is SnapshotKind.FULL and not s.as_of
    ]
    shown = [s.table_version for s in state.snapshots if s.published]
    assert shown == list(range(len(shown)))
    assert state.latest
    assert rows_of_table(store, LogPaths(log).snapshot(state.latest.id)) == _shown(store, log)
    for snapshot in completed:
        _check_snapshot(store, state, snapshot)


def _check_as_of(store: Store, scenario: Scenario, state: LogState) -> None:
    """Checks that there is exactly one, kept by its tag."""
    kept = [s for s in state.snapshots if s.as_of and s.state is State.COMPLETED]
    assert len(kept) == len(state.tags) == (scenario.as_of is not None)
    for snapshot in kept:
        own = rows_of_table(store, LogPaths(state.log).snapshot(snapshot.id))
        assert own == rows_after(range(scenario.as_of or 0))
        assert (snapshot.table_version, state.tags[0].snapshot) == (None, snapshot.id)


def _check_snapshot(store: Store, state: LogState, snapshot: Snapshot) -> None:
    """Checks that its files exist, and that the version that showed it still reads the same."""
    paths = LogPaths(state.log)
    own = rows_of_table(store, paths.snapshot(snapshot.id))
    commits = commits_of(store, paths.table)[: (snapshot.table_version or 0) + 1]
    shown: Rows = {}
    for name in active(commits):
        shown.update(read_rows(store, data_path(paths.table, name)))
    assert own == shown
    assert len(own) == snapshot.rows
    manifest = read_manifest(store, state.log, snapshot)
    assert {f.name for f in manifest.files} == active(commits)


def _check_left_over(store: FaultyStore) -> None:
    """Checks that the stored bytes are the named bytes (I22)."""
    named: set[str] = set()
    for log in LOGS:
        named |= _named(store, log)
    stored = {entry.path for entry in store.list("", unfinished=True)}
    # Half of an announcement: nobody can tell whether its writer is gone, and nothing else of him is there.
    stored = {path for path in stored if not (path.startswith(f"{INTENTS}/") and path in store.unfinished)}
    assert not stored - named, "left over"
    assert not named - stored, "missing"


def _named(store: FaultyStore, log: str) -> set[str]:
    paths = LogPaths(log)
    heads = [entry.path for entry in store.list(paths.ledger)]
    ledger = Pipeline(None, store).ledger(log)  # type: ignore[arg-type]
    state = ledger.find()
    if state is None:
        return set(heads[-1:])
    pages_named = {p for h in heads for page in msgspec.json.decode(store.read(h))["pages"].values() for p in page}
    found = {*heads, *(paths.page(page) for page in pages_named), *names(state)}
    found |= {e.path for s in state.snapshots for e in store.list(paths.manifest(s.id)[: -len("/manifest")])}
    for snapshot in state.snapshots:
        if snapshot.kind is SnapshotKind.FULL and snapshot.state in (State.COMPLETED, State.SUBSUMED):
            files = read_manifest(store, log, snapshot).files
            found |= {data_path(paths.snapshot(snapshot.id), f.name) for f in files}
            found |= {data_path(paths.table, f.name) for f in files if not snapshot.as_of}
            found |= {f"{paths.snapshot(snapshot.id)}/_delta_log/{0:020d}.json"}
    return found | {entry.path for entry in store.list(f"{paths.table}/_delta_log")}


def main(stride: int = 1) -> int:
    """Runs every pair of crashes of every scenario, or each `stride`th of them."""
    deaths = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.TORN, Fault.LOST_AFTER)
    cases = failed = 0
    with tempfile.TemporaryDirectory() as folder, simulated_tables():
        stage = templates(Path(folder))
        for scenario in SCENARIOS:
            calls = stage.calls_of(scenario)
            pairs = [(first, second) for first in range(calls) for second in range(calls + 5)][::stride]
            for first, second in pairs:
                crashes = [(first, deaths[(first + second) % 4], False), (second, deaths[second % 4], False)]
                cases += 1
                try:
                    run_case(stage, scenario, crashes)
                except Exception as error:
                    failed += 1
                    print(f"{scenario.name}: {crashes}: {type(error).__name__}: {error}", flush=True)
            print(f"{scenario.name}: {calls} calls; {cases:,} double crashes so far, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main(*map(int, sys.argv[1:])))
