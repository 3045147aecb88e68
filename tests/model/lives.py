"""Whole lives by chance, and their end."""

from __future__ import annotations

import random
from functools import partial

from model import processes, upkeep
from model.rules import LOGS, RULES, apply, commit
from model.world import World, small_pages
from tidefold.domain.snapshot import transitions

assert upkeep  # Its rules are among RULES once it is imported.


def play(seed: int, steps: int = 60) -> World:
    """One life, by chance alone; the same seed is the same life. Raises AssertionError."""
    chance = random.Random(seed)
    names, weights = list(RULES), [weight for _, weight in RULES.values()]
    with small_pages():
        world = World(chance.choice((1, 2, 3, None)), chance.choice((0, 0, 1, 2)))
        for name in chance.choices(names, weights, k=steps):
            apply(world, name, chance.choice)
            world.check()
        finish(world)
    return world


def finish(world: World) -> None:
    """Ends a life: recovery, then the ordinary clean-ups."""
    world.quiet()
    for log in LOGS:
        state = world.read(log)
        for one in [s for s in state.snapshots if s.open] if state else ():
            commit(world, log, "abort", partial(transitions.abort, snapshot_id=one.id, reason="the end"))
        for clean_up in (processes.publish, processes.subsume, processes.truncate, processes.sweep):
            world.start(clean_up.__name__, clean_up(world, log), whole=True)
    world.check_left_over()
