"""A ledger goes back at any moment of any life, and is put back or rebuilt. Promise I29.

The model knows what was landed, what the table showed last, and what is held. A state machine of Hypothesis chooses.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.effort import THOROUGH, choose
from support.old_ledgers import (
    CONFIG,
    LOG,
    PATHS,
    Rows,
    fold,
    land,
    opened,
    published,
    snapshots,
    take,
    versions,
)
from support.pipelines import judge_all
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.restore.rebuild import rebuild
from tidefold.operations.retention import references
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm

EXAMPLES, STEPS = choose(8, 500), choose(20, 50)
REFUSED = ("LEDGER_BEHIND", "LEDGER_LOST")
# What may be said in any life.
KNOWN = {
    "",
    *REFUSED,
    "CANNOT_HOLD",
    "ATTEMPT_OPEN",
    "NOT_JUDGED",
    "WRONG_STATE",
    "ABORTED",
    "NOT_FOUND",
    "SNAPSHOT_UNKNOWN",
}


def code_of(act: Any) -> str:
    try:
        found = act()
        return (found.error_code or "") if isinstance(found, Outcome) else ""
    except TidefoldError as error:
        return error.code


class LedgerMachine(RuleBasedStateMachine):
    """One log on a disk."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.landed = self.runs = 0
        self.shown: Rows | None = None
        self.held: dict[int, Rows] = {}
        # The newest ledger, while an older one is in its place.
        self.newer: Path | None = None

    @initialize(kind=st.sampled_from(["full", "incremental"]))
    def begin(self, kind: str) -> None:
        (self.root / "landing" / LOG).mkdir(parents=True)
        (self.root / "tidefold.yaml").write_text(CONFIG.format(kind=kind))
        self.publish_more()

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _act(self, act: Any) -> str:
        code = code_of(act)
        assert code in KNOWN or (self.newer is not None and code), code
        return code

    def _see(self) -> Rows:
        return {offset % 7: f"t{1000 + offset}" for offset in range(self.landed)}

    def _publish(self) -> None:
        self.runs += 1
        self._act(lambda: take(self.root))
        self._act(lambda: fold(self.root, f"run-{self.runs}"))
        if (state := opened(self.root).ledger(LOG).find()) and state.open_attempt and state.open_attempt.manifest:
            self._act(lambda: judge_all(opened(self.root)))
        self._act(lambda: confirm(opened(self.root), LOG))
        now = published(self.root)
        # An older ledger may publish nothing, or what is right.
        assert now in (self.shown, self._see()), now
        self.shown = now

    @rule()
    def publish_more(self) -> None:
        land(self.root, self.landed)
        self.landed += 3
        self._publish()

    @rule()
    def ingest(self) -> None:
        land(self.root, self.landed)
        self.landed += 3
        self._act(lambda: take(self.root))

    @rule(number=st.integers(1, 4))
    def hold(self, number: int) -> None:
        code = self._act(lambda: references.hold(opened(self.root), LOG, f"hold-{number}", number, "why"))
        if not code and self.newer is None:
            state = opened(self.root).ledger(LOG).read()
            rows = snapshots(self.root, state)
            self.held |= {h.snapshot: rows[h.snapshot] for h in state.holds if h.snapshot in rows}

    @rule(at=st.integers(0, 6))
    def register(self, at: int) -> None:
        code_of(lambda: references.register(opened(self.root), LOG, "mirror", at))

    @rule(act=st.sampled_from([subsume, truncate]))
    def retain(self, act: Any) -> None:
        self._act(lambda: act(opened(self.root), LOG))

    @rule()
    def abort(self) -> None:
        self._act(lambda: abort(opened(self.root), LOG, "by hand"))

    @rule()
    def clean(self) -> None:
        clean(opened(self.root), [LOG])

    @precondition(lambda self: self.newer is None)
    @rule(count=st.integers(1, 12))
    def go_back(self, count: int) -> None:
        there = versions(self.root)
        self.newer = self.root / "newer"
        shutil.copytree(self.root / "store" / PATHS.folder, self.newer)
        for path in there[-min(count, len(there) - 1) :]:
            path.unlink()

    @precondition(lambda self: self.newer is not None)
    @rule(is_put_back=st.booleans())
    def mend(self, is_put_back: bool) -> None:
        assert self.newer
        refused = code_of(lambda: references.tag(opened(self.root), LOG, f"t{self.runs}-{self.landed}", 1)) in REFUSED
        if is_put_back and refused:
            # Nothing was changed, so the newer one fits.
            shutil.copytree(self.newer, self.root / "store" / PATHS.folder, dirs_exist_ok=True)
        else:
            assert code_of(lambda: rebuild(opened(self.root), LOG, plan=False)) == ""
            # What a rebuilt ledger cannot know is documented: holds that were set since.
            state = opened(self.root).ledger(LOG).read()
            self.held = {n: r for n, r in self.held.items() if n in {h.snapshot for h in state.holds}}
        shutil.rmtree(self.newer)
        self.newer = None
        self._publish()
        assert published(self.root) == self._see()

    @invariant()
    def readers_see_what_was_published(self) -> None:
        if self.shown is not None:
            assert published(self.root) == self.shown

    @invariant()
    def held_snapshots_are_there(self) -> None:
        if self.held and self.newer is None:
            rows = snapshots(self.root, opened(self.root).ledger(LOG).read())
            assert rows.items() >= self.held.items()


def test_a_ledger_goes_back_at_any_moment_and_nothing_is_lost() -> None:
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not THOROUGH,
            suppress_health_check=list(HealthCheck),
        ),
    )
