"""Lives of a log whose configuration is edited: planned, applied, killed. `play` says what happened in one.

After the switch, and after each later file, the rows must be those of a log that had the edit from the beginning.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from faults.injection import CallFault, Calls
from support.commands import call
from support.effort import rotate
from support.faults import Killed
from support.planned import (
    configure,
    land,
    plan,
    published,
    random_file,
    random_shape,
    read_dicts,
    read_texts,
    require_applied,
    rows,
    run,
)
from tidefold.domain.log_state import State
from tidefold.domain.plan import Plan
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.plan import apply as applying
from tidefold.operations.quality import judge as judging
from tidefold.operations.snapshot import confirm as confirming
from tidefold.operations.snapshot import materialize as making
from tidefold.quality.run.duckdb_rows import DuckDBEngine

LIVES, PLAYED = 300, 3
FIRST = rotate(LIVES // PLAYED) * PLAYED
WALKS = 40
STEPS = ("claim", "stage", "judge", "copy", "confirm")


@contextmanager
def kill(at: str) -> Iterator[None]:
    """Ends the process behind this step of an apply."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    def die_at_second(real: Callable[..., Any]) -> Callable[..., Any]:
        calls: list[None] = []

        def act(*args: Any, **how: Any) -> Any:
            calls.append(None)
            return die() if len(calls) == 2 else real(*args, **how)

        return act

    @contextmanager
    def die_within(*args: Any) -> Iterator[Any]:
        manager = bring_over(*args)
        manager.__enter__()
        raise Killed
        yield

    bring_over = confirming.bring_over
    patches: dict[str, tuple[Any, str, Any]] = {
        "claim": (making, "stage", die),
        "stage": (judging, "judge_case", die),
        "judge": (applying, "confirm", die),
        "copy": (confirming, "bring_over", die_within),
        "confirm": (confirming, "roll_forward", die_at_second(confirming.roll_forward)),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*patches[at])
        yield


class Life:
    """Two logs that get the same files: one is edited, the other one had the edit from the beginning.

    If the edit is undone later, a third one never has it.

    story: what happened, for the message of a failure and for counts.
    """

    def __init__(self, folder: Path, seed: int, engine: DuckDBEngine) -> None:
        self._r, self._engine, self._number = random.Random(seed), engine, 0
        self._live, self._undisturbed, self._former = (folder / name for name in ("live", "undisturbed", "former"))
        self._form = self._r.choice(["csv", "csv", "json"])
        self._before, self._after = (random_shape(self._r, self._form) for _ in range(2))
        self._is_undone = self._r.random() < 0.2
        self.story: list[str] = []

    def play(self) -> list[str]:
        """Plays the life. Raises AssertionError."""
        r = self._r
        self._begin()
        for _ in range(r.randint(1, 3)):
            self._land(self._before)
        if r.random() < 0.2:
            self._trim()
        self._plan()
        if r.random() < 0.33:
            self._note("the log goes on")
            self._land(self._before)
            require_applied(configure(self._live, **self._after), self._engine, refused="PLAN_BEHIND")
            self._plan()
        if r.random() < 0.15:
            self._give_up()
        self._apply()
        self._require_equal()
        for _ in range(r.randint(1, 2)):
            self._land(self._after)
            self._require_equal()
        if self._is_undone:
            self._note("the plan is undone")
            self._before, self._after, self._undisturbed = self._after, self._before, self._former
            self._plan()
            self._apply()
            self._require_equal()
        call("check", "verify", "orders", "--config", str(self._live / "tidefold.yaml"))
        return self.story

    def _begin(self) -> None:
        for folder, shape in self._logs(self._before):
            configure(folder, **shape)

    def _logs(self, shape: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
        """The logs, each with its configuration; `shape` is that of the one that is edited."""
        former = [(self._former, self._before)] if self._is_undone else []
        return [(self._live, shape), (self._undisturbed, self._after), *former]

    def _note(self, what: str) -> None:
        self.story.append(what)

    def _land(self, shape: dict[str, Any]) -> None:
        """Lands one file or two in both landings, and runs both logs."""
        r = self._r
        for _ in range(r.choice([1, 1, 2])):
            self._number += 1
            ending = "csv" if self._form == "csv" else "jsonl"
            feed = random_file(r, self._form, whole=self._number < 3)
            name, copied = f"{r.choice('abcdef')}-{self._number}.{ending}", r.random() < 0.15
            for folder, _ in self._logs(shape):
                land(folder, name, *feed)
                if copied:  # The bytes of an earlier file, under a name that comes before or after it.
                    earlier = sorted((folder / "landing").iterdir())[0]
                    shutil.copy(earlier, folder / "landing" / f"{'az'[self._number % 2]}-copy-{self._number}.{ending}")
        for folder, its in self._logs(shape):
            run(configure(folder, **its), f"r{self._number}", self._engine)

    def _trim(self) -> None:
        """The log forgets what landed files can show again."""
        self._note("the log is cut")
        configure(self._live, **self._before, more="retention: {snapshots: 1}\n")
        for words in (("retain", "truncate", "orders"), ("retain", "subsume", "orders")):
            call(*words, "--config", str(self._live / "tidefold.yaml"))

    def _plan(self) -> None:
        shown = read_dicts(configure(self._live, **self._before))
        edited = configure(self._live, **self._after)
        calls = Calls(self._r.randint(0, 80), self._r.choice([CallFault.DIES_BEFORE, CallFault.DIES_AFTER]))
        if self._r.random() < 0.3:
            self._note("the plan is killed")
            with calls.watching(), suppress(Killed):
                plan(edited, self._engine)
        made, beside = plan(edited, self._engine)
        assert rows(beside) == published(configure(self._undisturbed, **self._after)), self.story
        assert read_dicts(configure(self._live, **self._before)) == shown
        for one in made.examples:
            assert one.change != "changed" or (one.was and one.now), one
            assert "[" not in one.was + one.now, one
        counts = {kind: made.counts.get(kind, 0) for kind in ("added", "removed", "changed")}
        if made.joined_by:
            naive = count_naively(made, shown, read_dicts(beside))
            assert counts == naive, (counts, naive)

    def _give_up(self) -> None:
        """An apply is killed and aborted; the log goes on as it was, and is planned again."""
        self._note("an apply is given up")
        with pytest.raises(Killed), kill(self._r.choice(STEPS[:-1])):
            require_applied(configure(self._live, **self._after), self._engine)
        configure(self._live, **self._before)
        call("step", "abort", "orders", "--config", str(self._live / "tidefold.yaml"))
        self._land(self._before)
        self._plan()

    def _apply(self) -> None:
        shown = published(configure(self._live, **self._before))
        for at in STEPS:
            if self._r.random() < 0.5:
                self._note(f"killed after {at}")
                with pytest.raises(Killed), kill(at):
                    require_applied(configure(self._live, **self._after), self._engine)
                assert published(configure(self._live, **self._before)) == shown
        edited = configure(self._live, **self._after)
        if self.story[-1:] == ["killed after confirm"] and self._r.random() < 0.5:
            run(edited, "next", self._engine)  # The next run publishes what was confirmed.
        else:
            require_applied(edited, self._engine)

    def _require_equal(self) -> None:
        live, undisturbed = configure(self._live, **self._after), configure(self._undisturbed, **self._after)
        assert published(live) == published(undisturbed), self.story


class Walk(Life):
    """A log after its plan: everything that a log can do, in any order, and its rows after each step."""

    def __init__(self, folder: Path, seed: int, engine: DuckDBEngine) -> None:
        super().__init__(folder, seed, engine)
        self._folder = folder
        for shape in (self._before, self._after):  # So that there are rows as of an instant.
            if "changed" in shape["order"]:
                shape["zone"] = f"{shape['zone'] or 'UTC'}, commit_time: changed"

    def play(self) -> list[str]:
        self._is_undone = False
        self._begin()
        for _ in range(2):
            self._land(self._before)
        former = self._configure()
        self._old = former.ledger("orders").read().snapshots[-1]
        self._shown = published(former)
        self._plan()
        self._apply()
        self._made = self._configure().ledger("orders").read().snapshots[-1].id
        self._right = published(self._configure())
        self._land(self._after)
        for step in (*self._r.sample(WALKED, len(WALKED)), "rebuild"):
            self._note(step)
            getattr(self, f"_{step}")()
            self._require_equal()
        self._land(self._after)
        self._require_equal()
        self._call("check", "verify", "orders", "--deep")
        return self.story

    def _configure(self) -> Pipeline:
        return configure(self._live, **self._after, more="retention: {snapshots: 2}\n")

    def _call(self, *words: str, live: bool = True, refused: str = "") -> None:
        """Runs a command at one of the logs. refused: the code that may come instead."""
        folder = self._live if live else self._undisturbed
        self._configure()
        done = call(*words, "--config", str(folder / "tidefold.yaml"), code=None)
        assert done.exit_code == 0 or (refused and refused in done.output), (words, done.output, self.story)

    def _is_kept(self, snapshot: int) -> bool:
        return self._configure().ledger("orders").read().snapshot(snapshot).state is State.COMPLETED

    def _verify(self) -> None:
        self._call("check", "verify", "orders", "--deep")

    def _drill(self) -> None:
        self._call("check", "drill", "orders")

    def _savepoint(self) -> None:
        saved, other = self._folder / "saved", self._folder / "other"
        self._call("move", "savepoint", "orders", "--to", str(saved))
        pipeline = configure(other, **self._after)
        for words in (("move", "import", "orders", str(saved)), ("step", "quality"), ("step", "confirm", "orders")):
            call(*words, "--config", str(other / "tidefold.yaml"))
        assert published(pipeline) == published(self._configure())

    def _truncate(self) -> None:
        self._call("retain", "truncate", "orders")

    def _subsume(self) -> None:
        self._call("retain", "subsume", "orders")

    def _clean(self) -> None:
        self._call("retain", "clean")

    def _compact(self) -> None:
        self._call("retain", "compact", "orders")

    def _rebuild(self) -> None:
        for part in ("ledger", "pages"):
            shutil.rmtree(self._live / "store/logs/orders" / part, ignore_errors=True)
        self._call("move", "rebuild", "orders", "--yes")
        self._subsume()  # A rebuild does not know which snapshots were retired.

    def _restore(self) -> None:
        """The rows of the plan come back, and then what came after them."""
        if not self._is_kept(self._made):
            return
        self._call("restore", "orders", str(self._made), "--log-position", "replay", "--run", "back", refused="LOG_CUT")
        if self._configure().ledger("orders").read().open_attempt is None:
            return
        self._call("step", "quality", "orders")
        self._call("step", "confirm", "orders")
        assert published(self._configure()) == self._right
        self._call("run", "orders", refused="LANDED_REFUSED")  # It folds, and names a file of which nothing was read.

    def _read_before(self) -> None:
        """What readers saw before the switch is still there for those who read by number or version."""
        if not self._is_kept(self._old.id):
            return
        assert read_texts(self._configure(), self._old.id) == self._shown
        table = DeltaTable(str(self._live / "store/tables/orders"), version=self._old.table_version)
        assert len(table.to_pyarrow_table()) == self._old.rows
        self._call("restore", "orders", str(self._old.id), "--log-position", "skip", refused="SHAPE_OLDER")

    def _as_of(self) -> None:
        """Rows of an instant before the switch are those of the undisturbed log."""
        came = []
        for live in (True, False):
            words = ("snapshot", "as-of", "orders", "--at", "2026-11-02T12:00:00Z")
            self._call(*words, live=live, refused="AS_OF")
            pipeline = self._configure() if live else configure(self._undisturbed, **self._after)
            tags = pipeline.ledger("orders").read().tags
            came.append(read_texts(pipeline, tags[-1].snapshot) if tags else None)
        if came[0] is not None:
            self._note("rows as of an instant")
            assert came[0] == came[1], self.story


WALKED = (
    *("verify", "drill", "savepoint", "truncate", "subsume", "clean", "compact"),
    *("restore", "read_before", "as_of"),
)


def count_naively(made: Plan, one: list[dict[str, Any]], other: list[dict[str, Any]]) -> dict[str, int]:
    """Compares the rows that are valid now by the columns of both keys, as a dict does."""
    sides = []
    texts = {name for row in other for name, value in row.items() if isinstance(value, str)}
    for side in (one, other):
        now = [row for row in side if row.get("_valid_to") is None]
        # A number becomes a text as it is written, so 64.0 is not 64.00.
        keys = [tuple(str(r[n]) if n in texts else normalize(r[n]) for n in made.joined_by) for r in now]
        sides.append(dict(zip(keys, now, strict=True)))
    common = [name for name in one[0] if name in other[0] and not name.startswith("_")] if one and other else []

    def differ(a: dict[str, Any], b: dict[str, Any]) -> bool:
        pairs = [(str(a[n]) if isinstance(b[n], str) and a[n] is not None else a[n], b[n]) for n in common]
        return any((x != y) if isinstance(y, str) else (normalize(x) != normalize(y)) for x, y in pairs)

    both = sides[0].keys() & sides[1].keys()
    counts = {"added": len(sides[1].keys() - both), "removed": len(sides[0].keys() - both)}
    return {**counts, "changed": sum(differ(sides[0][key], sides[1][key]) for key in both)}


def normalize(value: Any) -> Any:
    """A text and a number of the same value are the same."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
