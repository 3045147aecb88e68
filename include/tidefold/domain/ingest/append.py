"""Appends ingested change sets to a log or rejects them, stops and resumes it, checks its definition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.log_state import ChangeSet, Column, LandedFileRecord, LogState, Position, Stopped, TableSpec
from tidefold.domain.source_progress import NO_POSITION, NameReading, name_partition
from tidefold.domain.uploads import UploadTotals
from tidefold.errors import ConflictError, RefusedError, SupersededError


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """The result of an ingest run for one landed file.

    change_set: None if the file has no change.
    position: the position of its partition after the file.
    more: the change sets after the first one, if parts of the file were read side by side.
    names: how the name of the file was read; None if there is only one way.
    """

    landed: LandedFileRecord
    change_set: ChangeSet | None
    position: Position
    names: NameReading | None = None
    more: tuple[ChangeSet, ...] = ()

    @property
    def change_sets(self) -> tuple[ChangeSet, ...]:
        return (self.change_set, *self.more) if self.change_set else ()

    @property
    def is_numbered(self) -> bool:
        """Whether the number of the file and the row are the place of a change."""
        return self.names is not None and not self.names.has_offsets


@dataclass(frozen=True, slots=True)
class ExpectedPosition:
    """The state of one partition when a run began. The run's results are valid only for this state.

    files: how many files of the partition were ingested. A file without new offsets does not change the position.
    """

    topic: str
    partition: int
    position: Position | None
    files: int


def expect_positions(state: LogState, arrivals: Iterable[IngestedFile]) -> tuple[ExpectedPosition, ...]:
    """The current state of the partitions of these files."""
    partitions = dict.fromkeys((a.landed.topic, a.landed.partition) for a in arrivals)
    return tuple(_expect_position(state, topic, partition) for topic, partition in partitions)


def _expect_position(state: LogState, topic: str, partition: int) -> ExpectedPosition:
    position = next((p for p in state.positions if (p.topic, p.partition) == (topic, partition)), None)
    files = sum((entry.topic, entry.partition) == (topic, partition) for entry in state.landed)
    return ExpectedPosition(topic, partition, position, files)


def append(
    state: LogState,
    arrivals: Sequence[IngestedFile],
    fence: int | None = None,
    rests_on: Sequence[ExpectedPosition] = (),
    uploads: UploadTotals | None = None,
) -> LogState:
    """Appends the files in the given order, and numbers their change sets (sqn) and their records.

    Files that were appended before change nothing. `fence`: the log's fence when the change sets were announced.
    `uploads`: what their uploads cost.

    Raises RefusedError if the log accepts no changes now, SupersededError if the change sets were rejected meanwhile,
    ConflictError if another run took the same offsets, or changed a partition since `rests_on`.
    """
    if is_taken(state, arrivals):
        return state
    require_open(state)
    if fence is not None:
        require_fence(state, fence)
    for stand in rests_on:
        if _expect_position(state, stand.topic, stand.partition) != stand:
            raise ConflictError(
                "OFFSETS_TAKEN",
                f"Another run ingested records of {stand.topic} partition {name_partition(stand.partition)} "
                "at the same time.",
                hint="Nothing was appended. Run ingest again: it continues at the log's positions.",
            )
    state = _append_all(state, arrivals) if arrivals else state
    return replace(state, uploads=(state.uploads or UploadTotals()) + uploads) if uploads else state


def require_open(state: LogState) -> None:
    """Raises RefusedError while the log is stopped, or while an open import determines where the log begins."""
    if state.stopped:
        raise RefusedError(
            "LOG_STOPPED",
            f"Log `{state.log}` was {state.stopped} and accepts no changes.",
            hint=f"`tidefold move resume {state.log}` ends the stop. Files that land meanwhile are ingested then.",
        )
    attempt = state.open_attempt
    if attempt and attempt.reshape:
        raise RefusedError(
            "PLAN_OPEN",
            f"Log `{state.log}` gets another table definition with snapshot {attempt.id} ({attempt.state}).",
            hint=f"`tidefold plan {state.log} --apply` finishes it, `tidefold step abort {state.log}` gives it up. "
            "Landed files stay.",
        )
    if attempt and attempt.external and never_took(state):
        raise RefusedError(
            "IMPORT_OPEN",
            f"Log `{state.log}` starts with an import (snapshot {attempt.id}, {attempt.state}) that is not confirmed.",
            hint=f"Run `tidefold step quality {state.log}` and `tidefold step confirm {state.log}`, or `tidefold step "
            f"abort {state.log}`.",
        )


def never_took(state: LogState) -> bool:
    """Whether nothing was ever appended to the log: an import may still determine where it begins."""
    return not state.landed and not state.change_sets and not state.truncated_to


def require_fence(state: LogState, fence: int) -> None:
    """Raises SupersededError if the change sets that were announced with this fence were rejected."""
    if fence != state.fence:
        raise SupersededError(
            "INTAKE_FENCED",
            f"Change sets of this ingest of `{state.log}` came too late: another run has rejected them.",
        )


def is_taken(state: LogState, arrivals: Sequence[IngestedFile]) -> bool:
    """Whether exactly these files were appended before: the same records, with the same change sets."""
    names = {arrival.landed.name for arrival in arrivals}
    accounts = {(entry.name, entry.length): entry for entry in state.landed if entry.name in names}
    # A change set that has been truncated or compacted cannot be compared.
    sqns = {entry.sqn for entry in accounts.values()}
    places = {c.sqn: c.location for c in state.change_sets if c.sqn in sqns and c.first is None}
    return bool(arrivals) and all(
        (account := accounts.get((arrival.landed.name, arrival.landed.length))) is not None
        and _without_place(account) == _without_place(arrival.landed)
        and (account.sqn is None) == (arrival.change_set is None)
        and (not (c := arrival.change_sets) or places.get(account.sqn or 0, c[-1].location) == c[-1].location)
        for arrival in arrivals
    )


def _without_place(entry: LandedFileRecord) -> LandedFileRecord:
    """Returns the part of a file's record that does not depend on the run that ingests it."""
    return replace(entry, number=0, sqn=None, run="", instant="", stream=NO_POSITION, change_sets=1)


def _append_all(state: LogState, arrivals: Sequence[IngestedFile]) -> LogState:
    """Copies the lists of the state once, because a log may have 100,000 entries and a landing as many files."""
    positions = {(p.topic, p.partition): p for p in state.positions}
    change_sets, landed, last, names = [*state.change_sets], [*state.landed], state.last_sqn, state.names
    first = state.last_file + 1
    for number, arrival in enumerate(arrivals, first):
        position, sqn = arrival.position, None
        _require_next(state, arrival, positions.get((position.topic, position.partition)))
        for one in arrival.change_sets:
            last = sqn = last + 1
            change_set = replace(one, sqn=sqn, schema=state.schema)
            if arrival.is_numbered:
                batch = first if state.shape.orders_by_file and arrival.names is NameReading.ANY else None
                change_set = replace(change_set, file=number, batch=batch)
            change_sets.append(change_set)
        positions[position.topic, position.partition] = position
        count = len(arrival.change_sets) or 1
        landed.append(replace(arrival.landed, sqn=sqn, number=number, stream=position.stream, change_sets=count))
        names = arrival.names or names
    # A segment may be marked as garbage before its writer commits the rest; it is still announced, and stays.
    taken = {change_set.location.segment for arrival in arrivals for change_set in arrival.change_sets}
    return replace(
        state,
        change_sets=tuple(change_sets),
        garbage=tuple(path for path in state.garbage if path not in taken),
        landed=tuple(landed),
        last_file=state.last_file + len(arrivals),
        positions=tuple(positions[place] for place in sorted(positions)),
        names=names,
    )


def _require_next(state: LogState, arrival: IngestedFile, before: Position | None) -> None:
    """Raises RefusedError or ConflictError if a file cannot follow.

    before: the position of its partition.
    """
    landed, position = arrival.landed, arrival.position
    if any(one.key_groups.last >= state.shape.key_groups for one in arrival.change_sets):
        raise RefusedError(
            "KEY_GROUPS_BEYOND",
            f"A change set was written for more key groups than the {state.shape.key_groups} of log `{state.log}`.",
        )
    if before and landed.first_offset < before.next_offset:
        raise ConflictError(
            "OFFSETS_TAKEN",
            f"{position.topic} partition {name_partition(position.partition)}: offsets below {before.next_offset} are "
            f"already ingested, and {landed.name} begins at {landed.first_offset}.",
            hint="Another ingest was faster. Run ingest again: it continues at the log's positions.",
        )


def give_up(state: LogState, fence: int) -> LogState:
    """Rejects permanently the change sets that were announced with this fence and not appended. Writers start again."""
    return replace(state, fence=fence + 1) if state.fence == fence else state


def names(state: LogState) -> frozenset[str]:
    """The segments and quarantine files that the log needs, or has marked as garbage."""
    segments = {change_set.location.segment for change_set in state.change_sets}
    return frozenset(segments | {e.quarantine for e in state.landed if e.quarantine} | set(state.garbage))


def check_shape(state: LogState, shape: TableSpec) -> None:
    """Raises RefusedError for changes of another table definition than the log's (I28).

    The number of buckets may differ, and so may how a source reads values, and what it calls a column.
    """
    if is_empty(state) or _as_stored(shape) == _as_stored(state.shape):
        return
    changed = differences(state.shape, shape, "before", "now")
    raise RefusedError(
        "SHAPE_CHANGED",
        f"The change sets do not match the table definition of log `{state.log}` ({'; '.join(changed)}).",
        hint="Write with the columns of the log. Only the configuration can change them.",
    )


def _as_stored(shape: TableSpec) -> TableSpec:
    columns = tuple(Column(column.name, column.type) for column in shape.columns)
    return replace(shape, columns=columns, buckets=1, ignored=(), reading=None)


def differences(one: TableSpec, other: TableSpec, *named: str) -> list[str]:
    """Returns the differences of two table definitions, as `key: id before, number now`. Ignores the buckets."""
    old, new = _describe(one), _describe(other)
    return [
        f"{name}: {old.get(name, 'none')} {named[0]}, {new.get(name, 'none')} {named[1]}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def is_empty(state: LogState) -> bool:
    """Whether nothing was ever appended or folded: such a log may still get another table definition."""
    return not state.landed and not state.change_sets and not state.snapshots and not state.truncated_to


def with_shape(state: LogState, shape: TableSpec) -> LogState:
    """Returns the log; if it is empty, with the configured table definition."""
    return replace(state, shape=shape) if is_empty(state) and state.shape != shape else state


def _describe(shape: TableSpec) -> dict[str, str]:
    parts = {"key": ", ".join(shape.key), "order": ", ".join(shape.order_by) or shape.order}
    parts |= {"key_groups": str(shape.key_groups), "merge": _merging(shape)}
    written = {column.name: f" as {column.encoding}" if column.encoding else "" for column in shape.columns}
    parts |= {f"column `{column.name}`": column.type + written[column.name] for column in shape.columns}
    return {**parts, "column order": ", ".join(column.name for column in shape.columns)}


def _merging(shape: TableSpec) -> str:
    merge = shape.merge
    groups = (f"{', '.join(g.columns)} by {', '.join(g.order) or 'place'}" for g in merge.groups)
    functions = (f"{name} {function}" for name, function in merge.aggregates)
    return "; ".join([merge.engine, f"deletes {merge.deletes}", *groups, *functions])


def stop(state: LogState, stopped: Stopped) -> LogState:
    """Stops the log. Raises RefusedError if it is already stopped for a savepoint at another address."""
    before = state.stopped
    if before is None:
        return replace(state, stopped=stopped)
    if before.address != stopped.address:
        what = f"for a savepoint at {before.address}" if before.address else f"({before.why})"
        finish = "Give that address to finish the savepoint, or run" if before.address else "Run"
        raise RefusedError(
            "LOG_STOPPED",
            f"{before.by} stopped log `{state.log}` {what}.",
            hint=f"{finish} `tidefold move resume {state.log}` first.",
        )
    return state  # The same run calls again.


def resume(state: LogState) -> LogState:
    """Lets the log accept changes again."""
    return replace(state, stopped=None) if state.stopped else state
