"""What must be true of a log, told from its history as plain dicts: every version of its ledger is checked against it.

The oracle never looks at the ranges that the program chose. It knows what every change set holds, and of every
snapshot which rows it must have and up to where in the log it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tidefold.domain.log_state import ChangeSet, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.snapshot.claim import Claim

# What one change set holds, or a snapshot: None stands for a deletion.
Changes = Mapping[int, str | None]
Place = tuple[str, int]
CONFIRMED = (State.COMPLETED, State.SUBSUMED, State.DELETED)
_NEXT = {
    (State.ONGOING, State.STAGED),
    (State.ONGOING, State.ABORTED),
    (State.STAGED, State.ABORTED),
    (State.STAGED, State.COMPLETED),
    (State.COMPLETED, State.SUBSUMED),
    (State.SUBSUMED, State.DELETED),
}


def tails(state: LogState) -> list[Snapshot]:
    return [s for s in state.snapshots if s.kind is SnapshotKind.TAIL and s.state is State.COMPLETED]


def folded(rows: Changes, change_sets: Iterable[Changes]) -> dict[int, str]:
    """The rows after some change sets."""
    after = dict(rows)
    for changes in change_sets:
        after.update(changes)
    return {key: value for key, value in after.items() if value is not None}


@dataclass(frozen=True)
class Expected:
    """The rows that a snapshot must have, the last change set that its successor must not fold again, and all that it
    is made of.
    """

    rows: dict[int, str]
    position: int
    sqns: tuple[int, ...] = ()


# What is known of a snapshot once it is staged.
STAGED = ("manifest", "rows", "files", "bytes_full", "bytes_written", "bytes_read", "buckets")


@dataclass
class Oracle:
    """One log. `written` says what was written where, and for which log; `takings` what is brought together; `asked`
    who asked for a snapshot, and how.
    """

    log: str
    written: dict[Place, tuple[str, Changes]]
    takings: list[tuple[Place, ...]]
    asked: list[Claim]
    keep: int | None
    grace: int
    effects: Counter[str]
    history: dict[int, Changes] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    expected: dict[int, Expected] = field(default_factory=dict)
    confirmed: list[int] = field(default_factory=list)
    taken: set[Place] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    state: LogState | None = None

    @property
    def position(self) -> int:
        """Where the next fold begins."""
        return self.expected[self.confirmed[-1]].position if self.confirmed else 0

    def between(self, after: int, to: int) -> list[Changes]:
        return [self.history[sqn] for sqn in range(after + 1, to + 1)]

    def observe(self, new: LogState) -> None:
        """Checks the step to the next version, and learns from it."""
        old = self.state or LogState(new.log, new.shape)
        assert new.version == old.version + 1
        assert new.fence >= old.fence
        self._change_sets(old, new)
        self._offsets(old, new)
        self._garbage(old, new)
        self._snapshots(old, new)
        self.state = new

    def _change_sets(self, old: LogState, new: LogState) -> None:
        assert new.truncated_to >= old.truncated_to
        before = set(old.change_sets)
        for one in new.change_sets:
            if one in before:
                continue
            if one.sqn > old.last_sqn:
                self._append(one)
            else:
                self._squash(one, old, new)
        kept = set(new.change_sets)
        squashes = [c for c in new.change_sets if c not in before and c.first is not None]
        for one in before - kept:
            inside = any(c.begin <= one.begin and one.sqn <= c.sqn for c in squashes)
            assert inside or one.sqn <= new.truncated_to
        begins = [c.begin for c in new.change_sets]
        assert begins == [end + 1 for end in (new.truncated_to, *(c.sqn for c in new.change_sets))][: len(begins)]
        assert all(bool(set(t) & self.taken) == (set(t) <= self.taken) for t in self.takings)
        if new.truncated_to > old.truncated_to:
            self.effects["the log was cut"] += 1

    def _offsets(self, old: LogState, new: LogState) -> None:
        """Each offset of a partition is taken once, in order."""
        assert new.landed[: len(old.landed)] == old.landed
        ends = {(p.topic, p.partition): p.next_offset for p in old.positions}
        for entry in new.landed[len(old.landed) :]:
            partition = (entry.topic, entry.partition)
            assert entry.first_offset >= ends.get(partition, 0), "an offset was taken twice"
            ends[partition] = entry.next_offset
        assert ends == {(p.topic, p.partition): p.next_offset for p in new.positions}

    def _append(self, one: ChangeSet) -> None:
        place = (one.location.segment, one.location.ordinal)
        log, changes = self.written[place]
        assert log == self.log
        assert place not in self.taken, "taken twice"
        assert one.sqn == max(self.history, default=0) + 1
        assert one.location.segment not in self.forgotten
        self.taken.add(place)
        self.history[one.sqn] = changes
        assert one.times
        self.committed[one.sqn] = one.times.first or 0

    def _squash(self, one: ChangeSet, old: LogState, new: LogState) -> None:
        assert not (new.open_attempt and new.open_attempt.state is State.ONGOING)
        assert not any(s.open for s in new.snapshots if s.as_of)
        at = [self.committed[sqn] for sqn in range(one.begin, one.sqn + 1)]
        assert one.times
        assert (one.times.first, one.times.last) == (min(at), max(at))
        run = [c for c in old.change_sets if one.begin <= c.begin and c.sqn <= one.sqn]
        assert (run[0].begin, run[-1].sqn) == (one.begin, one.sqn)
        merged: dict[int, str | None] = {}
        for changes in self.between(one.begin - 1, one.sqn):
            merged.update(changes)
        assert self.written[one.location.segment, one.location.ordinal] == (self.log, merged)
        assert one.begin > self.position
        ends = {self.expected[s.id].position for s in new.snapshots if s.state is State.COMPLETED and not s.as_of}
        ends |= {self.expected[s.id].position for s in new.snapshots if s.open}
        ends |= {consumer.sqn for consumer in new.consumers}
        assert not any(one.begin <= end < one.sqn for end in ends), "somebody ends in between"
        self.effects["change sets were squashed"] += 1

    def _garbage(self, old: LogState, new: LogState) -> None:
        named = {c.location.segment for c in new.change_sets}
        assert not named & set(new.garbage)
        assert len(set(new.garbage)) == len(new.garbage)
        left = {c.location.segment for c in old.change_sets} - named
        assert left <= set(new.garbage)
        self.forgotten |= set(old.garbage) - set(new.garbage) - named
        assert not named & self.forgotten, "what was marked came back"

    def _snapshots(self, old: LogState, new: LogState) -> None:
        known = {s.id: s for s in old.snapshots}
        assert [s.id for s in new.snapshots] == sorted({s.id for s in new.snapshots})
        for one in new.snapshots:
            before = known.pop(one.id, None)
            if before is None:
                self._begin(one, old, new)
            elif before != one:
                self._change(before, one, old, new)
        assert not known, "a snapshot vanished"

    def _begin(self, one: Snapshot, old: LogState, new: LogState) -> None:
        assert one.id > max((s.id for s in old.snapshots), default=0)
        if one.as_of:
            self._begin_as_of(one, one.as_of.at, old, new)
            return
        assert one.base == (self.confirmed[-1] if self.confirmed else None), "its base is not the newest (I14)"
        if one.kind is SnapshotKind.TAIL:
            assert (one.state, new.epoch, one.from_sqn) == (State.COMPLETED, old.epoch, self.position)
            self.expected[one.id] = self._onto_newest(old)
            self.effects["a tail was taken"] += 1
        else:
            assert (one.state, one.epoch, new.epoch) == (State.ONGOING, old.epoch + 1, old.epoch + 1)
            assert not any(s.open for s in new.snapshots if s.id != one.id and not s.as_of)
            assert all(s.published for s in old.snapshots if s.id == one.base)
            self.expected[one.id] = self._wanted(one, old)
            if old.open_attempt and old.open_attempt.run != one.run:
                self._claimed_over(one, old.open_attempt)
        assert one.to_sqn == self.expected[one.id].position
        if one.kind is SnapshotKind.FULL and not one.request.startswith("restore"):
            assert one.from_sqn == self.position, "ranges do not touch (I7)"

    def _begin_as_of(self, one: Snapshot, at: int, old: LogState, new: LogState) -> None:
        """Beside all others: made of whatever the next snapshot would be made of and was committed early enough."""
        assert (one.state, one.epoch, new.epoch) == (State.ONGOING, old.epoch + 1, old.epoch + 1)
        assert not any(s.open for s in new.snapshots if s.as_of == one.as_of and s.id != one.id)
        assert [t for t in old.tags if t.name == one.as_of.tag] == [] if one.as_of else True
        sqns = tuple(sqn for sqn in self._onto_newest(old).sqns if self.committed[sqn] < at)
        assert sqns, "a snapshot of nothing"
        self.expected[one.id] = Expected(folded({}, [self.history[sqn] for sqn in sqns]), old.last_sqn, sqns)
        base = old.snapshot(one.base) if one.base else None
        assert base is None or (base.state is State.COMPLETED and not base.as_of and base.kind is SnapshotKind.FULL)
        assert one.to_sqn == old.last_sqn
        on_newest = base is not None and self.confirmed and base.id == self.confirmed[-1]
        self.effects[
            f"as of an instant, from {'the newest' if on_newest else 'an older one' if base else 'nothing'}"
        ] += 1

    def _claimed_over(self, one: Snapshot, attempt: Snapshot) -> None:
        asked = [a for a in self.asked if (a.run, a.request) == (one.run, one.request)]
        stalled = any(a.stalled and a.stalled.attempt == attempt for a in asked)
        assert stalled or any(a.takeover for a in asked), "an attempt was claimed over without being asked to"
        self.effects["a stalled attempt was claimed over" if stalled else "takeover"] += 1

    def _onto_newest(self, old: LogState) -> Expected:
        below = self.expected[self.confirmed[-1]] if self.confirmed else Expected({}, 0)
        sqns = (*below.sqns, *range(self.position + 1, old.last_sqn + 1))
        return Expected(folded(below.rows, self.between(self.position, old.last_sqn)), old.last_sqn, sqns)

    def _wanted(self, one: Snapshot, old: LogState) -> Expected:
        """What was asked for is in the request: `fold`, or `restore:<id>:<mode>`."""
        if one.request == "fold":
            return self._onto_newest(old)
        _, wanted, mode = one.request.split(":")
        source = old.snapshot(int(wanted))
        assert source
        assert source.state is State.COMPLETED
        found = self.expected[source.id]
        if mode == "skip":
            return Expected(found.rows, old.last_sqn, found.sqns)
        assert not source.as_of, "there is no place from which to replay"
        if mode == "carry" and source.kind is SnapshotKind.TAIL:
            found = self.expected[source.base or 0]
        assert found.position >= old.truncated_to, "what is to be replayed was cut"
        return found

    def _change(self, before: Snapshot, one: Snapshot, old: LogState, new: LogState) -> None:
        fixed = replace(
            one,
            state=before.state,
            abort_reason=before.abort_reason,
            verdict=before.verdict,
            table_version=before.table_version,
            published_at=before.published_at,
            **{name: getattr(before, name) for name in STAGED},
        )
        assert fixed == before
        assert one.state is before.state or (before.state, one.state) in _NEXT
        if one.manifest != before.manifest:
            assert (before.state, one.state) == (State.ONGOING, State.STAGED)
            assert one.as_of or not any(s.epoch > one.epoch for s in new.snapshots if s.in_main_lineage)
        if one.verdict != before.verdict:
            assert before.state is one.state is State.STAGED
        if one.table_version != before.table_version:
            assert not before.published
            assert one.state is State.COMPLETED
            assert one.kind is SnapshotKind.FULL
            assert not one.as_of
        if one.state is not before.state:
            self._moved(before, one, old, new)

    def _moved(self, before: Snapshot, one: Snapshot, old: LogState, new: LogState) -> None:
        if one.state is State.COMPLETED:
            self._confirm(one, old, new)
        elif one.state is State.SUBSUMED:
            assert one.id not in self._needed(old, new), "a protected one was retired (I18)"
            self.effects[f"a {one.kind} snapshot was retired"] += 1
        elif one.state is State.DELETED:
            assert one.kind is SnapshotKind.TAIL or one.as_of or not self.readable(before, old), (
                "a plain reader may still read its files"
            )
        elif one.state is State.ABORTED:
            assert before.id not in self.confirmed
            self.effects[f"an attempt was aborted as {before.state}"] += 1

    def _confirm(self, one: Snapshot, old: LogState, new: LogState) -> None:
        assert one.verdict
        assert one.verdict.passed or one.verdict.override_by
        assert one.verdict.manifest == one.manifest
        if one.as_of:
            assert (one.as_of.tag, one.id) in [(t.name, t.snapshot) for t in new.tags]
            self.effects["confirmed: as of an instant"] += 1
            return
        assert not any(s.epoch > one.epoch for s in new.snapshots if s.in_main_lineage)
        assert one.base == (self.confirmed[-1] if self.confirmed else None)
        assert all(s.published for s in old.snapshots if s.id in self.confirmed)
        self.confirmed.append(one.id)
        what = one.request.split(":")[-1]
        source = one.request.split(":")[1] if ":" in one.request else ""
        if source:
            restored = new.snapshot(int(source))
            assert restored
            what = f"{'as-of' if restored.as_of else restored.kind} snapshot by {what}"
        self.effects[f"confirmed: {what}{'' if one.verdict.passed else ' with an override'}"] += 1

    def _needed(self, old: LogState, new: LogState) -> set[int]:
        """What may not be retired, whatever retention is asked for."""
        kept = {t.snapshot for t in old.tags} | {h.snapshot for h in old.holds} | set(self.newest(old))
        kept |= {s.id for s in old.snapshots if s.kind is SnapshotKind.TAIL and s.base in self.newest(old)}
        kept |= {s.base or 0 for s in tails(new)} | {s.base or 0 for s in old.snapshots if s.open and s.as_of}
        if old.open_attempt:
            restored = self._restored_by(old.open_attempt, old)
            kept |= {old.open_attempt.base or 0}
            kept |= {(restored.base or 0) if restored.kind is SnapshotKind.TAIL else restored.id} if restored else set()
        return kept

    def readable(self, one: Snapshot, state: LogState) -> bool:
        """Whether its files must be beside the table's: it is kept, or was replaced only a few publications ago."""
        shown = [s.id for s in state.snapshots if s.published]
        recent = one.id in shown and len(shown[shown.index(one.id) + 1 :]) < self.grace
        return one.state is State.COMPLETED or (one.state is State.SUBSUMED and recent)

    def _restored_by(self, one: Snapshot, state: LogState) -> Snapshot | None:
        return state.snapshot(int(one.request.split(":")[1])) if ":" in one.request else None

    def newest(self, state: LogState) -> list[int]:
        """The newest snapshots with files that retention promises: at least one."""
        still = [s.id for s in state.snapshots if s.id in self.confirmed and s.state is State.COMPLETED]
        return still if self.keep is None else still[-self.keep :]

    def cut_allowed_to(self, state: LogState) -> int:
        """The log after this must be there: for replays, tails, holds, consumers and the attempt (I9)."""
        ends = [self.expected[i].position for i in self.newest(state)]
        ends += [self.position, *(consumer.sqn for consumer in state.consumers)]
        ends += [self._begin_of(s) for s in tails(state)]
        ends += [self._begin_of(s) for s in state.snapshots if s.id in {h.snapshot for h in state.holds}]
        ends += [self.expected[s.base].position if s.base else 0 for s in state.snapshots if s.open and s.as_of]
        if state.open_attempt:
            ends.append(self.expected[state.open_attempt.id].position)
            restored = self._restored_by(state.open_attempt, state)
            if restored and restored.kind is SnapshotKind.TAIL:
                ends.append(self._begin_of(restored))
        return min(ends)

    def _begin_of(self, snapshot: Snapshot) -> int:
        """Up to where the log is in the snapshot's files."""
        return self.expected[(snapshot.base or 0) if snapshot.kind is SnapshotKind.TAIL else snapshot.id].position

    def check(self) -> None:
        """What must be true of the newest version at any moment."""
        state = self.state
        if state is None:
            return
        ever = [s.id for s in state.snapshots if s.kind is SnapshotKind.FULL and s.state in CONFIRMED and not s.as_of]
        assert ever == self.confirmed == sorted(self.confirmed), "I3"
        epochs = [s.epoch for s in state.snapshots if s.id in ever]
        assert all(one < other for one, other in pairwise(epochs)), "I3"
        assert (state.latest.id if state.latest else None) == (ever[-1] if ever else None)
        opened = [s for s in state.snapshots if s.open and not s.as_of]
        assert len(opened) <= 1
        assert all(s.epoch >= other.epoch for s in opened for other in state.snapshots if other.in_main_lineage)
        named = {t.snapshot for t in state.tags} | {h.snapshot for h in state.holds}
        assert all(s.state is State.COMPLETED for s in state.snapshots if s.id in named)
        if state.truncated_to:
            assert state.truncated_to <= self.cut_allowed_to(state), "I9"
