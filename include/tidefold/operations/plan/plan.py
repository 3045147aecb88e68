"""Plans an edit of a log's configuration: which rows it changes, and which change made each of them before and now."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidefold.domain.explain.key_history import ChangeOutcome
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.errors import NotFoundError, TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, find_published, plan_from, require_state
from tidefold.operations.inspect.explain_key import Origin, explain_key
from tidefold.operations.plan.compare import Comparison, compare_rows
from tidefold.operations.plan.edits import ColumnEdits, describe_edits, find_column_edits, require_plannable
from tidefold.operations.plan.shadow import Shadow, fill
from tidefold.operations.snapshot.switch import find_unread
from tidefold.quality.run.engine import QualityEngine
from tidefold.read.task import ADDED, Difference

# A row of these consists of several changes.
_SEVERAL = (Engine.PARTIAL, Engine.AGGREGATE)


@dataclass(frozen=True, slots=True)
class Example:
    """A row that differs.

    before, after: its values; None: there is no row.
    was, now: which change made or deleted it on each side, for people; empty: no row has its key there.
    """

    change: str
    key: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an edit changes in the rows of a log.

    edits: what the configuration changes, for people; empty: nothing of the table definition.
    ingested, gate: what became of the steps, for people. passed: whether the gate passed.
    refused: how many records of a landed file this configuration cannot use, if there are any.
    rows, counts, values, joined_by, lost: as in a Comparison.
    columns: which the edit adds, drops or changes.
    examples: the first rows of each kind.
    gone: landed files of the log that are not there any more, or have other bytes.
    folder: the shadow store. landed_bytes, written_bytes: how much was read for it and lies in it.
    table_bytes: the size of the table now.
    """

    log: str
    edits: tuple[str, ...]
    ingested: str
    gate: str
    passed: bool
    refused: Mapping[str, int]
    rows: tuple[int, int]
    counts: Mapping[str, int]
    values: Mapping[str, int]
    joined_by: tuple[str, ...]
    columns: ColumnEdits
    examples: tuple[Example, ...]
    gone: tuple[str, ...]
    lost: int
    folder: str
    landed_bytes: int
    written_bytes: int
    table_bytes: int
    cpu_seconds: float


def name_plan(pipeline: Pipeline, log: str) -> Path:
    """Returns the folder of a plan's shadow store. The same edit has the same folder."""
    config = pipeline.log(log)
    edit = hashlib.sha256(f"{config.model_dump_json()} {config.shape}".encode()).hexdigest()
    return pipeline.config.path.parent / "var" / "plans" / f"{log}-{edit[:12]}"


def make_plan(pipeline: Pipeline, log: str, beside: Pipeline, engine: QualityEngine, limit: int) -> Plan:
    """Makes a plan. Changes nothing of the pipeline.

    beside: of the shadow store.
    limit: how many rows of each kind are shown.

    Raises RefusedError if the log cannot be planned, NotFoundError if it has nothing yet, and the errors of its steps.
    """
    begun = time.process_time()
    state = require_state(pipeline, log)
    require_plannable(pipeline, state)
    shadow = fill(beside, log, pipeline, engine)
    gone = find_unread(state, shadow.state)
    shown = _find_shown(state)
    compared = _compare(pipeline, state, shown, shadow, gone, limit)
    sides = (_Side(pipeline, state.shape, None), _Side(beside, shadow.state.shape, shadow.snapshot.id))
    return Plan(
        log=log,
        edits=describe_edits(state, pipeline.log(log).shape),
        ingested=f"{shadow.ingested.status}: {shadow.ingested.message}",
        gate=f"{shadow.judged.status}: {shadow.judged.message}",
        passed=shadow.passed,
        refused={e.name: e.quarantined for e in shadow.state.landed if e.quarantined},
        rows=compared.rows,
        counts=dict(compared.counts),
        values=dict(compared.columns),
        joined_by=compared.joined_by,
        columns=find_column_edits(state.shape, shadow.state.shape),
        examples=tuple(_explain(log, one, *sides) for one in compared.examples),
        gone=gone,
        lost=compared.lost,
        folder=beside.store.address,
        landed_bytes=sum(e.length for e in shadow.state.landed),
        written_bytes=shadow.snapshot.bytes_full + sum(c.location.length for c in shadow.state.change_sets),
        table_bytes=shown.bytes_full if shown else 0,
        cpu_seconds=round(time.process_time() - begun, 2),
    )


def _find_shown(state: LogState) -> Snapshot | None:
    try:
        return find_published(state)
    except NotFoundError:
        return None


def _compare(
    pipeline: Pipeline, state: LogState, shown: Snapshot | None, shadow: Shadow, gone: tuple[str, ...], limit: int
) -> Comparison:
    if shown is None:
        first = Comparison((0, shadow.snapshot.rows), ())
        first.counts[ADDED] = shadow.snapshot.rows
        return first
    before = plan_from(pipeline, state, ReadRequest(snapshot=shown.id))
    after = plan_from(shadow.pipeline, shadow.state, ReadRequest(snapshot=shadow.snapshot.id))
    sqns = {entry.sqn for entry in state.landed if entry.name in gone}
    # A compacted change set does not say which file brought a key.
    only = [c for c in state.change_sets if c.first is None and c.sqn in sqns]
    return compare_rows((pipeline.store, before), (shadow.pipeline.store, after), only, limit)


@dataclass(frozen=True, slots=True)
class _Side:
    """Where a row is explained: a pipeline, its table definition, and a snapshot; None: the published one."""

    pipeline: Pipeline
    shape: TableSpec
    snapshot: int | None


def _explain(log: str, one: Difference, before: _Side, after: _Side) -> Example:
    # Without a row of its own, a side may still know what deleted it.
    was = _find_maker(log, one.before or one.key, before)
    now = _find_maker(log, one.after or one.key, after)
    return Example(one.change, one.key, one.before, one.after, was, now)


def _find_maker(log: str, row: Mapping[str, Any], side: _Side) -> str:
    """Returns the change that made or deleted the row of a key: file, line, order, over how many others."""
    key = side.shape.key
    if not set(key) <= set(row):
        return ""
    values = {name: row[name] if isinstance(row[name], int) else str(row[name]) for name in key}
    try:
        told = explain_key(side.pipeline, log, json.dumps(values), side.snapshot)
    except TidefoldError as error:
        return "" if error.code == "KEY_UNKNOWN" else f"[{error.code}] {error.message}"
    made = told.made_by
    if made is None:
        return told.remark
    counts = [c for c in told.changes if c.fate is ChangeOutcome.CURRENT and c != made]
    text = _describe(made)
    if counts and side.shape.merge.engine in _SEVERAL:
        text += f", with {'; '.join(map(_describe, counts))}"
    others = sum(c.fate is not ChangeOutcome.CURRENT for c in told.changes)
    return text + (f", over {others} other change{'s' * (others > 1)}" if others else "")


def _describe(made: Origin) -> str:
    place = f"{made.landed}, {made.record}" if made.landed and made.record else made.landed or made.source
    return f"{made.op} of {place}{f', order {made.at}' if made.at else ''}"
