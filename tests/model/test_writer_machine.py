"""One writer against a naive list: any order of calls, uploads that fail, closes. Requirements C1, C5; promise I22."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.effort import choose
from support.writing import SHAPE, BreakingStore, ManualExecutor, make_changelog, paths, rows
from tidefold.changelog import write_intents
from tidefold.changelog.reader import ChangelogReader
from tidefold.changelog.writer.pending_change_sets import Persisted
from tidefold.errors import InvalidInputError, RefusedError, StorageError
from tidefold.ledger import Ledger

WAITING, SENDING, UPLOADED, CONFIRMED, GONE = "waiting", "sending", "uploaded", "confirmed", "gone"


class OneWriter(RuleBasedStateMachine):
    """`stages` and `contents` are the model: a list of change sets by number, and what is in each."""

    @initialize()
    def begin(self) -> None:
        self.store = BreakingStore(below="changelog/2")  # Not the intents.
        self.local = BreakingStore()
        self.ledger: list[list[int]] = []
        self.next_id = 0
        self.open()

    def open(self) -> None:
        self.executor = ManualExecutor()
        self.changelog = make_changelog(self.store, executor=self.executor, local=self.local)
        self.writer = self.changelog.log("a", SHAPE)
        self.active: list[int] = []
        self.contents: list[list[int]] = []
        self.stages: list[str] = []
        self.batches: list[list[int]] = []
        self.futures: list[tuple[int, int, Future[Persisted]]] = []

    def roll_over(self) -> None:
        if self.active:
            self.contents.append(self.active)
            self.stages.append(WAITING)
            self.active = []

    @rule(count=st.integers(0, 3))
    def append(self, count: int) -> None:
        new = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        assert self.writer.append(rows(*new)) == len(self.stages)
        self.active += new

    @rule()
    def ask(self) -> None:
        self.roll_over()
        assert self.writer.next_sqn == len(self.stages)

    @rule(data=st.data())
    def persist(self, data: st.DataObject) -> None:
        frm = data.draw(st.integers(0, len(self.stages) + 1))
        self.roll_over()
        if GONE in self.stages[frm:] or frm > len(self.stages):
            with pytest.raises(InvalidInputError):
                self.writer.persist(frm)
            return
        self.futures.append((frm, len(self.stages), self.writer.persist(frm)))
        waiting = [sqn for sqn in range(frm, len(self.stages)) if self.stages[sqn] == WAITING]
        for sqn in waiting:
            self.stages[sqn] = SENDING
        if waiting:
            self.batches.append(waiting)

    @rule(failures=st.integers(0, 2), at=st.sampled_from(["open", "write", "close"]))
    def upload(self, failures: int, at: str) -> None:
        self.store.breaks(at, times=failures)
        self.executor.run()
        self.store.breaks("nothing")
        failed: set[int] = set()
        for number, batch in enumerate(self.batches):
            for sqn in batch:
                if number < failures:
                    failed.add(sqn)
                if self.stages[sqn] == SENDING:
                    self.stages[sqn] = WAITING if number < failures else UPLOADED
        self.batches = []
        for frm, to, future in self.futures:
            self.check_answer(future, set(range(frm, to)), failed)
        self.futures = []

    def check_answer(self, future: Future[Persisted], asked: set[int], failed: set[int]) -> None:
        error = future.exception(0)
        if error is None:
            assert {one.place for one in future.result().change_sets} == {self.place(sqn) for sqn in asked}
            assert not asked & failed
        elif isinstance(error, StorageError):
            assert asked & failed
        else:
            assert isinstance(error, InvalidInputError)
            assert any(self.stages[sqn] == GONE for sqn in asked)

    def place(self, sqn: int) -> int:
        return sum(len(part) for part in self.contents[:sqn]) + self.base

    @property
    def base(self) -> int:
        """The offset at which this opening began."""
        return self.writer.offset - len(self.active) - sum(len(part) for part in self.contents)

    @rule(data=st.data(), snapshot=st.integers(1, 5))
    def confirm(self, data: st.DataObject, snapshot: int) -> None:
        frm = data.draw(st.integers(0, len(self.stages)))
        to = data.draw(st.integers(frm, len(self.stages)))
        gap = any(stage not in (CONFIRMED, GONE) for stage in self.stages[:frm])
        early = any(stage in (WAITING, SENDING) for stage in self.stages[frm:to])
        if gap or early:
            with pytest.raises(RefusedError):
                self.writer.confirm(frm, to, snapshot)
            return
        self.writer.confirm(frm, to, snapshot)
        for sqn in range(frm, to):
            if self.stages[sqn] == UPLOADED:
                self.stages[sqn] = CONFIRMED
                self.ledger.append(self.contents[sqn])

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, len(self.stages)))
        self.roll_over()
        self.writer.truncate(to)
        self.stages[:to] = [GONE] * to

    @rule(snapshot=st.integers(1, 5))
    def reset(self, snapshot: int) -> None:
        self.writer.reset(0, len(self.stages), snapshot)

    @rule(snapshot=st.integers(1, 5))
    def subsume(self, snapshot: int) -> None:
        self.writer.subsume(snapshot)

    @rule(tail=st.booleans())
    def close_and_reopen(self, tail: bool) -> None:
        if tail:
            self.writer.truncate_and_close(0)
        else:
            self.writer.close()
        self.executor.run()
        self.open()

    @rule()
    def die_and_reopen(self) -> None:
        """A killed process takes what it knew with it; the change sets in the ledger are there."""
        for path in self.unnamed():
            self.store.delete([path])  # The recovery's work: what an intent names and no ledger.
        for one in list(write_intents.read_announced(self.store)):
            write_intents.end(self.store, one.run)
        self.open()

    def unnamed(self) -> set[str]:
        state = Ledger(self.store, "a").find()
        named = {one.location.segment for one in state.change_sets} if state else set()
        return set(paths(self.store)) - named

    @invariant()
    def the_log_holds_what_was_confirmed(self) -> None:
        if self.ledger:
            read = [sorted(table["id"].to_pylist()) for table in ChangelogReader(self.store, "a").tables()]
            assert read == self.ledger

    @invariant()
    def nothing_unneeded_stays(self) -> None:
        """I22: when the executor is idle, a segment is in the ledger or holds something that is not yet confirmed."""
        if not self.executor.work:
            if UPLOADED not in self.stages:
                assert self.unnamed() == set()
                assert list(write_intents.read_announced(self.store)) == []
            assert len(list(write_intents.read_announced(self.store))) >= len(self.unnamed())


TestOneWriter = OneWriter.TestCase
TestOneWriter.settings = settings(max_examples=choose(50, 150), stateful_step_count=40, deadline=None)
