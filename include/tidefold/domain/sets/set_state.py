"""The state of a set as one frozen value, its transitions, and what the commits of its tables prove. Pure.

The state decides which snapshots of the logs are published together. A log's own ledger follows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tidefold.domain.log_state import LogState, State
from tidefold.domain.sets.point import SetPoint, SnapshotRelease
from tidefold.errors import CorruptError, OutdatedLedgerError, RefusedError

# So many snapshots are named in the versions that a state remembers.
_KEPT_MEMBERS = 400
_KEPT_RELEASES = 100


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
    point: the whole point.
    restored: the version whose rows it has again; 0: none.
    released: the releases of snapshots by signal that no version before has.
    """

    number: int
    position: int
    transaction: str
    members: tuple[Member, ...]
    point: SetPoint
    run: str = ""
    instant: str = ""
    restored: int = 0
    released: tuple[SnapshotRelease, ...] = ()

    def member(self, log: str) -> Member | None:
        return next((one for one in self.members if one.log == log), None)

    @property
    def snapshots(self) -> Mapping[str, int]:
        """Its snapshots, by log."""
        return {one.log: one.snapshot for one in self.members}


@dataclass(frozen=True, slots=True)
class SetState:
    """Everything that tidefold knows about one set.

    version: counts the stored states; each is one conditional write.
    point: up to where the logs ingest; None: no point is proved yet.
    decided: the version that is decided and perhaps not yet published everywhere; None: nothing is open.
    published: the version that readers use.
    given_up: snapshots that are aborted; no decision may contain them.
    waits: for each log that held the newest point back, the reason.
    behind: for each of these logs, how many transactions it is behind the newest one.
    earlier: versions that readers used before, the newest last. The oldest ones are forgotten.
    held: for each log that the first snapshot by signal holds, the offset at which it begins.
    released: what people said about such snapshots, the newest last. The oldest ones are forgotten.
    """

    name: str
    version: int = 0
    point: SetPoint | None = None
    decided: SetVersion | None = None
    published: SetVersion | None = None
    given_up: tuple[Member, ...] = ()
    waits: Mapping[str, str] | None = None
    earlier: tuple[SetVersion, ...] = ()
    behind: Mapping[str, int] | None = None
    held: Mapping[str, int] | None = None
    released: tuple[SnapshotRelease, ...] = ()

    @property
    def generation(self) -> int:
        """As of a log's state: a set is never dropped."""
        return 0

    @property
    def newest(self) -> SetVersion | None:
        """The newest version that is decided or published."""
        return self.decided or self.published

    @property
    def versions(self) -> tuple[SetVersion, ...]:
        """The versions that readers used or use, the newest last."""
        return (*self.earlier, self.published) if self.published else self.earlier

    @property
    def shown(self) -> Mapping[str, int]:
        """The snapshots of the newest version that is decided or published, by log."""
        return self.newest.snapshots if self.newest else {}


def move_point(
    state: SetState,
    point: SetPoint | None,
    waits: Mapping[str, str],
    behind: Mapping[str, int] | None = None,
    held: Mapping[str, int] | None = None,
) -> SetState:
    """Records the newest proved point, which logs hold it back, by how many transactions, and which by a snapshot."""
    told = replace(state, waits=dict(waits) or None, behind=dict(behind or {}) or None, held=dict(held or {}) or None)
    return replace(told, point=point)


def release_snapshots(state: SetState, position: int, by: str, why: str, instant: str) -> SetState:
    """Records that the snapshot by signal which holds the set had ended at this position. Raises RefusedError."""
    reached = state.point.position if state.point else 0
    if not state.held or position < reached:
        held = f"{position} is before its point {reached}" if state.held else "no snapshot by signal holds it"
        raise RefusedError(
            "SET_RELEASE",
            f"Set `{state.name}` cannot be released: {held}.",
            hint=f"`tidefold set show {state.name}` shows why it waits. Give a position that the source had reached "
            "after the end of the snapshot.",
        )
    release = SnapshotRelease(state.held or {}, position, by, why, instant)
    return replace(state, released=(*state.released, release)[-_KEPT_RELEASES:])


def decide(state: SetState, members: tuple[Member, ...], run: str, instant: str) -> SetState:
    """Decides that these snapshots are published together at the present point; unchanged if they already are."""
    assert state.point is not None
    now = (state.point.position, {one.log: one.snapshot for one in members})
    if state.published and now == (state.published.position, state.shown):
        return state
    point = state.point
    return _decide(state, SetVersion(0, point.position, point.transaction, members, point, run, instant))


def decide_again(state: SetState, earlier: SetVersion, members: tuple[Member, ...], run: str, instant: str) -> SetState:
    """Decides that these snapshots, which have the rows of an earlier version, are published together at its point."""
    return _decide(state, replace(earlier, members=members, run=run, instant=instant, restored=earlier.number))


def _decide(state: SetState, version: SetVersion) -> SetState:
    assert state.decided is None
    given_up = {(one.log, one.snapshot) for one in state.given_up}
    assert not given_up & {(one.log, one.snapshot) for one in version.members}
    # Snapshots that were given up are aborted by now, or older than these: ids rise.
    highest = version.snapshots
    open_ones = tuple(one for one in state.given_up if one.snapshot > highest.get(one.log, 0))
    number = state.published.number + 1 if state.published else 1
    told = [release for one in state.versions for release in one.released]
    new = tuple(release for release in state.released if release not in told)
    return replace(state, decided=replace(version, number=number, released=new), given_up=open_ones)


def record_published(state: SetState, number: int, versions: Mapping[str, int]) -> SetState:
    """Makes a decided version the one that readers use, once all its tables show it."""
    if state.decided is None or state.decided.number != number:
        return state
    members = tuple(replace(one, version=versions[one.log]) for one in state.decided.members)
    earlier = forget_oldest(state.versions)
    return replace(state, decided=None, published=replace(state.decided, members=members), earlier=earlier)


def record_new_table(state: SetState, log: str, snapshot: int) -> SetState:
    """Records that the lost table of a log was made again: its version 0 shows the snapshot."""
    made = Member(log, snapshot, 0)
    published = state.published.members if state.published else ()
    members = tuple(made if (one.log, one.snapshot) == (log, snapshot) else one for one in published)
    return replace(state, published=replace(state.published, members=members)) if state.published else state


def forget_oldest(versions: tuple[SetVersion, ...]) -> tuple[SetVersion, ...]:
    """Returns the newest versions, at least one: the state is written with each change, so it must stay small."""
    most = _KEPT_MEMBERS // max(1, max((len(one.members) for one in versions), default=1))
    return versions[-max(1, most) :]


def give_up(state: SetState, log: str, snapshot: int) -> SetState:
    """Records that a staged snapshot is aborted, so that no later decision contains it."""
    mine = Member(log, snapshot)
    return state if mine in state.given_up else replace(state, given_up=(*state.given_up, mine))


# Each commit that publishes a table of a set contains the whole decision: the snapshots of all its tables, and the
# point.
@dataclass(frozen=True, slots=True, order=True)
class SetMark:
    """A version that the ledger of a set has reached, as recorded beside the published table of a log.

    number: the newest number of a version of the set, then.
    """

    version: int
    number: int
    log: str


@dataclass(frozen=True, slots=True)
class SetEvidence:
    """What the tables show. decision: the newest one in their commits that the ledger may not know; None: none is."""

    decision: SetVersion | None = None
    high_water_marks: tuple[SetMark, ...] = ()

    @property
    def reached(self) -> int:
        """The highest version that the ledger has reached."""
        return max((mark.version for mark in self.high_water_marks), default=0)

    @property
    def number(self) -> int:
        """The highest number that a version of the set was given."""
        numbers = (mark.number for mark in self.high_water_marks)
        return max(self.decision.number if self.decision else 0, *numbers, 0)


def require_set_known(state: SetState, evidence: SetEvidence) -> None:
    """Raises OutdatedLedgerError if the tables show more than the ledger knows: LEDGER_LOST (a new one) or BEHIND."""
    newest, shown = state.newest, evidence.decision
    number = newest.number if newest else 0
    difference = ""
    if shown and shown.number > number:
        difference = f"a table shows version {shown.number}, but the newest that its ledger knows is {number or 'none'}"
    elif shown and newest and shown.number == number and shown.snapshots != newest.snapshots:
        difference = f"a table shows version {number} with other snapshots than its ledger says"
    elif evidence.reached > state.version:
        difference = (
            f"its ledger has reached version {evidence.reached}, but the newest version in the store is "
            f"{state.version or 'none'}"
        )
    if not difference:
        return
    code, what = ("LEDGER_BEHIND", "is older than that") if state.version else ("LEDGER_LOST", "was lost")
    raise OutdatedLedgerError(
        code,
        f"Set `{state.name}`: {difference}. The ledger {what}; nothing was changed.",
        hint=f"Put newer copies of `sets/{state.name}/ledger` and `pages` back, if you have them. Without one, "
        f"`tidefold move rebuild --set {state.name}` makes the ledger again. Readers of a table alone go on.",
    )


def find_wrong_member(version: SetVersion, logs: Mapping[str, LogState | None]) -> str | None:
    """Returns which table of a published version is not what its log's ledger says; None: all are."""
    for one in version.members:
        state = logs.get(one.log)
        snapshot = state.snapshot(one.snapshot) if state else None
        if snapshot is None or snapshot.state is not State.COMPLETED or snapshot.table_version != one.version:
            shown = f"is {snapshot.state} as version {snapshot.table_version}" if snapshot else "is unknown"
            return (
                f"version {version.number} names version {one.version} of the table of `{one.log}` with snapshot "
                f"{one.snapshot}, which {shown} in the ledger of the log"
            )
    return None


@dataclass(frozen=True, slots=True)
class RebuiltSet:
    """The state that the tables prove, and what is lost, for people."""

    state: SetState
    unknown: tuple[str, ...]


def rebuild_set(
    base: SetState, decisions: Collection[SetVersion], highest: int, logs: Mapping[str, LogState | None]
) -> RebuiltSet:
    """Continues a set from `base`, the newest state that is left (empty: none), with all that the tables prove.

    The newest version whose tables are all published becomes the one of readers. If a newer number was given, it gets
    the next one, so that no number names two versions.

    decisions: from the commits of the tables. highest: the highest number that was given.
    Raises CorruptError if no version can be proved.
    """
    numbered = {one.number: one for one in (*decisions, *base.versions)}
    numbered |= {base.decided.number: base.decided} if base.decided else {}
    versions = [version for n in sorted(numbered) if (version := _with_tables(numbered[n], logs))]
    newest = next((one for one in reversed(versions) if find_wrong_member(one, logs) is None), None)
    if newest is None:
        raise CorruptError(
            "SET_UNPROVED",
            f"The ledger of set `{base.name}` cannot be rebuilt: no commit of its tables proves a version whose "
            "snapshots its logs still have.",
            hint=f"Rebuild the ledgers of its logs first, if they are behind. Else move `sets/{base.name}` and "
            f"`tables/*/_delta_log/_tidefold/set-{base.name}-*` away: the set begins again with the next point.",
        )
    releases = [*(r for n in sorted(numbered) for r in numbered[n].released), *base.released]
    top = max(highest, *numbered)
    published = newest if newest.number == top else replace(newest, number=top + 1, restored=newest.number)
    point = max((p for p in (base.point, newest.point) if p), key=lambda p: p.read_to, default=None)
    state = replace(
        base,
        point=point,
        decided=None,
        published=published,
        earlier=forget_oldest(tuple(one for one in versions if one.number < published.number)),
        released=tuple(r for at, r in enumerate(releases) if r not in releases[:at])[-_KEPT_RELEASES:],
        waits=None,
        behind=None,
    )
    since = f" since version {base.version} of its ledger" if base.version else ""
    unknown = [f"releases of snapshots by signal that no version followed{since}"]
    if published is not newest:
        unknown.append(f"versions {newest.number + 1} to {top}: readers get the rows of version {newest.number} again")
    return RebuiltSet(state, tuple(unknown))


def _with_tables(version: SetVersion, logs: Mapping[str, LogState | None]) -> SetVersion | None:
    """Returns a version with the table versions that showed it; None: a log has not published its snapshot."""
    members = []
    for one in version.members:
        state = logs.get(one.log)
        snapshot = state.snapshot(one.snapshot) if state else None
        if snapshot is None or snapshot.table_version is None:
            return None
        members.append(replace(one, version=snapshot.table_version))
    return replace(version, members=tuple(members))
