"""Decides refused records that do not show which of two rows under a key they mean (decision 0069).

The log shows whether the key had a row before the transaction, and which. With that, the file is read once more: the
same reader follows the transaction, and says what each refused record does.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import DELETE, change_schema
from tidefold.domain.ingest.quarantine_retry import stream_before
from tidefold.domain.log_state import LogState, TableSpec
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quarantine import key_changes
from tidefold.operations.quarantine.newer_changes import Key, Row, key_of_row, place_of_row
from tidefold.sources.api import Source
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.plan import BEFORE, FileTask
from tidefold.sources.quarantine.reparse import Refused, SecondLook, read_file_again, renew_reason
from tidefold.sources.records.change_batches import to_decoded
from tidefold.sources.records.errors import KEY_TAKEN_OVER, RefusedRecordError


@dataclass(slots=True)
class _Asked:
    """A refused record, its change as it looks alone, and its key as decoded rows have it."""

    one: Refused
    row: Row
    key: Key


def decide_taken_keys(
    pipeline: Pipeline,
    state: LogState,
    source: Source | None,
    files: Sequence[LandedFile],
    look: SecondLook,
    refused: Collection[key_changes.RefusedKey],
) -> Iterator[SecondLook]:
    """Yields the result for each file. Records that wait for rows, or for their file, stay refused.

    look: the records, read alone. refused: all refused records of the log.
    """
    yield SecondLook(look.topic, look.partition, refused=look.refused, others=look.others)
    if look.table is None or source is None:
        return
    shape = state.shape
    decoded = zip(*(to_decoded(look.table.column(name)) for name in shape.key), strict=True)
    asked = [_Asked(*one) for one in zip(look.changes, look.table.to_pylist(), decoded, strict=True)]
    asked.sort(key=lambda one: place_of_row(one.row, shape))
    wanted = sorted((one.one.entry.since, key_of_row(one.row, shape)) for one in asked if one.one.entry.since)
    prior = key_changes.read_known_rows(pipeline, state, [(key, since) for since, key in wanted]) if wanted else None
    waiting = list(refused)
    for name, group in groupby(asked, key=lambda one: one.one.landed.name):
        members = list(group)
        result = SecondLook(look.topic, look.partition, refused=[_renew(one.one) for one in members])
        if prior is not None:
            _read_again(state, source, _task_of(state, files, members), members, prior, waiting, result)
        yield result
        left = {one.entry.line for one in result.refused}
        waiting = [one for one in waiting if one.file != name or one.line in left]


def _renew(one: Refused) -> Refused:
    """The record, which can be read now, but does not show which row it means."""
    if one.entry.reason == KEY_TAKEN_OVER:
        return one
    return renew_reason(one, RefusedRecordError(KEY_TAKEN_OVER, "It may mean another row of its key."))


def _task_of(state: LogState, files: Sequence[LandedFile], members: Sequence[_Asked]) -> FileTask | None:
    """The file as its ingest read it from its beginning; None: it is gone."""
    landed = members[-1].one.landed
    queue = [file for file in files if file.name == landed.name or file.partition == landed.partition]
    at = next((at for at, file in enumerate(queue) if file.name == landed.name), None)
    if at is None:
        return None
    first = next(entry for entry in state.landed if entry.name == landed.name)
    before = tuple(reversed(queue[max(0, at - BEFORE) : at]))
    return FileTask(
        queue[at],
        landed.length,
        next_offset=queue[at].start,
        stream=stream_before(state, first),
        before=before,
        log_begin=min(entry.first_offset for entry in state.landed if entry.partition == landed.partition),
    )


def _read_again(
    state: LogState,
    source: Source,
    task: FileTask | None,
    members: Sequence[_Asked],
    prior: key_changes.KnownRows,
    waiting: Sequence[key_changes.RefusedKey],
    result: SecondLook,
) -> None:
    """Reads a file again with what the log had under the keys, and sorts its records into `result`."""
    shape, formers = state.shape, dict[Key, dict[tuple[int, ...], bool]]()
    others = [one for one in waiting if one.file != members[0].one.entry.file]
    for one in members:
        since = one.one.entry.since
        if one.key not in formers and since and (former := _find_former(one, prior, shape, others)) is not None:
            formers[one.key] = {since: bool(former)}
    again = read_file_again(source, shape, replace(task, formers=formers) if task else None, members[-1].one.landed)
    if again is None:
        result.is_gone = True
        return
    table, refusals = again
    offsets = pa.array([one.row["_offset"] for one in members], pa.int64())
    came = table.filter(pc.is_in(table.column("_offset"), offsets)).to_pylist() if table else ()
    rows, result.refused, settled = {row["_offset"]: row for row in came}, [], []
    for one in members:
        row = rows.get(one.row["_offset"])
        if refused := refusals.get(one.one.entry.line):
            result.refused.append(renew_reason(one.one, refused))
            continue
        if one.key not in formers:  # Then the reader did not follow the key.
            result.refused.append(_renew(one.one))
            continue
        if row is None:
            result.others.append((one.one, "ignored"))
            continue
        if one.row["_op"] == DELETE and row["_absent"]:  # The row from before the transaction is there again.
            former = _find_former(one, prior, shape, others)
            if not former:
                result.refused.append(_renew(one.one))
                continue
            row.update(former, _absent=None)
        settled.append(row)
        result.changes.append(one.one)
        insort(prior.events[key_of_row(row, shape)], (place_of_row(row, shape), row), key=itemgetter(0))
    result.table = pa.Table.from_pylist(settled, schema=change_schema(shape)) if settled else None


def _find_former(
    one: _Asked, prior: key_changes.KnownRows, shape: TableSpec, refused: Collection[key_changes.RefusedKey]
) -> Row | None:
    """Returns the row that a key had before the transaction; empty: it had none; None: that is not known (yet)."""
    key, since, names = key_of_row(one.row, shape), one.one.entry.since, [c.name for c in shape.columns]
    row, whole_at, is_sure = key_changes.find_row(key, since, one.row["_ts"], prior, shape)
    texts = tuple(map(str, key)), key_changes.key_in(one.one.entry.record, shape)
    if not is_sure(names) or key_changes.is_in_doubt(refused, texts, since, whole_at):
        return None
    if row is None:
        return {}
    return {name: row[name] for name in names} if all(name in row for name in names) else None
