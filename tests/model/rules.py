"""What may happen next in the world, each rule with its weight: for Hypothesis, and for a plain random run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from model import processes
from model.oracle import Changes
from model.world import INSTANT, LOGS, Pick, Process, World
from tidefold.domain.commit_times import tag_of
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State, Verdict
from tidefold.domain.retention import references
from tidefold.domain.snapshot import claim, transitions
from tidefold.operations.ground import recovery

RUNS = ("run-a", "run-b", "run-c")
NAMES = ("x", "y")
# A restore that stays stops the log: test_later_changes.py.
MODES = tuple(mode for mode in claim.RestoreMode if mode is not claim.RestoreMode.STAY)
VERDICTS = ("pass", "pass", "pass", "pass", "pass", "override", "fail", "of other files")
Rule = Callable[[World, Pick], None]
RULES: dict[str, tuple[Rule, int]] = {}


def rule(weight: int) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        RULES[function.__name__] = (function, weight)
        return function

    return add


def apply(world: World, name: str, pick: Pick) -> None:
    RULES[name][0](world, pick)


def commit(world: World, log: str, name: str, move: Callable[[LogState], LogState]) -> None:
    """One call that is one move."""

    def steps() -> Process:
        if world.read(log) is not None:
            world.commit(log, move)
        yield

    world.start(name, steps(), whole=True)


def some_snapshot(world: World, log: str, pick: Pick) -> Snapshot | None:
    """Any snapshot; the one that is open or the newest more often than others."""
    state = world.read(log)
    if state is None or not state.snapshots:
        return None
    likely = [state.open_attempt or state.snapshots[-1]]
    return pick([*likely, *likely, *state.snapshots])


def oldest_kept(world: World, log: str, pick: Pick) -> Snapshot | None:
    """Any snapshot, the oldest that is kept more often: whoever names it is late."""
    state = world.read(log)
    if state is None or not state.snapshots:
        return None
    kept = [s for s in state.snapshots if s.state is State.COMPLETED][:1]
    return pick([*kept, *kept, *kept, *state.snapshots])


def _changes(world: World, pick: Pick) -> Changes:
    number = pick((0, 1, 1, 2))
    return {pick((1, 2, 3)): pick((f"v{world.number()}", f"v{world.number()}", None)) for _ in range(number)}


def _plan(world: World, pick: Pick) -> processes.Plan:
    logs = pick((LOGS, LOGS[:1], LOGS[1:]))
    return {log: [_changes(world, pick) for _ in range(pick((1, 1, 2)))] for log in logs}


@rule(8)
def append(world: World, pick: Pick) -> None:
    """A whole ingest, from its announcement to its end."""
    world.start("ingest", processes.ingest(world, _plan(world, pick), pick((0, 0, 1))), whole=True)


@rule(4)
def begin_ingest(world: World, pick: Pick) -> None:
    world.start("ingest", processes.ingest(world, _plan(world, pick), pick((0, 1))))


@rule(3)
def begin_writer(world: World, pick: Pick) -> None:
    world.start("writer", processes.persist(world, _plan(world, pick), pick((7, 8))))


@rule(3)
def settle_announced(world: World, pick: Pick) -> None:
    world.start("settle", processes.end_announced(world, pick), whole=True)


@rule(1)
def roll_forward(world: World, pick: Pick) -> None:
    def steps() -> Process:
        recovery.roll_forward(world.store, [pick(LOGS)])
        yield

    world.start("roll forward", steps(), whole=True)


def _claim(world: World, log: str, pick: Pick, run: str, restore: claim.RestorePoint | None = None) -> claim.Claim:
    request = f"restore:{restore.snapshot}:{restore.mode}" if restore else "fold"
    seen = world.seen[log] if pick((False, True)) else None
    stalled = claim.WatchedAttempt(seen, 0) if seen else None
    return claim.Claim(run, request, SnapshotKind.FULL, INSTANT, pick((False, False, True)), stalled, restore)


@rule(4)
def begin_fold(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    world.start("fold", processes.materialize(world, log, _claim(world, log, pick, pick(RUNS))))


@rule(14)
def cycle(world: World, pick: Pick) -> None:
    """A fold, judged, confirmed and published, unless somebody is in the way."""
    whole_cycle(world, pick(LOGS), pick)


def whole_cycle(world: World, log: str, pick: Pick) -> None:
    run = f"cycle-{world.number()}"
    world.start("fold", processes.materialize(world, log, _claim(world, log, pick, run)), whole=True)
    _bring_to_end(world, log, run, pick(VERDICTS), pick((True, True, True, False)))


def _bring_to_end(world: World, log: str, run: str, verdict: str, publishes: bool) -> None:
    """What follows a fold: the gate passes it, or it is let through by somebody, or aborted."""
    state = world.read(log)
    mine = claim.find_by_run(state, run) if state else None
    if mine is None or mine.state is not State.STAGED:
        return
    judged = _verdict(mine, verdict not in ("fail", "override"), "one")
    if verdict == "of other files":
        judged = replace(judged, manifest=verdict)
    commit(world, log, "judge", partial(transitions.record_verdict, snapshot_id=mine.id, verdict=judged))
    if verdict == "override":
        commit(world, log, "override", partial(transitions.override, snapshot_id=mine.id, by="me", why="because"))
    commit(world, log, "confirm", partial(transitions.confirm, snapshot_id=mine.id))
    if verdict in ("fail", "of other files"):
        commit(world, log, "abort", partial(transitions.abort, snapshot_id=mine.id, reason="refused"))
    if publishes:
        world.start("publish", processes.publish(world, log), whole=True)


@rule(4)
def as_of_an_instant(world: World, pick: Pick) -> None:
    """A snapshot as of an instant, begun or brought to its end, beside whatever else is under way."""
    log = pick(LOGS)
    at = _instant(world, log, pick)
    run = pick((f"as-of-{world.number()}", f"as-of-again-{at}"))
    asked = claim.Claim(run, f"as-of {at}", SnapshotKind.FULL, INSTANT, pick((False, False, True)))
    whole = pick((True, False))
    world.start("as of", processes.materialize(world, log, asked, at), whole=whole)
    if whole and pick((True, True, False)):
        _bring_to_end(world, log, run, pick(VERDICTS), False)
    if pick((True, False, False)):
        commit(world, log, "untag", partial(references.untag, name=tag_of(at)))


def _instant(world: World, log: str, pick: Pick) -> int:
    """Any; the first that a kept snapshot serves more often."""
    state = world.read(log)
    there = [s for s in state.snapshots if s.state is State.COMPLETED and s.max_commit_time] if state else []
    return pick([*range(1, 11), *((s.max_commit_time or 0) + 1 for s in there for _ in range(4))])


@rule(2)
def restore_as_of_an_instant(world: World, pick: Pick) -> None:
    """One is kept, and comes back as the newest."""
    log, run = pick(LOGS), f"as-of-{world.number()}"
    at = _instant(world, log, pick)
    asked = claim.Claim(run, f"as-of {at}", SnapshotKind.FULL, INSTANT)
    world.start("as of", processes.materialize(world, log, asked, at), whole=True)
    _bring_to_end(world, log, run, "pass", False)
    state = world.read(log)
    made = [s for s in state.snapshots if s.as_of and s.state is State.COMPLETED] if state else []
    if made:
        run, mode = f"restore-{world.number()}", pick(MODES)
        asked = _claim(world, log, pick, run, claim.RestorePoint(made[-1].id, mode))
        world.start("restore", processes.materialize(world, log, asked), whole=True)
        _bring_to_end(world, log, run, "pass", True)


def _restore(world: World, log: str, pick: Pick) -> claim.RestorePoint | None:
    state = world.read(log)
    snapshots = state.snapshots if state else ()
    completed = [s for s in snapshots if s.state is State.COMPLETED]
    tagged = [s for s in completed if state and s.id in {t.snapshot for t in state.tags}]
    found = pick([*completed, *tagged, *tagged, *snapshots]) if snapshots else None
    return claim.RestorePoint(found.id, pick(MODES)) if found else None


@rule(3)
def begin_restore(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    wanted = _restore(world, log, pick)
    if wanted:
        run = f"restore-{world.number()}"
        world.start("restore", processes.materialize(world, log, _claim(world, log, pick, run, wanted)))


@rule(6)
def restore(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    wanted = _restore(world, log, pick)
    if wanted:
        run = f"restore-{world.number()}"
        asked = _claim(world, log, pick, run, wanted)
        world.start("restore", processes.materialize(world, log, asked), whole=True)
        _bring_to_end(world, log, run, pick(VERDICTS), pick((True, True, True, False)))


@rule(2)
def restore_tail(world: World, pick: Pick) -> None:
    """A tail is taken, more may come, and the tail comes back."""
    log, run = pick(LOGS), f"restore-{world.number()}"
    world.start("tail", processes.take_tail(world, log, f"tail-{world.number()}"), whole=True)
    if pick((True, False)):
        append(world, pick)
    state = world.read(log)
    taken = [s for s in state.snapshots if s.kind is SnapshotKind.TAIL and s.state is State.COMPLETED] if state else []
    if taken:
        asked = _claim(world, log, pick, run, claim.RestorePoint(taken[-1].id, pick(MODES)))
        world.start("restore", processes.materialize(world, log, asked), whole=True)
        _bring_to_end(world, log, run, pick(VERDICTS), True)


@rule(3)
def restore_beside_clean_ups(world: World, pick: Pick) -> None:
    """What a restore began with is retired and cut, as far as that is allowed, before it reads it."""
    log = pick(LOGS)
    state = world.read(log)
    older = [s for s in state.snapshots if s.state is State.COMPLETED] if state else []
    if not older:
        return
    oldest, run, name = older[0], f"restore-{world.number()}", pick(NAMES)
    commit(world, log, "tag", partial(references.tag, name=name, snapshot_id=oldest.id))
    whole_cycle(world, log, pick)
    asked = _claim(world, log, pick, run, claim.RestorePoint(oldest.id, pick(MODES)))
    world.start("restore", processes.materialize(world, log, asked))
    commit(world, log, "untag", partial(references.untag, name=name))
    for clean_up in (processes.subsume, processes.truncate):
        world.start(clean_up.__name__, clean_up(world, log), whole=True)
    for one in [one for one in world.idle if one.name == "restore"]:
        while one in world.running:
            world.step(one)
    _bring_to_end(world, log, run, "pass", True)


@rule(2)
def look(world: World, pick: Pick) -> None:
    """Remembers an attempt, to claim over it if it shows no progress."""
    log = pick(LOGS)
    state = world.read(log)
    world.seen[log] = state.open_attempt if state else None


def _verdict(snapshot: Snapshot, passed: bool, suite: str) -> Verdict:
    return Verdict(passed, suite, snapshot.manifest or "", "verdict.json", "1 of 1 checks")


@rule(4)
def judge(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    found = some_snapshot(world, log, pick)
    if found:
        verdict = _verdict(found, pick((True, True, False)), pick(("one", "two")))
        if pick((False, False, True)):
            verdict = replace(verdict, manifest="of other files")
        commit(world, log, "judge", partial(transitions.record_verdict, snapshot_id=found.id, verdict=verdict))


@rule(1)
def override(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    found = some_snapshot(world, log, pick)
    if found:
        commit(world, log, "override", partial(transitions.override, snapshot_id=found.id, by="me", why="because"))


@rule(5)
def confirm(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    found = some_snapshot(world, log, pick)
    if found:
        commit(world, log, "confirm", partial(transitions.confirm, snapshot_id=found.id))


@rule(4)
def publish(world: World, pick: Pick) -> None:
    world.start("publish", processes.publish(world, pick(LOGS)))


@rule(1)
def abort(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    found = some_snapshot(world, log, pick)
    if found:
        commit(world, log, "abort", partial(transitions.abort, snapshot_id=found.id, reason="asked for"))
