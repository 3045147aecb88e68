"""Reads rows of snapshots, live tables and logs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import change_schema, table_schema
from tidefold.config.models.sources import StateJsonEntry
from tidefold.domain.key_groups import SPLIT, OwnedRows, RedistributionMode, Share
from tidefold.domain.log_state import ChangeSet, LogState, Snapshot, SnapshotKind, TableSpec
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.snapshot.transitions import require_readable
from tidefold.domain.table.schema_evolution import shape_at
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline, find_current_limit
from tidefold.read.plan import OneKey, ReadPlan
from tidefold.read.task import plan_schema, read_task
from tidefold.typed_json import decode_json


class What(StrEnum):
    """What is read of a log: the published rows, the rows as of everything ingested, or its change sets."""

    TABLE = "table"
    LIVE = "live"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The request for a read.

    snapshot: read this snapshot instead of the published one (only with `table`).
    since: read only change sets after this sqn (only with `log`).
    key: read only this key, a JSON object, from its bucket.
    share: read only the part of one of several workers.
    today: read an older snapshot with the columns that the log has now.
    """

    what: What = What.TABLE
    snapshot: int | None = None
    since: int | None = None
    key: str | None = None
    share: Share | None = None
    today: bool = False

    def __post_init__(self) -> None:
        if self.snapshot is not None and self.what is not What.TABLE:
            raise _check_exclusive("snapshot", self.what, What.TABLE)
        if self.since is not None and self.what is not What.LOG:
            raise _check_exclusive("since", self.what, What.LOG)


def _check_exclusive(name: str, what: What, allowed: What) -> InvalidInputError:
    return InvalidInputError(
        "READ_OPTIONS", f"`{name}` works with `{allowed}`, not with `{what}`.", hint="Leave one of them out."
    )


def read_rows(
    pipeline: Pipeline, log: str, wanted: ReadRequest | None = None
) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
    """Returns schema and rows of a log, read in this process. Raises the errors of `plan_read` and `read_task`.

    The rows of a queue with a `head` are in its order: the first one of a key is the one that the next poll removes.
    """
    plan = plan_read(pipeline, log, wanted or ReadRequest())
    tasks = plan.tasks if plan.folded else (plan.whole,)
    batches = (batch for task in tasks for batch in read_task(pipeline.store, plan, task))
    source = pipeline.log(log).source
    if plan.folded and isinstance(source, StateJsonEntry) and source.head:
        batches = _sort_queue(batches, plan, (*source.state_key, *source.head, *plan.shape.key))
    return plan_schema(plan), batches


def _sort_queue(batches: Iterable[pa.RecordBatch], plan: ReadPlan, order: Sequence[str]) -> Generator[pa.RecordBatch]:
    """Yields the rows in the order of a queue, as the ingest orders them for a poll. It holds them in memory."""
    rows = pa.Table.from_batches(batches, plan_schema(plan))
    columns = [rows[name] for name in dict.fromkeys(order) if name in rows.column_names]
    ranks = [part for column in columns for part in (column.is_valid(), column)]  # Null comes first.
    keys = [f"c{number}" for number in range(len(ranks))]
    ordered = pc.sort_indices(pa.table(ranks, keys), [(key, "ascending") for key in keys])
    yield from rows.take(ordered).to_batches()


def plan_read(pipeline: Pipeline, log: str, wanted: ReadRequest) -> ReadPlan:
    """Plans a read of exactly the present files and change sets, without expired rows if the log hides them.

    Reads the ledger and one manifest.

    Raises NotFoundError if there is nothing to read yet, RefusedError if the log no longer has the needed changes.
    """
    state = require_state(pipeline, log)
    plan = plan_from(pipeline, state, wanted)
    ttl = pipeline.log(log).ttl
    chosen = state.snapshot(wanted.snapshot) if wanted.snapshot is not None else None
    if ttl and ttl.hides:
        plan = replace(plan, expire=find_current_limit(pipeline, state, chosen))
    return plan if wanted.share is None else _filter_share(pipeline, plan, wanted.share)


def require_state(pipeline: Pipeline, log: str) -> LogState:
    """Returns the newest state of a configured log. Raises NotFoundError, OutdatedLedgerError."""
    state = pipeline.ledger(pipeline.log(log).id).find_current()
    if state is None:  # It never had a ledger, or was dropped.
        hint = f"`tidefold step ingest {log}` starts it."
        raise NotFoundError("LOG_UNKNOWN", f"The store has no log `{log}`.", hint=hint)
    return state


def plan_from(pipeline: Pipeline, state: LogState, wanted: ReadRequest) -> ReadPlan:
    """Plans a read from a state that was read before."""
    if wanted.what is What.LOG:
        plan = _plan_tasks(pipeline, state, None, _since(state, wanted.since), state.schema, folded=False)
    elif wanted.what is What.LIVE:
        latest = state.latest
        base = read_manifest(pipeline.store, state.log, latest) if latest else None
        change_sets = _join(state, latest.to_sqn if latest else 0, state.last_sqn)
        plan = _plan_tasks(pipeline, state, base, change_sets, state.schema)
    else:
        chosen = find_published(state) if wanted.snapshot is None else require_readable(state, wanted.snapshot)
        plan = _of_snapshot(pipeline, state, chosen)
    if wanted.today:
        shape = replace(state.shape, buckets=plan.shape.buckets)
        plan = replace(plan, shape=shape, schema=state.schema, schemas=state.schemas)
    return replace(plan, key=one_key(plan.shape, wanted.key)) if wanted.key is not None else plan


def _filter_share(pipeline: Pipeline, plan: ReadPlan, asked: Share) -> ReadPlan:
    """Restricts the plan to the share of one worker. A worker without key groups reads nothing."""
    stored = plan.redistribution
    share = asked.resolve(stored if plan.folded else SPLIT)
    mine = share.key_groups(plan.shape.key_groups)
    if not mine:
        return replace(plan, files=(), change_sets=())
    if share.distribution is RedistributionMode.BROADCAST and stored.owner and plan.folded:
        owner = share.find_owner(_find_owners(pipeline, plan, stored.owner))
        if owner is not None:
            plan = replace(plan, only=OwnedRows(stored.owner, owner))
    return replace(plan, share=mine)


def _find_owners(pipeline: Pipeline, plan: ReadPlan, column: str) -> list[str]:
    """Returns the owners of the rows, in order, as text. Reads the rows: state that is broadcast is small."""
    owners: set[str | int] = set()
    for task in plan.tasks:
        for batch in read_task(pipeline.store, plan, task):
            owners.update(batch.column(column).unique().to_pylist())
    return [str(owner) for owner in sorted(owners)]


def _plan_tasks(
    pipeline: Pipeline, state: LogState, base: Manifest | None, change_sets: tuple[ChangeSet, ...], schema: int,
    *, folded: bool = True,
) -> ReadPlan:  # fmt: skip
    # The files have the buckets of their own snapshot.
    buckets = base.shape.buckets if base else state.shape.buckets
    shape = replace(shape_at(state, schema), buckets=buckets)
    plan = ReadPlan(pipeline.store.address, state.log, shape, folded, None, (), change_sets)
    plan = replace(plan, schema=schema, schemas=state.schemas)
    if base is None:
        configured = pipeline.config.logs.get(state.log)
        return replace(plan, redistribution=(configured and configured.distribution) or SPLIT)
    plan = replace(plan, redistribution=base.redistribution or SPLIT)
    plan = replace(plan, snapshot=base.snapshot, files=base.files, data_folder=base.data_folder)
    return replace(plan, cleared=base.cleared, based=base.schema)


def _of_snapshot(pipeline: Pipeline, state: LogState, chosen: Snapshot) -> ReadPlan:
    if chosen.kind is not SnapshotKind.TAIL:
        manifest = read_manifest(pipeline.store, state.log, chosen)
        return replace(_plan_tasks(pipeline, state, manifest, (), manifest.schema), shape=manifest.shape)
    below = None if chosen.base is None else require_readable(state, chosen.base)
    base = read_manifest(pipeline.store, state.log, below) if below else None
    return _plan_tasks(pipeline, state, base, _join(state, chosen.from_sqn, chosen.to_sqn), chosen.schema)


def find_published(state: LogState) -> Snapshot:
    """Returns the snapshot that readers of the table see. Raises NotFoundError."""
    published = next((s for s in reversed(state.snapshots) if s.published), None)
    if published is None:
        message = f"`{state.log}` has no published snapshot yet."
        raise NotFoundError(
            "NOTHING_PUBLISHED", message, hint=f"`tidefold run {state.log}` publishes one. Or read with --live."
        )
    return published


def _since(state: LogState, since: int | None) -> tuple[ChangeSet, ...]:
    if since is None:
        return state.change_sets
    if since < state.truncated_to:
        raise _cut(state, since)
    if since > state.last_sqn:
        raise RefusedError(
            "SINCE_AHEAD", f"`{state.log}` ends at change set {state.last_sqn}; {since} does not exist yet."
        )
    later = state.change_sets_in(since, state.last_sqn)
    if later and later[0].begin <= since:
        raise RefusedError(
            "LOG_COMPACTED",
            f"Change sets {later[0].begin} to {later[0].sqn} of `{state.log}` were compacted into one: "
            f"{since + 1} cannot be read alone.",
            hint=f"Read the changes since {later[0].begin - 1}, or since {later[0].sqn}.",
        )
    return later


def _join(state: LogState, after: int, to: int) -> tuple[ChangeSet, ...]:
    """Returns the change sets with `after` < sqn <= `to`. Raises an error if one of them is missing (I7)."""
    joined = state.change_sets_in(after, to)
    reached = after
    for change_set in joined:
        if change_set.begin > reached + 1:
            break
        reached = change_set.sqn
    if reached < to:
        raise _cut(state, reached)
    return joined


def _cut(state: LogState, after: int) -> RefusedError:
    first = next((c.begin for c in state.change_sets if c.sqn > after), state.last_sqn + 1)
    return RefusedError(
        "LOG_CUT",
        f"Log `{state.log}` was {state.cut_reason}: it begins at change set {first}, and {after + 1} is deleted.",
        hint=f"Read the changes since {first - 1} or later, or read rows (`table` or `live`).",
    )


def one_key(shape: TableSpec, text: str) -> OneKey:
    """Parses a key given as JSON, with the types of its columns. Raises InvalidInputError."""
    hint = "Name every key column, as in " + "{" + ", ".join(f'"{name}": ...' for name in shape.key) + "}."
    try:
        asked = decode_json(text, dict[str, str | int | bool])
    except msgspec.DecodeError as error:
        raise InvalidInputError("READ_KEY", f"`{text}` is not a key: {error}.", hint=hint) from error
    if not shape.key:
        raise InvalidInputError("KEYLESS", "The table has no key, so rows cannot be selected by key.")
    if set(asked) != set(shape.key):
        raise InvalidInputError("READ_KEY", f"`{text}` does not name exactly the columns of the key.", hint=hint)
    types, told = table_schema(shape), {column.name: column.type for column in shape.columns}
    values = {}
    for name in shape.key:
        try:
            values[name] = _convert(asked[name], types.field(name).type)
        except (pa.ArrowException, ArithmeticError, ValueError) as error:
            message = f"`{text}` has a value of the wrong type: `{name}` is of type {told[name]}."
            raise InvalidInputError("READ_KEY", message, hint="Give a value of that type.") from error
    row = pa.Table.from_pylist([values], schema=change_schema(shape))
    [key_group] = with_key_groups(row, shape).column("_kg").to_pylist()
    return OneKey(tuple(values.items()), key_group)


def _convert(value: str | int | bool, kind: pa.DataType) -> object:
    if isinstance(value, str) and pa.types.is_timestamp(kind):
        at = datetime.fromisoformat(value)  # The table shows times in UTC.
        return pa.scalar(at if at.tzinfo else at.replace(tzinfo=UTC), kind).as_py()
    if isinstance(value, str) and pa.types.is_temporal(kind):
        return pa.scalar(value).cast(kind).as_py()
    if pa.types.is_decimal(kind) and not isinstance(value, bool):
        return pa.scalar(Decimal(value), kind).as_py()
    return pa.scalar(value, kind).as_py()
