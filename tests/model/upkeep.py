"""More of what may happen: tails, clean-ups, squashes, names and consumers of a log, and what befalls processes."""

from __future__ import annotations

from functools import partial

from model import processes
from model.rules import LOGS, NAMES, apply, commit, oldest_kept, rule, whole_cycle
from model.world import INSTANT, Killed, Pick, World
from tidefold.domain.log_state import Consumer, Hold, LogState, SnapshotKind, State
from tidefold.domain.retention import references
from tidefold.domain.snapshot import claim
from tidefold.ledger import Ledger


@rule(4)
def tail(world: World, pick: Pick) -> None:
    run = f"tail-{world.number()}"
    world.start("tail", processes.take_tail(world, pick(LOGS), pick((run, "tail-again"))), whole=True)


@rule(3)
def subsume(world: World, pick: Pick) -> None:
    world.start("subsume", processes.subsume(world, pick(LOGS)), whole=pick((True, False)))


@rule(3)
def truncate(world: World, pick: Pick) -> None:
    world.start("truncate", processes.truncate(world, pick(LOGS)), whole=pick((True, False)))


@rule(2)
def sweep(world: World, pick: Pick) -> None:
    world.start("sweep", processes.sweep(world, pick(LOGS)), whole=pick((True, False)))


@rule(3)
def squash(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    world.start("squash", processes.squash(world, log, pick), whole=pick((True, True, False)))
    state = world.read(log)
    inside = [sqn for c in state.unfolded for sqn in range(c.begin, c.sqn)] if state else []
    if inside and pick((True, False)):
        # Somebody stands within what was squashed when more is to be squashed with it.
        commit(world, log, "register", partial(references.register, consumer=Consumer(pick(NAMES), pick(inside))))
        world.start("ingest", processes.ingest(world, {log: [{1: f"v{world.number()}"}]}, 0), whole=True)
        world.start("squash", processes.squash(world, log, pick), whole=True)


@rule(2)
def keep_tail(world: World, pick: Pick) -> None:
    """Keeps a tail while newer snapshots come: what it is built on, and the log that it consists of, must stay."""
    log, name = pick(LOGS), pick(NAMES)
    run = f"tail-{world.number()}"
    world.start("tail", processes.take_tail(world, log, run), whole=True)
    state = world.read(log)
    mine = claim.find_by_run(state, run) if state else None
    if mine is None:
        return
    tagged = partial(references.tag, name=name, snapshot_id=mine.id)
    commit(world, log, "tag", pick((tagged, partial(references.hold, wanted=Hold(name, mine.id, "why")))))
    for _ in range(pick((1, 2, 3))):
        world.start("ingest", processes.ingest(world, {log: [{2: f"v{world.number()}"}]}, 0), whole=True)
        whole_cycle(world, log, pick)
    for clean_up in (processes.subsume, processes.truncate):
        world.start(clean_up.__name__, clean_up(world, log), whole=True)


@rule(2)
def hold_late(world: World, pick: Pick) -> None:
    """Holds and replays onto the oldest snapshot, which a tag kept, after the log after it may have been truncated."""
    log = pick(LOGS)
    state = world.read(log)
    oldest = next((s for s in state.snapshots if s.state is State.COMPLETED), None) if state else None
    if oldest:
        commit(world, log, "tag", partial(references.tag, name="x", snapshot_id=oldest.id))
        whole_cycle(world, log, pick)
        world.start("truncate", processes.truncate(world, log), whole=True)
        commit(world, log, "hold", partial(references.hold, wanted=Hold(pick(NAMES), oldest.id, "why")))
        replay = claim.RestorePoint(oldest.id, claim.RestoreMode.REPLAY)
        asked = claim.Claim(
            f"late-{world.number()}", f"restore:{oldest.id}:replay", SnapshotKind.FULL, INSTANT, restore=replay
        )
        world.start("restore", processes.materialize(world, log, asked), whole=pick((True, False)))


@rule(2)
def tag(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    found = oldest_kept(world, log, pick)
    if found:
        commit(world, log, "tag", partial(references.tag, name=pick(NAMES), snapshot_id=found.id))


@rule(1)
def untag(world: World, pick: Pick) -> None:
    commit(world, pick(LOGS), "untag", partial(references.untag, name=pick(NAMES)))


@rule(2)
def hold(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    found = oldest_kept(world, log, pick)
    if found:
        commit(world, log, "hold", partial(references.hold, wanted=Hold(pick(NAMES), found.id, "why")))


@rule(2)
def release(world: World, pick: Pick) -> None:
    commit(world, pick(LOGS), "release", partial(references.release, name=pick(NAMES)))


@rule(2)
def register(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    state = world.read(log)
    if state:
        inside = [sqn for c in state.change_sets for sqn in range(c.begin, c.sqn)]
        sqn = pick([*inside, *inside, *range(state.last_sqn + 2)])
        commit(world, log, "register", partial(references.register, consumer=Consumer(pick(NAMES), sqn)))


@rule(2)
def unregister(world: World, pick: Pick) -> None:
    commit(world, pick(LOGS), "unregister", partial(references.unregister, name=pick(NAMES)))


@rule(2)
def prune(world: World, pick: Pick) -> None:
    log = pick(LOGS)
    if Ledger(world.store, log).prune(pick((2, 3, 5))):
        world.effects["ledger versions were pruned"] += 1


@rule(14)
def advance(world: World, pick: Pick) -> None:
    """The next step of any process."""
    if world.idle:
        world.step(pick(world.idle))


@rule(2)
def kill(world: World, pick: Pick) -> None:
    if world.idle:
        world.running.remove(pick(world.idle))
        world.effects["killed between two calls"] += 1


@rule(4)
def disturb(world: World, pick: Pick) -> None:
    """The next call that commits is killed, overtaken, or sleeps for so long that the ledger was pruned."""
    where, what = pick(("before", "after")), pick(("kill", "overtake", "sleep", "sleep"))

    def hook() -> None:
        if what == "kill":
            raise Killed
        if what == "overtake":
            apply(world, pick(OVERTAKING), pick)
            return
        log = pick(LOGS)
        for _ in range(pick((1, 2, 3, 4))):
            toggle = references.unregister if pick((True, False)) else _standing_at_end
            commit(world, log, "others", partial(toggle, name=f"r{world.number()}"))
            commit(world, log, "others", partial(_standing_at_end, name="other"))
            commit(world, log, "others", partial(references.unregister, name="other"))
        if Ledger(world.store, log).prune(2):
            world.effects[f"pruned while somebody slept {where} his put"] += 1

    setattr(world.store, where, hook)


def _standing_at_end(state: LogState, name: str) -> LogState:
    return references.register(state, Consumer(name, state.last_sqn)) if name == "other" else state


OVERTAKING = ("append", "cycle", "begin_fold", "confirm", "abort", "tail", "subsume", "truncate", "squash", "advance")
