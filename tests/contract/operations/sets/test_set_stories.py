"""Random stories of a set: landings, runs, failing gates, restores, savepoints and kills in any order.

After every step the rows behind the pointer are those of one point of the source's log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from support.bank_sets import ALL, LAST, LOGS, check_bank, config, land, make_bank, run
from support.faults import Fault, FaultyStore, Killed
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.operations.sets.restore import RestoreSet, restore_set
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline


@dataclass
class Story:
    """A bank under random steps.

    share: the part of the records that has landed, of the fastest topic. upto: how many of each topic.
    """

    folder: Path
    chance: random.Random
    share: float = 0.12
    upto: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ALL, 0))
    steps: int = 0

    @property
    def pipeline(self) -> Pipeline:
        return open_pipeline(self.folder / "tidefold.yaml")

    def land(self) -> None:
        self.share = min(1, self.share + self.chance.random() * 0.1)
        grown = {name: int(count * self.share * self.chance.uniform(0.9, 1)) for name, count in ALL.items()}
        self.upto = {name: max(self.upto[name], count) for name, count in grown.items()}
        land(self.folder, self.upto)

    def run(self) -> None:
        run(self._store(), self._id(), failing=self.chance.choice([""] * 12 + [*LOGS]))

    def restore(self) -> None:
        versions = self.pipeline.set_ledger("bank").read().versions
        if not versions:
            return
        request = RestoreSet(self._id(), "bank", self.chance.choice(versions).number)
        pipeline = self._store()

        def step(logs: Sequence[str]) -> list[Outcome]:
            return materialize(pipeline, logs, request, in_process)

        restore_set(pipeline, request, step)
        for log in LOGS:
            state = pipeline.ledger(log).find()
            if state and state.open_attempt and state.open_attempt.state is State.STAGED:
                judge_all(pipeline, log, passed=self.chance.random() < 0.9)
        confirm_logs(pipeline, LOGS, request.run)

    def give_up(self) -> None:
        """A person aborts what is open."""
        for log in LOGS:
            with suppress(TidefoldError):
                abort(self.pipeline, log, "by hand")

    def _id(self) -> str:
        self.steps += 1
        return f"step-{self.steps}"

    def _store(self) -> Pipeline:
        """Returns the pipeline; now and then its process dies, or loses an answer, at some call."""
        if self.chance.random() < 0.5:
            return self.pipeline
        fault = self.chance.choice(list(Fault))
        return replace(self.pipeline, store=FaultyStore(self.folder / "store", self.chance.randint(5, 150), fault))


@pytest.mark.rotates(4)
@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_steps_shows_one_point(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path / "bank", random.Random(seed))
    make_bank(story.folder, config(kind=story.chance.choice(["full", "incremental"])))
    story.land()
    run(story.pipeline, "first")
    for _ in range(14):
        step = story.chance.choice([story.land, story.run, story.run, story.restore, story.give_up])
        with suppress(Killed, TidefoldError):
            step()
        check_bank(story.pipeline)
    land(story.folder, ALL)
    story.give_up()
    for last in ("last", "again"):
        run(story.pipeline, last)
    assert check_bank(story.pipeline) == LAST
