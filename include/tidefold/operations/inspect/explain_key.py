"""Explains the row of a key: the change that made it, and the outcome of the other changes.

Reads only the table files of the key's bucket, and only the batches of the log that may contain its key group. The
texts for people are in `domain/explain/texts.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidefold.changelog.schema import CLEAR, DELETE, MERGE, UPSERT, number_of, order_columns, place_columns
from tidefold.domain.commit_times import iso_instant
from tidefold.domain.explain.key_history import (
    ChangeOutcome,
    ExplainedChange,
    KeyChange,
    KeyHistory,
    RowAgreement,
    explain,
    layers,
    standing,
    unknown,
)
from tidefold.domain.explain.texts import REMARKS, format_order, why
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet, LandedFileRecord, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.snapshot.transitions import require_readable
from tidefold.domain.source_progress import name_partition
from tidefold.domain.table.table_spec import Engine, Group
from tidefold.errors import CorruptError, NotFoundError, RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, find_published, one_key, plan_from, require_state
from tidefold.operations.inspect.find_record import RecordFinder
from tidefold.operations.quarantine.inspect import SEARCHED, RefusedRecord, find_refused_of, find_refused_with
from tidefold.read.plan import ReadPlan, ReadTask
from tidefold.read.task import SQN, read_task

OPS = {UPSERT: "upsert", DELETE: "delete", CLEAR: "clear", MERGE: "merge"}
ShownRow = dict[str, Any]
# So many refused records, or files of them, are named.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """One change of the key, with its origin and its outcome.

    first: the lowest sqn of the change sets that its change set replaces.
    landed, ingest_run, taken: the landed file, the run that ingested it, and when (ISO 8601).
    record: its place in that file, such as `line 3`, or why the file does not show it any more; empty: not known.
    at: its order as text; instants in ISO 8601.
    snapshot, run: the snapshot and run that folded it, or left it out.
    why: its outcome, for people.
    """

    op: str
    fate: ChangeOutcome
    why: str
    order: tuple[int, ...]
    topic: str | None
    partition: int
    offset: int
    committed: str | None
    sqn: int
    first: int
    segment: str
    ordinal: int
    landed: str | None
    ingest_run: str | None
    taken: str | None
    snapshot: int | None
    run: str | None
    values: ShownRow
    record: str = ""
    at: str = ""

    is_numbered: bool = False

    @property
    def source(self) -> str:
        """Returns its place in the source: in a partition, or in a file that the log numbered."""
        if self.is_numbered:
            return f"file {self.partition} row {self.offset}"
        return f"{self.topic or 'partition'} {name_partition(self.partition)} offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Kept:
    """The row of the key in a retained snapshot. `error`: why it cannot be read."""

    snapshot: int
    kind: SnapshotKind
    state: State
    to_sqn: int
    row_hash: str | None = None
    error: str | None = None

    @property
    def present(self) -> bool:
        return self.row_hash is not None


@dataclass(frozen=True, slots=True)
class KeyExplained:
    """A key and its history.

    view: published, snapshot or live.
    snapshot: the snapshot of the view, or the one that a live view begins with.
    made_by: the change that made or deleted the row; None: the log does not have it any more.
    changes: all changes of the key in the log, oldest first.
    unknown: ranges of change sets that no longer have every change.
    lost_from: the range of `unknown` that begins here was lost when the ledger was rebuilt; 0: none was.
    kept: the row in each retained snapshot, oldest first.
    """

    log: str
    key: ShownRow
    view: str
    snapshot: int | None
    to_sqn: int
    row: ShownRow | None
    row_hash: str | None
    standing: RowAgreement
    remark: str
    made_by: Origin | None
    changes: tuple[Origin, ...]
    unknown: tuple[tuple[int, int], ...]
    lost_from: int
    kept: tuple[Kept, ...]
    refused: tuple[RefusedRecord, ...] = ()


def explain_key(
    pipeline: Pipeline, log: str, key: str, snapshot: int | None = None, live: bool = False
) -> KeyExplained:
    """Explains a key, given as a JSON object: published, in a snapshot, or live.

    Raises NotFoundError if neither the log nor a retained snapshot has the key, and the errors of `plan_read`.
    """
    state = require_state(pipeline, log)
    try:
        base = (
            state.latest if live else find_published(state) if snapshot is None else require_readable(state, snapshot)
        )
    except (NotFoundError, RefusedError) as error:
        told = _Explaining(pipeline, state, key).describe_refused()
        raise type(error)(error.code, f"{error.message}{told}", hint=error.hint) from error
    if base and state.reshaped and base.id < state.reshaped.id:
        raise RefusedError(
            "SHAPE_OLDER",
            f"Snapshot {base.id} is from before snapshot {state.reshaped.id}, with which a plan was applied: the log "
            f"has its changes as they are read now.",
            hint=f"`tidefold read {log} --snapshot {base.id}` shows its rows.",
        )
    view = "live" if live else "published" if snapshot is None else "snapshot"
    return _Explaining(pipeline, state, key).of(view, base, live)


class _Explaining:
    """Explains one key of one state. Reads each file and each change set once."""

    def __init__(self, pipeline: Pipeline, state: LogState, key: str) -> None:
        self._pipeline, self._state, self._text = pipeline, state, key
        self._key = one_key(state.shape, key)
        self._read: dict[frozenset[object], ShownRow | None] = {}
        self._values: list[ShownRow] = []
        self._changes = self._changes_of_key()
        self._finder = RecordFinder(pipeline.log(state.log).feed, state)
        self._refused = find_refused_of(pipeline, state, [str(value) for _, value in self._key.values])

    def of(self, view: str, base: Snapshot | None, live: bool) -> KeyExplained:
        state, folded = self._state, layers(self._state, base, live)
        told = explain(state, folded, self._changes, state.shape)
        wanted = (
            ReadRequest(What.LIVE, key=self._text)
            if live
            else ReadRequest(snapshot=base.id if base else None, key=self._text, today=True)
        )
        row, kept = self._row(plan_from(self._pipeline, state, wanted)), self._find_kept_rows()
        known_elsewhere = self._refused or any(one.present or one.error for one in kept)
        if row is None and not self._changes and not known_elsewhere:
            raise self._never()
        winner = told.winner
        same = winner is not None and self._agrees(row, told)
        stands = standing(told, row is not None, same, any(one.present for one in kept))
        origins = {one.change.number: self._origin(one, winner) for one in told.changes}
        is_made = winner is not None and stands is not RowAgreement.CUT
        return KeyExplained(
            log=state.log,
            key=dict(self._key.values),
            view=view,
            snapshot=base.id if base else None,
            to_sqn=folded[0].to if folded else 0,
            row=row,
            row_hash=_hash(row),
            standing=stands,
            remark=REMARKS[stands],
            made_by=origins[winner.number] if winner and is_made else None,
            changes=tuple(origins.values()),
            unknown=unknown(state, folded),
            lost_from=state.lost_from,
            kept=kept,
            refused=self._refused,
        )

    def _changes_of_key(self) -> tuple[KeyChange, ...]:
        state, store = self._state, self._pipeline.store
        mine = KeyGroups(self._key.key_group, self._key.key_group)
        floors = {c.sqn: c.floor for c in state.change_sets}
        # Without their floors, because changes that were sent again are explained too.
        sets = tuple(replace(c, floor=None) for c in state.change_sets if c.key_groups.meets(mine))
        plan = ReadPlan(store.address, state.log, state.shape, False, None, (), sets)
        plan = replace(plan, schema=state.schema, schemas=state.schemas)
        batches = read_task(store, plan, ReadTask(mine, (), sets))
        rows = [row for batch in batches for row in batch.to_pylist() if self._concerns(row)]
        # A segment is sorted by key; changes of one key have any order in it.
        by = (SQN, *place_columns(state.shape))
        self._values = sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in by])
        return tuple(self._change(number, values, floors[values[SQN]]) for number, values in enumerate(self._values))

    def _concerns(self, values: ShownRow) -> bool:
        """Whether a change is of this key, or clears it together with others."""
        key = self._key.values
        if values["_op"] != CLEAR:
            return all(values[name] == value for name, value in key)
        return values["_kg"] == self._key.key_group and all(values[name] in (None, value) for name, value in key)

    def _change(self, number: int, values: ShownRow, floor: tuple[int, ...] | None) -> KeyChange:
        shape, op = self._state.shape, values["_op"]
        width = len(order_columns(shape))
        place = tuple(values[name] for name in place_columns(shape))
        again = floor is not None and place[:width] < floor
        if op == CLEAR and width:
            place = (*place[:width], -1, -1)
        absent = values["_absent"] or ()
        names = tuple(c.name for c in shape.columns if c.name not in absent) if absent else None
        ranks = tuple((name, _rank(values, group)) for group in shape.merge.groups for name in group.columns)
        return KeyChange(
            number=number,
            sqn=values[SQN],
            place=place,
            delete=op == DELETE,
            repeated=again,
            clear=op == CLEAR,
            merge=op == MERGE,
            given=names,
            ranks=ranks if op == UPSERT else (),
            committed=values["_ts"],
        )

    def _agrees(self, row: ShownRow | None, told: KeyHistory) -> bool:
        """Whether the row has the values of the changes that it consists of. Aggregates are not computed again."""
        if row is None or self._state.shape.merge.engine in (Engine.AGGREGATE, Engine.HISTORY):
            return row is not None
        gave = {name: self._values[one.change.number][name] for one in told.changes for name in one.gave}
        return all(str(row[name]) == str(value) for name, value in gave.items())

    def _row_of(self, change: KeyChange) -> ShownRow | None:
        values = self._values[change.number]
        return None if change.removes else {c.name: values[c.name] for c in self._state.shape.columns}

    def _row(self, plan: ReadPlan) -> ShownRow | None:
        """Returns the row of the key; of a history the newest version. Files are read once for all snapshots."""
        for task in plan.tasks:
            files = frozenset(replace(f, carried=False) for f in task.files)
            if task.change_sets or files not in self._read:
                rows = [row for batch in read_task(self._pipeline.store, plan, task) for row in batch.to_pylist()]
                if task.change_sets:
                    return rows[-1] if rows else None
                self._read[files] = rows[-1] if rows else None
            return self._read[files]
        return None

    def _find_kept_rows(self) -> tuple[Kept, ...]:
        first = self._state.reshaped.id if self._state.reshaped else 0  # Earlier ones may have another key.
        kept = [s for s in self._state.snapshots if s.id >= first and s.state in (State.COMPLETED, State.STAGED)]
        return tuple(self._read_kept_row(s) for s in kept)

    def _read_kept_row(self, snapshot: Snapshot) -> Kept:
        kept = Kept(snapshot.id, snapshot.kind, snapshot.state, snapshot.folds_to)
        try:
            return replace(kept, row_hash=_hash(self._row_in(snapshot)))
        except (CorruptError, NotFoundError) as error:
            return replace(kept, error=str(error))

    def _row_in(self, snapshot: Snapshot) -> ShownRow | None:
        """Returns the row in a snapshot. Of a tail only the row of its base is read, because there may be hundreds."""
        state = self._state
        if snapshot.kind is not SnapshotKind.TAIL:
            return self._row(
                plan_from(self._pipeline, state, ReadRequest(snapshot=snapshot.id, key=self._text, today=True))
            )
        [top, *_] = layers(state, snapshot)
        winner = explain(state, (top,), self._changes, state.shape).winner
        if winner is not None:
            return self._row_of(winner)
        return self._row_in(require_readable(state, snapshot.base or 0))

    def _origin(self, told: ExplainedChange, winner: KeyChange | None) -> Origin:
        change, state = told.change, self._state
        values, source = self._values[change.number], next(c for c in state.change_sets if c.sqn == change.sqn)
        landed = _find_landed_file(state, source, change)
        return Origin(
            op=OPS[values["_op"]],
            fate=told.fate,
            why=why(told, winner, state.shape),
            order=change.order,
            topic=landed.topic if landed else None,
            partition=values["_partition"],
            offset=number_of(values["_offset"]),
            committed=iso_instant(values["_ts"]),
            sqn=change.sqn,
            first=source.begin,
            segment=source.location.segment,
            ordinal=source.location.ordinal,
            landed=landed.name if landed else None,
            ingest_run=landed.run or None if landed else None,
            taken=landed.instant or None if landed else None,
            snapshot=told.snapshot,
            run=told.run or None,
            values={c.name: values[c.name] for c in state.shape.columns},
            record=self._finder.find(landed, number_of(values["_offset"])) if landed else "",
            at=format_order(change.order, state.shape),
            is_numbered=state.names is not None and not state.names.has_offsets,
        )

    def _never(self) -> NotFoundError:
        cut = self._state.truncated_to
        how = self._state.cut_reason
        trace = f" The log was {how} up to change set {cut}: keys deleted before that are not known." if cut else ""
        log, is_open = self._state.log, any(entry.quarantined for entry in self._state.landed)
        hint = f"`tidefold quarantine show {log}` prints refused records. " if is_open else ""
        return NotFoundError(
            "KEY_UNKNOWN",
            f"Neither the log of `{log}` nor a retained snapshot has the key {self._text}.{trace}"
            f"{self.describe_refused()}",
            hint=f"{hint}Check the spelling and type of the key. `tidefold read {log} --live` shows rows.",
        )

    def describe_refused(self) -> str:
        """Names the refused records that may be of the key, and the files with records that a person settled."""
        state, told = self._state, ""
        texts = [str(value) for _, value in self._key.values]
        refused = self._refused or find_refused_with(self._pipeline, state, texts)
        if refused:
            places = ", ".join(f"record {one.line} of `{one.file}` [{one.reason}]" for one in refused[:_NAMED])
            more = f" and {len(refused) - _NAMED:,} more" if len(refused) > _NAMED else ""
            told = f" Refused records {'have this key' if self._refused else 'may be of it'}: {places}{more}."
        elif (count := sum(entry.quarantined for entry in state.landed)) > SEARCHED:
            told = f" Of {count:,} refused records the first {SEARCHED:,} were searched for it."
        settled = [f"of `{one.name}` {'; '.join(one.settled)}" for one in state.landed if one.settled]
        if settled:
            more = f", and of {len(settled) - _NAMED:,} more files" if len(settled) > _NAMED else ""
            told += f" Refused records that were settled are not searched: {', '.join(settled[:_NAMED])}{more}."
        return told


def _find_landed_file(state: LogState, source: ChangeSet, change: KeyChange) -> LandedFileRecord | None:
    """Returns the landed file of a change. A record that a retry recovered is in a change set of its own."""
    partition, offset = change.place[-2:]
    if state.names is not None and not state.names.has_offsets:
        return next((entry for entry in state.landed if entry.number == partition), None)
    holds = [e for e in state.landed if e.partition == partition and e.first_offset <= offset < e.next_offset]
    brought = [e for e in state.landed if e.sqns and e.sqns[0] <= source.sqn and source.begin <= e.sqns[-1]]
    if not holds:  # Rows without offsets: a change set that was not compacted comes from one file.
        return brought[0] if len(brought) == 1 else None
    return next((e for e in reversed(holds) if e in brought), holds[-1])


def _rank(values: ShownRow, group: Group) -> tuple[int, ...] | None:
    """Returns the order of a group; None if one of its columns is null: then the change does not set the group."""
    if not group.order:
        return ()
    ranks = [values[name] for name in group.order]
    return None if None in ranks else tuple(ranks)


def _hash(row: Mapping[str, Any] | None) -> str | None:
    """Returns the first 16 digits of the sha256 of a row's values as JSON."""
    if row is None:
        return None
    text = json.dumps({name: row[name] for name in sorted(row)}, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
