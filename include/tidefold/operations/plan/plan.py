"""Plans an edit of a log's configuration: which rows it changes, and which change made each of them before and now."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidefold.domain.explain.key_history import ChangeOutcome
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.plan import Example, Plan, PlanRecord
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.errors import NotFoundError, TidefoldError
from tidefold.operations.ground.pipeline import Pipeline, PlanOf, now
from tidefold.operations.ground.plan_records import find_plan, record_plan
from tidefold.operations.ground.read import ReadRequest, find_published, plan_from
from tidefold.operations.inspect.explain_key import Origin, explain_key
from tidefold.operations.plan.compare import Comparison, compare_rows
from tidefold.operations.plan.edits import describe_edits, find_column_edits, require_plannable
from tidefold.operations.plan.shadow import Shadow, Steps, fill
from tidefold.operations.snapshot.switch import find_unread
from tidefold.read.task import ADDED, Difference
from tidefold.typed_json import decode_json

# A row of these consists of several changes.
_SEVERAL = (Engine.PARTIAL, Engine.AGGREGATE)


def make_plan(beside: Pipeline, log: str, steps: Steps, limit: int) -> Plan:
    """Makes a plan and stores what it found. Changes nothing of the pipeline.

    beside: the shadow store. steps: of it.
    limit: how many rows of each kind are shown.

    Raises RefusedError if the log cannot be planned, ConflictError if another process plans the same edit, and the
    errors of the steps.
    """
    cpu, begun = time.process_time(), now()
    plan_of = beside.plan_of
    assert plan_of is not None
    require_plannable(plan_of.live, plan_of.state)
    store, paths = plan_of.live.store, plan_of.paths
    plan_of.live.before_write()
    number = (find_plan(store, paths) or PlanRecord()).number + 1
    record_plan(store, paths, PlanRecord(number, begun))
    plan = _describe_plan(plan_of, fill(beside, log, steps), limit)
    plan = replace(plan, made_at=now(), cpu_seconds=round(time.process_time() - cpu, 2))
    # What is shown now is what is shown from the record.
    plan = decode_json(msgspec.json.encode(plan), Plan)
    record_plan(store, paths, PlanRecord(number + 1, begun, plan))
    return plan


def _describe_plan(plan_of: PlanOf, shadow: Shadow, limit: int) -> Plan:
    pipeline, state, log = plan_of.live, plan_of.state, plan_of.paths.log
    gone = find_unread(state, shadow.state)
    shown = find_shown(state)
    compared = _compare(pipeline, state, shown, shadow, gone, limit)
    sides = (_Side(pipeline, state.shape, None), _Side(shadow.pipeline, shadow.state.shape, shadow.snapshot.id))
    manifest, base = shadow.snapshot.manifest or "", (shown.manifest or "") if shown else ""
    return Plan(
        log=log,
        edit=plan_of.paths.edit,
        made_at="",
        snapshot=shadow.snapshot.id,
        manifest=manifest,
        base=shown.id if shown else None,
        base_manifest=base,
        checksum=hashlib.sha256(f"{manifest} {base}".encode()).hexdigest(),
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
        folder=shadow.pipeline.store.address,
        landed_bytes=sum(e.length for e in shadow.state.landed),
        written_bytes=shadow.snapshot.bytes_full + sum(c.location.length for c in shadow.state.change_sets),
        table_bytes=shown.bytes_full if shown else 0,
        cpu_seconds=0,
    )


def find_shown(state: LogState) -> Snapshot | None:
    """Returns the snapshot that readers see; None: there is none."""
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
    sqns = {sqn for entry in state.landed if entry.name in gone for sqn in entry.sqns}
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
    if any(row.get(name) is None for name in key):  # No key has a null.
        return ""
    values = {name: row[name] if isinstance(row[name], int) else str(row[name]) for name in key}
    try:
        told = explain_key(side.pipeline, log, json.dumps(values), side.snapshot)
    except TidefoldError as error:
        # A key that is no value of the type on this side has no row there.
        return "" if error.code in ("KEY_UNKNOWN", "READ_KEY") else f"[{error.code}] {error.message}"
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
