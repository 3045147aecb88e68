"""The problems of a landing folder after an ingest: files that were not ingested, or had nothing new, and lost rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidefold.domain.landing_problems import UNLOADED, LandingProblem, LandingProblems, list_problems, with_first_seen
from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import LandedFileRecord
from tidefold.domain.table.table_spec import VERSION
from tidefold.operations.ingest.stages import Accounted
from tidefold.sources.landing.folders import start_in
from tidefold.sources.landing.streams import is_packed_name

_SHOWN = 600
_SUMS = ("records", "changes", "tombstones", "ignored", "quarantined", "unproved", "forgotten", "repeated", "resent")


def find_problems(accounted: Accounted, folder: str | None, instant: str, advice: str) -> LandingProblems:
    """Returns all problems of the landing folder after this run.

    folder: its path or address; None: it has none.
    advice: the next step for refused records.
    """
    not_taken = (
        LandingProblem(p.file, p.code, p.message[:_SHOWN], p.hint[:_SHOWN], size=p.size, changed=p.changed)
        for p in accounted.all_problems
    )
    every = (*not_taken, *_find_waiting(accounted), *_find_useless(accounted, advice), *_find_missing_rows(accounted))
    problems = {(p.file, p.code): p for p in every}
    listed = replace(list_problems(problems.values()), topic=accounted.planned.landed.topic)
    stamped = replace(listed, listed=tuple(_add_stamp(p, accounted, folder) for p in listed.listed))
    return with_first_seen(stamped, accounted.listed.begun.landing, instant)


def _find_waiting(accounted: Accounted) -> Iterator[LandingProblem]:
    sizes = {file.name: file.size for file in accounted.listed.files}
    for name, ending in accounted.planned.plan.left.items():
        if ending.quote:
            message = f"Line {ending.quote:,} of `{name}`, or a later one, opens a quote that nothing closes. "
            message += "That line and all after it are not ingested."
            hint = (
                'Wait while the file is being written. If its writer is done, close the quote, or set `quote: ""` '
                "under `source` if no value is quoted. Land the corrected file under the same name."
            )
        elif sizes.get(name) and is_packed_name(name):
            message = f"`{name}` is cut off: its {'zstandard' if name.endswith('.zst') else 'gzip'} data ends early. "
            message += "Nothing of it is ingested."
            hint = "Wait while the file is being written. If its writer is done, land the whole file again."
        elif sizes.get(name):
            message = f"`{name}` does not end with a complete record. The incomplete end is not ingested yet."
            hint = (
                "Wait while the file is being written. If its writer is done and the last line is whole, end it with a "
                "line end. Else land a complete copy under the same name. If its records came under another name, "
                "remove this file, or name it in `leave_out` under `source`."
            )
        else:
            message, hint = (
                f"`{name}` is empty.",
                "Wait while the file is being written. If its writer is done, remove the file.",
            )
        yield LandingProblem(name, "LANDED_WAITING", message, hint, fails=bool(sizes.get(name)))


def _find_missing_rows(accounted: Accounted) -> Iterator[LandingProblem]:
    """Yields a stream of Debezium that begins without a snapshot, until rows of one, or of a load, come.

    Not behind the first snapshot of the log: the table may have been empty, which nothing shows later.
    """
    begun, feed = accounted.listed.begun, accounted.listed.feed
    taken = [a.landed for a in accounted.arrivals]
    results = (accounted.results[one.name].account for one in taken)
    if begun.latest is not None or not feed or "loaded" not in feed.options:
        return
    if any(one and one.snapshot_rows for one in results):
        return
    yield from (p for p in begun.landing.listed if p.code == UNLOADED)
    if taken and not any(one.stream.max_order for one in begun.positions):
        first = min(taken, key=lambda one: (one.partition, one.first_offset))
        message = (
            f"`{first.name}` begins with a change, at offset {first.first_offset}, and has no rows of a snapshot. Rows "
            "that have not changed since are missing."
        )
        hint = (
            f"Load them: `tidefold source load {accounted.log} --connection NAME` (PostgreSQL). Or let Debezium take "
            "an incremental snapshot. If the table was empty before, nothing is missing."
        )
        yield LandingProblem(first.name, "SOURCE_SNAPSHOT_MISSING", message, hint, fails=False)


def _find_useless(accounted: Accounted, advice: str) -> Iterator[LandingProblem]:
    """Yields files that were ingested, still exist, and had nothing new."""
    alone = {file.name: file.alone for file in accounted.listed.files}
    accounts: dict[str, list[LandedFileRecord]] = {}
    landed = accounted.state.landed
    is_open = any(entry.quarantined for entry in landed)
    for entry in landed:
        if entry.name in alone and (entry.quarantined or entry.repeated or entry.resent or entry.unproved):
            accounts.setdefault(entry.name, []).append(entry)
    for name, entries in accounts.items():
        yield from _judge_file(name, accounted.state, entries, advice, is_open=is_open, alone=alone[name])


def _judge_file(
    name: str, state: LogState, entries: Sequence[LandedFileRecord], advice: str, *, is_open: bool, alone: bool
) -> Iterator[LandingProblem]:
    count = {one: sum(getattr(entry, one) for entry in entries) for one in _SUMS}
    unproved = count["unproved"] - count["forgotten"]
    if unproved:
        message = (
            f"`{name}` has {unproved:,} records at offsets that were ingested before. They were not ingested. "
            "The file with the earlier records is gone or was edited, so tidefold cannot compare them."
        )
        hint = (
            "If they are new records, land them under the next free offsets. Otherwise move the file out of the "
            "landing folder."
        )
        yield LandingProblem(name, "LANDED_UNPROVED", message, hint, fails=False)
    elif has_only_refused(state, entries):
        number, others = count["quarantined"], count["records"] - count["quarantined"]
        had_more = any(one.name == name and one not in entries for one in state.landed)
        records = "new record" if had_more else "record"
        which = f"The only {records}" if number == 1 else f"All {number:,} {records}s"
        message = f"{which} of `{name}` {'was' if number == 1 else 'were'} refused."
        message += f" {others:,} more change no row." if others else ""
        hint = f"`tidefold quarantine show {state.log}` prints each with its reason. {advice}"
        yield LandingProblem(name, "LANDED_REFUSED", message, hint, fails=alone)
    elif count["forgotten"]:
        return  # Known from before an import or a rebuild.
    elif not count["changes"] + count["tombstones"] + count["ignored"] + count["quarantined"]:
        earlier = _find_earlier(state, entries[-1], alone=alone)
        message = (
            f"`{name}` has no new record: {count['repeated']:,} have offsets that were ingested before"
            f"{f' from `{earlier}`' if earlier else ''}, and the source sent {count['resent']:,} again."
        )
        hint = (
            "If its records should be new, check whether its name repeats the offsets of an earlier file. Or remove it."
        )
        if alone:
            which = f"`{earlier}`, which" if earlier else "a file that"
            message = f"`{name}` has the bytes of {which} was ingested before, so its records are not new."
            hint = "Remove it. If its rows are new arrivals, land them in a file with other bytes."
        if count["resent"] and is_open:
            hint = (
                f"Copies of refused records at other offsets are not new, because the source sent them before. {advice}"
            )
        yield LandingProblem(name, "LANDED_NOTHING_NEW", message, hint, fails=False)


def _find_earlier(state: LogState, entry: LandedFileRecord, *, alone: bool) -> str:
    """Returns the name of the file that brought the bytes of a copy, or the first of its offsets; empty: not known."""
    start = start_in(entry.name.rpartition("/")[2])
    for one in state.landed:
        is_same = (one.checksum, one.length) == (entry.checksum, entry.length)
        has_start = one.partition == entry.partition and one.first_offset <= start < one.next_offset
        if one.name != entry.name and not one.is_copy and (is_same if alone else has_start):
            return one.name
    return ""


def has_only_refused(state: LogState, entries: Sequence[LandedFileRecord]) -> bool:
    """Whether nothing of these files counted, and records of them were refused."""
    refused = sum(entry.quarantined for entry in entries)
    if state.shape.order == VERSION:  # Of an extract, each row that did not change was read, and is ignored.
        return 0 < refused == sum(entry.records for entry in entries)
    return refused > 0 and not any(entry.brought for entry in entries)


def _add_stamp(problem: LandingProblem, accounted: Accounted, folder: str | None) -> LandingProblem:
    """Adds size and modification time of the file to a problem, if the file can be read."""
    stamp = next((file.stamp for file in accounted.listed.files if file.name == problem.file), None)
    if stamp:
        return replace(problem, size=stamp.size, changed=stamp.changed)
    if problem.changed or folder is None or "://" in folder:
        return problem
    try:
        stat = os.stat(f"{folder}/{problem.file}", follow_symlinks=False)
    except (OSError, ValueError):
        return problem
    return replace(problem, size=stat.st_size, changed=stat.st_mtime)
