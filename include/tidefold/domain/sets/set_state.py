"""The state of a set as one frozen value, and its transitions. Pure.

The state decides which snapshots of the logs are published together. A log's own ledger follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidefold.domain.sets.point import SetPoint

# So many snapshots are named in the versions that a state remembers.
_KEPT_MEMBERS = 400


@dataclass(frozen=True, slots=True)
class Member:
    """A snapshot of a log of the set. version: the table version that shows it; None: not published yet."""

    log: str
    snapshot: int
    version: int | None = None


@dataclass(frozen=True, slots=True)
class SetVersion:
    """Snapshots of all logs at one point.

    number: counts the versions of the set, from 1.
    position, transaction: the point, as in SetPoint.
    members: one for each log that has rows; a log without any change has none.
    run, instant: the run that decided, and when (ISO 8601), for people.
    point: the whole point, from which a set that imports this version continues; None: an older version of tidefold.
    restored: the version whose rows it has again; 0: none.
    """

    number: int
    position: int
    transaction: str
    members: tuple[Member, ...]
    run: str = ""
    instant: str = ""
    point: SetPoint | None = None
    restored: int = 0

    def member(self, log: str) -> Member | None:
        return next((one for one in self.members if one.log == log), None)


@dataclass(frozen=True, slots=True)
class PastVersion:
    """Snapshots of all logs with the changes that the source had committed before an instant.

    at: the instant, in microseconds since 1970 UTC.
    position: up to where the set had ingested. Later changes can be from before the instant too.
    members: one for each log that had rows.
    run, instant: the run that recorded it, and when (ISO 8601), for people.
    """

    at: int
    position: int
    members: tuple[Member, ...]
    run: str = ""
    instant: str = ""


@dataclass(frozen=True, slots=True)
class SetState:
    """Everything that tidefold knows about one set.

    version: counts the stored states; each is one conditional write.
    writer: a random text of the process that wrote it.
    point: up to where the logs ingest; None: no point is proved yet.
    decided: the version that is decided and perhaps not yet published everywhere; None: nothing is open.
    published: the version that readers use.
    given_up: snapshots that are aborted; no decision may contain them.
    waits: for each log that held the newest point back, the reason.
    behind: for each of these logs, how many transactions it is behind the newest one.
    past: versions as of an instant; they are never published.
    earlier: versions that readers used before, the newest last. The oldest ones are forgotten.
    """

    name: str
    version: int = 0
    writer: str = ""
    point: SetPoint | None = None
    decided: SetVersion | None = None
    published: SetVersion | None = None
    given_up: tuple[Member, ...] = ()
    waits: Mapping[str, str] | None = None
    earlier: tuple[SetVersion, ...] = ()
    behind: Mapping[str, int] | None = None
    past: tuple[PastVersion, ...] = ()

    @property
    def versions(self) -> tuple[SetVersion, ...]:
        """The versions that readers used or use, the newest last."""
        return (*self.earlier, self.published) if self.published else self.earlier

    @property
    def shown(self) -> Mapping[str, int]:
        """The snapshots of the newest version that is decided or published, by log."""
        newest = self.decided or self.published
        return {one.log: one.snapshot for one in newest.members} if newest else {}


def move_point(
    state: SetState, point: SetPoint | None, waits: Mapping[str, str], behind: Mapping[str, int] | None = None
) -> SetState:
    """Records the newest proved point, which logs hold it back, and by how many transactions."""
    return replace(state, point=point, waits=dict(waits) or None, behind=dict(behind or {}) or None)


def decide(state: SetState, members: tuple[Member, ...], run: str, instant: str) -> SetState:
    """Decides that these snapshots are published together at the present point; unchanged if they already are."""
    assert state.point is not None
    now = (state.point.position, {one.log: one.snapshot for one in members})
    if state.published and now == (state.published.position, state.shown):
        return state
    point = state.point
    return _decide(state, SetVersion(0, point.position, point.transaction, members, run, instant, point))


def decide_again(
    state: SetState, wanted: SetVersion, members: tuple[Member, ...], run: str, instant: str, *, is_import: bool = False
) -> SetState:
    """Decides that these snapshots, which have the rows of another version, are published together at its point.

    wanted: an earlier version of the set. With `is_import` it is a version of another store, and the set continues
        from its point.
    """
    of_store = 0 if is_import else wanted.number
    version = replace(wanted, members=members, run=run, instant=instant, restored=of_store)
    return _decide(replace(state, point=wanted.point, waits=None, behind=None) if is_import else state, version)


def _decide(state: SetState, version: SetVersion) -> SetState:
    assert state.decided is None
    given_up = {(one.log, one.snapshot) for one in state.given_up}
    assert not given_up & {(one.log, one.snapshot) for one in version.members}
    # Snapshots that were given up are aborted by now, or older than these: ids rise.
    highest = {one.log: one.snapshot for one in version.members}
    open_ones = tuple(one for one in state.given_up if one.snapshot > highest.get(one.log, 0))
    number = state.published.number + 1 if state.published else 1
    return replace(state, decided=replace(version, number=number), given_up=open_ones)


def record_published(state: SetState, number: int, versions: Mapping[str, int]) -> SetState:
    """Makes a decided version the one that readers use, once all its tables show it."""
    if state.decided is None or state.decided.number != number:
        return state
    members = tuple(replace(one, version=versions[one.log]) for one in state.decided.members)
    earlier = _forget_oldest(state.versions)
    return replace(state, decided=None, published=replace(state.decided, members=members), earlier=earlier)


def _forget_oldest(versions: tuple[SetVersion, ...]) -> tuple[SetVersion, ...]:
    """Returns the newest versions, at least one: the state is written with each change, so it must stay small."""
    most = _KEPT_MEMBERS // max(1, max((len(one.members) for one in versions), default=1))
    return versions[-max(1, most) :]


def give_up(state: SetState, log: str, snapshot: int) -> SetState:
    """Records that a staged snapshot is aborted, so that no later decision contains it."""
    mine = Member(log, snapshot)
    return state if mine in state.given_up else replace(state, given_up=(*state.given_up, mine))


def record_past(state: SetState, version: PastVersion) -> SetState:
    """Records the version as of an instant; unchanged if the same snapshots are recorded for it."""
    before = next((one for one in state.past if one.at == version.at), None)
    if before and before.members == version.members:
        return state
    others = tuple(one for one in state.past if one.at != version.at)
    most = max(1, _KEPT_MEMBERS // max(1, len(version.members)))
    return replace(state, past=(*others, version)[-most:])
