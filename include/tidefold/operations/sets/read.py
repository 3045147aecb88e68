"""Finds which table versions of a set belong together, now and earlier, and rebuilds a set's lost ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidefold.config import SetConfig
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.sets import set_state
from tidefold.domain.sets.set_state import Member, RebuiltSet, SetState, SetVersion
from tidefold.domain.wording import count_noun
from tidefold.errors import GateFailedError, InvalidInputError, NotFoundError, RefusedError, TidefoldError
from tidefold.ledger.evidence import find_set_evidence, list_decisions
from tidefold.operations.ground.outcome import Details, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage.addresses import to_spark

# So many earlier versions are shown to people; programs get all.
SHOWN_VERSIONS = 5


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One table of a set, to be opened at its version.

    address: the table, as Spark, deltalake and Polars open it.
    storage_options: for deltalake and Polars; empty for a local disk.
    """

    log: str
    address: str
    version: int
    storage_options: dict[str, str]


def find_set(pipeline: Pipeline, name: str) -> SetConfig:
    """Returns a configured set. Raises NotFoundError."""
    configured = pipeline.config.sets.get(name)
    if configured is None:
        names = ", ".join(pipeline.config.sets) or "none"
        raise NotFoundError("SET_UNKNOWN", f"`{name}` is not a configured set.", hint=f"Sets: {names}.")
    return configured


def find_version(pipeline: Pipeline, name: str) -> SetVersion:
    """Returns the version of a set that readers use. Raises NotFoundError if the set was never published."""
    version = pipeline.set_ledger(find_set(pipeline, name).name).read().published
    if version is None:
        raise NotFoundError(
            "SET_UNPUBLISHED", f"Set `{name}` has no published version yet.", hint="`tidefold run` makes one."
        )
    return version


def find_member(pipeline: Pipeline, name: str, log: str) -> Member:
    """Returns the snapshot of a log in the published version of a set. Raises InvalidInputError, NotFoundError."""
    if log not in find_set(pipeline, name).logs:
        raise InvalidInputError(
            "SET_MEMBER", f"`{log}` is not in set `{name}`.", hint=f"`tidefold set show {name}` lists its tables."
        )
    member = find_version(pipeline, name).member(log)
    if member is None:
        raise NotFoundError("SET_UNPUBLISHED", f"`{log}` has no rows in set `{name}` yet.", hint="`tidefold run`.")
    return member


@dataclass(frozen=True, slots=True)
class SetDescription:
    """What `tidefold set show` shows of one set: lines for people, values for programs."""

    lines: tuple[str, ...]
    data: dict[str, Any]


def describe_set(pipeline: Pipeline, chosen: SetConfig) -> SetDescription:
    """Describes the published version of a set, and which logs hold its newest point back."""
    state = pipeline.set_ledger(chosen.name).read()
    version, waits = state.published, dict(state.waits or {})
    point = f"position {state.point.position}" if state.point else "no point yet"
    if version is None:
        lines = [f"{chosen.name}: nothing is published; {point}"]
    else:
        restored = f", restored from version {version.restored}" if version.restored else ""
        where = f"version {version.number} at position {version.position}, since {version.instant}"
        lines = [f"{chosen.name}: {where}{restored}"]
        lines += [f"  {m.log}: snapshot {m.snapshot}, version {m.version} of the table" for m in version.members]
    lines += [
        f"  earlier: version {one.number} at position {one.position}, since {one.instant}"
        for one in state.earlier[: -SHOWN_VERSIONS - 1 : -1]
    ]
    if (more := len(state.earlier) - SHOWN_VERSIONS) > 0:
        lines.append(
            f"  and {count_noun(more, 'more earlier version')}: `tidefold set show {chosen.name} --format json`"
        )
    lines += [f"  waits for {log}: {why}" for log, why in waits.items()]
    if state.held:
        command = f"tidefold set release {chosen.name} --snapshot-ended POSITION --by NAME --reason WHY"
        lines.append(f"    if the snapshot of {', '.join(state.held)} has ended: `{command}`")
    lines += [
        f"  the snapshot of {', '.join(one.offsets)} had ended at position {one.position}: {one.by}, {one.why}"
        for one in state.released[: -SHOWN_VERSIONS - 1 : -1]
    ]
    if state.decided:
        lines.append(f"  version {state.decided.number} is decided; the next command publishes the rest of it")
    data = {
        "set": chosen.name,
        "logs": list(chosen.logs),
        "point": state.point.position if state.point else None,
        "waits": waits,
        "released": [asdict(one) for one in state.released],
        "published": asdict(version) if version else None,
        "earlier": [asdict(one) for one in state.earlier],
        "decided": state.decided.number if state.decided else None,
        "tables": {log: asdict(one) for log, one in find_tables(pipeline, chosen.name).items()} if version else {},
    }
    return SetDescription(tuple(lines), data)


def find_tables(pipeline: Pipeline, name: str) -> dict[str, TableVersion]:
    """Returns the tables of a set at the versions that belong together, by log.

    Open each at its version: `DeltaTable(one.address, version=one.version, storage_options=one.storage_options)`.
    """
    store = pipeline.store
    tables = {}
    for one in find_version(pipeline, name).members:
        assert one.version is not None
        address = store.uri(LogPaths(one.log).table)
        tables[one.log] = TableVersion(one.log, address, one.version, store.options())
    return tables


def write_views(pipeline: Pipeline, name: str) -> list[str]:
    """Returns statements of Spark SQL that make the views of a set's published version.

    The views are those of a session. Raises NotFoundError if nothing is published.
    """
    statements = []
    for log, one in find_tables(pipeline, name).items():
        address = to_spark(one.address).replace("`", "``")
        view = f"CREATE OR REPLACE TEMPORARY VIEW `{name}_{log}`"
        statements.append(f"{view} AS SELECT * FROM delta.`{address}` VERSION AS OF {one.version}")
    return statements


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A version of the set whose rows were staged again.

    staged: the snapshots, by log.
    """

    version: SetVersion
    staged: Mapping[str, Snapshot]

    def find_candidate(self, log: str, state: LogState | None, of_set: SetState) -> Snapshot | TidefoldError | None:
        """Returns the snapshot of a log with the rows of the version; None: it has no rows there.

        An error: why the log cannot be published at the point of the version.
        """
        member, staged = self.version.member(log), self.staged.get(log)
        if member is None:
            return None
        if staged:
            return explain_staged(log, staged, of_set) or staged
        if state and has_rows_of(state, member.snapshot):
            return state.latest
        hint = "Repeat the command with the same run id, or abort the other logs."
        return RefusedError("SET_HELD", f"it has no staged snapshot with the rows of `{log}` at that point", hint=hint)


def find_restored_version(
    of_set: SetState, logs: Mapping[str, LogState | None], run_id: str | None
) -> StagedVersion | None:
    """Returns the earlier version whose rows a restore has staged; None: no restored snapshot is staged.

    Raises RefusedError if the restored snapshots belong to no version.
    """
    attempts = {log: state.open_attempt for log, state in logs.items() if state}
    staged = {
        log: one
        for log, one in attempts.items()
        if one and one.state is State.STAGED and run_id in (None, one.run) and one.restored_from is not None
    }
    if not staged:
        return None
    rows = {log: one.restored_from for log, one in staged.items()}
    possible = [version for version in reversed(of_set.versions) if rows.items() <= version.snapshots.items()]
    for version in possible:
        others = (one for one in version.members if one.log not in rows)
        if all((state := logs.get(one.log)) and has_rows_of(state, one.snapshot) for one in others):
            return StagedVersion(version, staged)
    if possible:
        return StagedVersion(possible[0], staged)  # It is held, and the logs that lack its rows are named.
    named = ", ".join(f"`{log}`" for log in sorted(rows))
    raise RefusedError(
        "SET_HELD",
        f"The restored snapshots of {named} are not of one version of set `{of_set.name}`.",
        hint=f"`tidefold restore --set {of_set.name} --version N` restores all its tables.",
    )


def has_rows_of(state: LogState, snapshot: int) -> bool:
    """Whether the newest snapshot of a log is published and is this one, or has its rows again."""
    latest, wanted = state.latest, state.snapshot(snapshot)
    if latest is None or not latest.published or wanted is None:
        return False
    return latest.id == snapshot or (latest.restored_from == snapshot and latest.to_sqn == wanted.to_sqn)


def explain_staged(log: str, staged: Snapshot, of_set: SetState) -> TidefoldError | None:
    """Returns why a staged snapshot cannot be published; None: it can."""
    if Member(log, staged.id) in of_set.given_up:
        return RefusedError("SET_HELD", f"snapshot {staged.id} is being aborted", hint=f"`tidefold status {log}`")
    if staged.verdict is None or not staged.verdict.allows:
        if staged.verdict is None:
            why = f"snapshot {staged.id} has no verdict"
            return GateFailedError("SET_HELD", why, hint=f"`tidefold step quality {log}`")
        why = f"snapshot {staged.id} failed its gate"
        return GateFailedError("SET_HELD", why, hint=f"`tidefold snapshot report {log}` shows why.")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltSetDetails(Details):
    """The rebuilt ledger of a set, or the plan for it.

    `version`, `position`: of the version that readers use; `restored`: the version whose rows it has again; 0: its own.
    `unknown`: what is lost.
    """

    version: int
    position: int
    restored: int
    earlier: Sequence[int]
    unknown: Sequence[str]


def rebuild_set(pipeline: Pipeline, name: str, plan: bool = True) -> Outcome:
    """Rebuilds what the tables prove of the ledger of a set. With `plan` it writes nothing.

    Raises CorruptError if the ledger of a log is behind, or nothing can be proved.
    """
    chosen = find_set(pipeline, name)
    ledger = pipeline.set_ledger(name)
    if ledger.is_current():
        return Outcome(name, Status.NOTHING, "the ledger knows everything that the tables show")
    decisions = [one for log in chosen.logs for one in list_decisions(pipeline.store, log, name)]
    made: list[RebuiltSet] = []

    def make(base: SetState) -> SetState:
        evidence = find_set_evidence(pipeline.store, base, chosen.logs)
        members = {one.log for version in (*decisions, *base.versions) for one in version.members}
        logs = {log: pipeline.ledger(log).find_current() for log in sorted(members)}
        made.append(set_state.rebuild_set(base, decisions, evidence.number, logs))
        return made[-1].state

    published = ledger.rebuild(make, plan).published
    assert published is not None
    details = RebuiltSetDetails(
        version=published.number,
        position=published.position,
        restored=published.restored,
        earlier=[one.number for one in made[-1].state.earlier],
        unknown=list(made[-1].unknown),
    )
    again = f" with the rows of version {published.restored}" if published.restored else ""
    verb = "would rebuild" if plan else "rebuilt"
    message = f"{verb} the ledger: version {published.number}{again} at position {published.position}"
    return Outcome(name, Status.PLANNED if plan else Status.REBUILT, message, details=details)
