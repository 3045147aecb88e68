"""Reads refused records again with the installed program and configuration, and appends those that it can read.

It handles one quarantine file at a time, with one commit: see `commit`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from operator import itemgetter, not_

import pyarrow as pa

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.removed import reads_of
from tidefold.changelog.schema import change_schema, order_columns
from tidefold.domain.ingest.append import require_open
from tidefold.domain.ingest.quarantine_retry import is_skipped, quarantine_files, room, since
from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import NameReading
from tidefold.domain.wording import count_noun
from tidefold.errors import ConflictError, CorruptError, NotFoundError
from tidefold.operations.ground import recovery
from tidefold.operations.ground.copied_files import decide_copies
from tidefold.operations.ground.outcome import Details, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, find_horizon
from tidefold.operations.ground.read import require_state
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.quarantine.commit import SortedRecords, commit_resolved
from tidefold.operations.quarantine.inspect import require_none_refused
from tidefold.operations.quarantine.key_changes import (
    Completed,
    RefusedKey,
    complete_key_changes,
    key_in,
    read_refused_keys,
)
from tidefold.operations.quarantine.newer_changes import Awaited, Decision, ResentProof, find_newer, find_open
from tidefold.operations.quarantine.next_step import advise_on_refused, can_read_again
from tidefold.operations.quarantine.taken_keys import decide_taken_keys
from tidefold.sources.api import source_of
from tidefold.sources.feed import PLACEHOLDER
from tidefold.sources.quarantine.reparse import (
    Refused,
    SecondLook,
    look_again,
    read_landed_lines,
    read_refused,
    read_torn_line,
    whole_text,
)
from tidefold.sources.records.change_batches import with_commit_times
from tidefold.sources.records.errors import KEY_TAKEN_OVER

_log = logging.getLogger(__name__)
_TRIES = 3
_PASSES = 3
# The order of a change whose order could not be read.
_AFTER_ALL = (2**63,)
_STAYS = {
    "refused": "still cannot be read",
    "gone": "their landed file was changed or removed, so they were not read again",
    "alone": "records of this source are not read again",
    "log_cut": "the log was truncated after they landed, so newer changes of their keys cannot be found",
    "left_out": "a restore or an import left out the changes of that time",
    "newer": "newer changes of their keys were ingested, and would have to come after them",
    "key_taken": "wait for their landed files, or for the row that was under their key, which is not known (yet)",
    "key_change": "lack values of the row under the old key, which are not known (yet)",
    "unproved": "may be repetitions: their order was not read when they landed",
}
_WAITS = {KEY_TAKEN_OVER: "key_taken"}
_BECAME = {
    "changes": "became changes",
    "repeated": "are superseded by newer changes of their keys, or were sent again",
    "tombstones": "are tombstones",
    "ignored": "are ignored",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDetails(Details):
    """What a retry did with refused records.

    records: how many it read again.
    changes, repeated, tombstones, ignored: their numbers by result.
    staying: how many are still refused.
    why: the numbers of those by the cause that keeps them in quarantine.
    reasons: the numbers of those by the reason of the refusal.
    """

    records: int
    changes: int
    repeated: int
    tombstones: int
    ignored: int
    staying: int
    why: Mapping[str, int]
    reasons: Mapping[str, int]


def retry(pipeline: Pipeline, log: str, *reasons: str) -> Outcome:
    """Reads all refused records of a log again, or those with one of these `reasons`; the others stay as they are.

    A record whose key has a newer change is settled without a change. Raises NotFoundError for an unknown log,
    RefusedError if it is stopped, the configuration describes another table or no record has such a reason,
    ConflictError if another process was faster.
    """
    recovery.roll_forward(pipeline.store, [log])
    begun = apply_configured_schema(pipeline, require_state(pipeline, log))
    require_open(begun)
    became, stay, left = Counter[str](), Counter[str](), Counter[str]()
    for _ in range(_PASSES):
        stay, left = Counter[str](), Counter[str]()
        before = became.total()
        for path in quarantine_files(require_state(pipeline, log)):
            retried = _retry_until_current(pipeline, log, path, reasons)
            became.update(count for _, count in retried.settled)
            stay.update(why for _, why in retried.staying)
            left.update(one.entry.reason for one, _ in retried.staying)
        # A key change may wait for an appended record.
        if became.total() == before or not (stay["key_change"] or stay["key_taken"]):
            break
    if reasons and not became.total() and not stay.total():
        require_none_refused(require_state(pipeline, log))
    return _outcome(log, became, stay, left, advise_on_refused(pipeline, begun))


def _retry_until_current(pipeline: Pipeline, log: str, path: str, reasons: Sequence[str]) -> SortedRecords:
    """Retries one file. Plans it again if an ingest commits in between, or another retry replaces the file."""
    for _ in range(_TRIES - 1):
        try:
            return _retry_file(pipeline, log, path, reasons)
        except ConflictError as error:
            _log.info("%s: %s", log, error)
        except (CorruptError, NotFoundError):
            if path in quarantine_files(require_state(pipeline, log)):
                raise
    return _retry_file(pipeline, log, path, reasons)


def _retry_file(pipeline: Pipeline, log: str, path: str, reasons: Sequence[str]) -> SortedRecords:
    state = require_state(pipeline, log)
    if path not in quarantine_files(state):
        return SortedRecords()  # Another retry has handled the file.
    records = list(read_refused(pipeline.store, state, path))
    asked = [one for one in records if not reasons or one.entry.reason in reasons]
    with reads_of(pipeline.store, log, state.change_sets):
        decided = list(decide_copies(pipeline.store, state, pipeline.log(log).feed, asked))
        parts = _sort_records(pipeline, state, [one for one, of in decided if of is None])
    became = {
        one.landed_line: "repeated" if what == "changes" else what for one, what in (*parts.settled, *parts.staying)
    }
    for one, of in decided:
        if of is not None:
            what = of if isinstance(of, str) else became.get(of.landed_line, "refused")
            (parts.settled if what in _BECAME else parts.staying).append((one, what))
    if parts.settled or parts.renewed:
        commit_resolved(pipeline, state, path, parts, records)
    return parts


def _sort_records(pipeline: Pipeline, state: LogState, records: Sequence[Refused]) -> SortedRecords:
    parts, possible = SortedRecords(), []
    for one in records:
        if is_skipped(state, one.landed):
            parts.staying.append((one, "left_out"))
        elif since(state, one.landed) <= state.truncated_to:
            parts.staying.append((one, "log_cut"))
        else:
            possible.append(one)
    texts = dict(_texts(pipeline, state.log, possible))
    feed = pipeline.log(state.log).feed
    source = source_of(feed) if feed else None
    zone = feed.options.get("time_zone") if feed else None
    within, horizon = partial(room, state), find_horizon(pipeline, state)
    how = horizon, feed.placeholder if feed else PLACEHOLDER, state.names, zone
    reads_again = can_read_again(pipeline.log(state.log).source, state)
    takes = [reads_again and (one.entry.reason == KEY_TAKEN_OVER or one.entry.since) for one in possible]
    needs_files = source and reads_again and (any(takes) or not source.reader(state.shape))
    files = source.listing(state).files if source and needs_files else None
    alone, looks = (
        look_again(source, state.shape, ones, lambda one: texts.get(one.landed_line), within, *how, files)
        for ones in (compress(possible, takes), compress(possible, map(not_, takes)))
    )
    former = {one.landed_line: one.entry for one in records}
    refused: list[RefusedKey] = []
    if any(look.moved or state.shape.key for look in [*alone, *looks]):
        entries = (one for path in quarantine_files(state) for one in read_refused(pipeline.store, state, path))
        refused = read_refused_keys(entries, state.shape)
    looks += [one for look in alone for one in decide_taken_keys(pipeline, state, source, files or (), look, refused)]
    awaited = _find_awaited(state, refused)
    for look in looks:
        why = "gone" if look.is_gone else "refused" if reads_again else "alone"
        parts.staying += [(one, _WAITS.get(one.entry.reason, why)) for one in look.refused]
        renewed = {one.landed_line: one.entry for one in look.refused}
        parts.renewed |= {at: entry for at, entry in renewed.items() if entry != former[at]}
        parts.settled += look.others
        if look.moved:
            completed = complete_key_changes(pipeline, state, look, refused)
            if completed.staying:
                _settle_superseded(pipeline, state, parts, look, completed, awaited)
            tables = [table for table in (look.table, completed.table) if table is not None]
            look.table, look.changes = pa.concat_tables(tables) if tables else None, [*look.changes, *completed.records]
        if look.table is not None:
            table = with_key_groups(look.table, state.shape)
            table = with_commit_times(table, state.shape, feed, horizon) if feed else table
            table = _with_batch(table, state, look.partition)
            _add_changes(pipeline, state, parts, look, table, awaited)
    return parts


def _find_awaited(state: LogState, refused: Sequence[RefusedKey]) -> Awaited:
    # A delete with the order of a refused record is the other half of a key change, whatever the reason of the refusal.
    orders = frozenset(one.order for one in refused if one.order is not None)
    # The other half of the last delete that landed may come with the next ingest.
    orders |= {p.stream.max_order for p in state.positions if p.stream.max_order}
    if not state.shape.order_width:
        orders |= {(p.partition, p.next_offset - back) for p in state.positions for back in (1, 2)}
    moved = [(one.old_key, one.order or _AFTER_ALL) for one in refused if one.is_moved and one.old_key]
    taken = [(one.key, one.since) for one in refused if one.since]
    return Awaited(orders, dict(sorted([*moved, *taken], key=itemgetter(1))), find_open(state))


def _with_batch(table: pa.Table, state: LogState, number: int) -> pa.Table:
    """Returns the changes of a file with its order, if names of files have no time: see `ChangeSet.batch`."""
    if not state.shape.orders_by_file or state.names is not NameReading.ANY:
        return table
    run = next(entry.run for entry in state.landed if entry.number == number)
    batch = next(entry.number for entry in state.landed if entry.run == run)
    name = order_columns(state.shape)[-1]
    values = pa.repeat(pa.scalar(batch, pa.int64()), table.num_rows)
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)


def _texts(pipeline: Pipeline, log: str, records: Sequence[Refused]) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yields each record's text: from the quarantine, or the landed file if the quarantine has only a part."""
    missing: dict[tuple[int, str], list[Refused]] = {}
    torn_lines: list[Refused] = []
    for one in records:
        if one.entry.reason == "TORN_LINE":
            torn_lines.append(one)
        elif (text := whole_text(one.entry)) is not None:
            yield one.landed_line, text
        else:
            missing.setdefault((one.landed.number, one.landed.name), []).append(one)
    feed, landing = pipeline.log(log).feed, pipeline.log(log).landing
    if feed is None or landing is None:
        return
    for torn in torn_lines:
        if (text := read_torn_line(feed, torn.landed)) is not None:
            yield torn.landed_line, text
    for lacking in missing.values():
        lines = read_landed_lines(feed, lacking[0].landed, {one.entry.line for one in lacking})
        yield from ((one.landed_line, lines[one.entry.line]) for one in lacking if one.entry.line in lines)


def _add_changes(
    pipeline: Pipeline, state: LogState, parts: SortedRecords, look: SecondLook, table: pa.Table, awaited: Awaited
) -> None:
    """Adds the records that no newer change of their key supersedes."""
    newer, proof = find_newer(pipeline.store, state, look, table), ResentProof(pipeline.store, state)
    decisions = []
    for row, one in zip(table.to_pylist(), look.changes, strict=True):
        resent = proof.judge(row, one)
        decision = Decision(resent) if resent else newer.decide(row, key_in(one.entry.record, state.shape), awaited)
        decisions.append(decision)
        settled = decision.what in _BECAME
        (parts.settled if settled else parts.staying).append((one, decision.what))
    kept = newer.with_again(table, decisions)
    if kept.num_rows:
        parts.tables.append((look, kept))


def _settle_superseded(
    pipeline: Pipeline, state: LogState, parts: SortedRecords, look: SecondLook, completed: Completed, awaited: Awaited
) -> None:
    """Settles records without values if newer changes give all of them: nobody needs these values any more."""
    ones, rows = zip(*completed.staying, strict=True)
    table = with_key_groups(pa.Table.from_pylist(list(rows), schema=change_schema(state.shape)), state.shape)
    newer = find_newer(pipeline.store, state, replace(look, changes=list(ones)), table, are_lost=True)
    for one, row in completed.staying:
        key = key_in(one.entry.record, state.shape)
        superseded = newer.decide({**row, "_absent": None}, key, replace(awaited, open=())).what == "repeated"
        (parts.settled if superseded else parts.staying).append((one, "repeated" if superseded else "key_change"))


def _outcome(log: str, became: Counter[str], stay: Counter[str], reasons: Counter[str], advice: str) -> Outcome:
    details = RetryDetails(
        records=became.total() + stay.total(),
        changes=became["changes"],
        repeated=became["repeated"],
        tombstones=became["tombstones"],
        ignored=became["ignored"],
        staying=stay.total(),
        why=dict(stay),
        reasons=dict(reasons),
    )
    if not details.records:
        return Outcome(log, Status.NOTHING, "no record is refused", details=details)
    parts = [f"{became[name]:,} {text}" for name, text in _BECAME.items() if became[name]]
    parts += [f"{stay[why]:,} stay: {text}" for why, text in _STAYS.items() if stay[why]]
    message = f"read {count_noun(details.records, 'refused record')} again: {'; '.join(parts)}"
    message += f". {advice.rstrip('.')}" if stay else ""
    return Outcome(log, Status.TAKEN if became.total() else Status.NOTHING, message, details=details)
