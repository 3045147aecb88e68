"""The outcome of an ingest of one log: its details, one line for people, and the problems of its landing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidefold.domain.landing_problems import (
    AT_ONCE,
    NO_PROBLEMS,
    REFUSED,
    UNLOADED,
    WAITING,
    LandingProblem,
    LandingProblems,
    find_failing,
    list_problems,
    with_first_seen,
)
from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import LandedFileRecord
from tidefold.domain.table.table_spec import VERSION
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Details, ErrorInfo, Outcome, Status, omit_if_none
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.stages import Accounted, Failed
from tidefold.operations.quarantine.next_step import advise_on_refused
from tidefold.sources.landing.streams import is_packed_name

_COUNTS = ("records", "changes", "tombstones", "repeated", "quarantined", "resent", "unproved", "ignored")
# The message shows these counts only if they are not zero.
_RARE = {"resent": "re-sent", "unproved": "unproved", "ignored": "ignored"}
_NAMED = 5
# The codes of problems with the name of a file.
_OF_NAMES = ("FOREIGN_FILE", "LANDED_NAME", "LANDED_TIME", "EXTRACT_NAME")
_SHOWN = 600
_SUMS = ("records", "changes", "tombstones", "ignored", "quarantined", "unproved", "forgotten", "repeated", "resent")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedDetails(Details):
    """What an ingest did not ingest. A failed ingest has only this.

    refused: refused records by reason.
    problems: the files that were not ingested, each with file, code, message and hint.
    """

    refused: Mapping[str, int] = field(default_factory=dict)
    problems: Sequence[Mapping[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestDetails(RefusedDetails):
    """What an ingest did with a log's landed files.

    files: how many files were ingested.
    records, changes, ... ignored: the counts of their records, see LandedFileRecord.
    run: the id of the run that ingested them.
    key_changes: how many changes of a key got their missing values.
    quarantine: the files in the store with the refused records.
    still_writing: the names of files whose end is not complete.
    no_local_copy: for each segment without a local copy, why.
    not_taken: how many files of the landing folder have a problem, by code.
    added: the columns that were added, with their types.
    extracts: the dates of the full extracts.
    unchanged: how many rows of the extracts the log had already; these count as ignored.
    missing: how many rows were deleted, because an extract lacks their keys; these count as records and changes.
    uploads: what the uploads of the segments cost.
    """

    files: int = 0
    records: int = 0
    changes: int = 0
    tombstones: int = 0
    repeated: int = 0
    quarantined: int = 0
    resent: int = 0
    unproved: int = 0
    ignored: int = 0
    run: str | None = None
    key_changes: int = 0
    quarantine: Sequence[str] = field(default_factory=list)
    still_writing: Sequence[str] = field(default_factory=list)
    no_local_copy: Sequence[str] = field(default_factory=list)
    not_taken: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[str, str] | None = omit_if_none()
    extracts: Sequence[str] | None = omit_if_none()
    unchanged: int | None = omit_if_none()
    missing: int | None = omit_if_none()
    uploads: UploadTotals | None = omit_if_none()


def describe_ingest(pipeline: Pipeline, accounted: Accounted) -> Outcome:
    """Returns the outcome of an ingest that ingested files."""
    details = _details(accounted)
    parts = [f"{getattr(details, name):,} {name}" for name in _COUNTS[1:5]]
    parts += [f"{getattr(details, name):,} {word}" for name, word in _RARE.items() if getattr(details, name)]
    parts += [f"{accounted.completed:,} changes of a key completed"] if accounted.completed else []
    # A retry within this run may have completed some.
    refused = not accounted.completed and _has_only_refused(accounted.state, [a.landed for a in accounted.arrivals])
    feed = accounted.listed.feed
    files = count_noun(details.files, "version" if feed and feed.format.startswith("delta") else "file")
    if accounted.extract:
        parts = [f"{details.changes:,} changes ({accounted.extract.missing:,} of them deletes)"]
        parts += [f"{accounted.extract.unchanged:,} rows unchanged", f"{details.quarantined:,} quarantined"]
        files = f"extract {accounted.extract.name}"
    message = f"{'refused' if refused else 'took'} {files}: {', '.join(parts)}"
    status = Status.REFUSED if refused else Status.TAKEN
    return _with_problem(Outcome(accounted.log, status, message, details=details), pipeline, accounted)


def describe_nothing(pipeline: Pipeline, accounted: Accounted) -> Outcome:
    """Returns the outcome of an ingest that found nothing to ingest."""
    outcome = Outcome(accounted.log, Status.NOTHING, "nothing new", details=_details(accounted))
    return _with_problem(outcome, pipeline, accounted)


def describe_failure(failed: Failed) -> Outcome:
    """Returns the outcome of an ingest whose log did not change."""
    details = RefusedDetails(refused=failed.accounted.refused, problems=_problems(failed.accounted))
    return replace(Outcome.of_error(failed.log, failed.error), details=details)


def join_outcomes(first: Outcome, further: Outcome, types: Mapping[str, str]) -> Outcome:
    """Joins the outcomes of two rounds: an extract comes after another, or these columns were added between them."""
    before = first.details if isinstance(first.details, IngestDetails) else IngestDetails()
    message = f"{first.message}; {further.message}"
    if types:
        columns = ", ".join(f"`{name}` {type_}" for name, type_ in types.items())
        message = f"ingested {before.changes:,} changes, added {columns} from the source; {further.message}"
    if not isinstance(further.details, IngestDetails) and not types:
        return replace(further, message=message)
    after = further.details if isinstance(further.details, IngestDetails) else IngestDetails()
    refusals = further.details if isinstance(further.details, RefusedDetails) else RefusedDetails()
    details = replace(
        after,
        **{name: getattr(before, name) + getattr(after, name) for name in (*_COUNTS, "files")},
        refused=dict(Counter(before.refused) + Counter(refusals.refused)),
        problems=refusals.problems,
        quarantine=sorted({*before.quarantine, *after.quarantine}),
        added={**types, **(after.added or {})} or None,
        extracts=[*(before.extracts or ()), *(after.extracts or ())] or None,
        unchanged=_add(before.unchanged, after.unchanged),
        missing=_add(before.missing, after.missing),
    )
    return replace(further, message=message, details=details)


def _add(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


def format_reasons(accounted: Accounted) -> str:
    """Lists the reasons of refused records with their numbers."""
    return ", ".join(f"{number} {reason}" for reason, number in accounted.refused.items())


def _with_problem(outcome: Outcome, pipeline: Pipeline, accounted: Accounted) -> Outcome:
    """Adds remarks to the outcome, and an error if one is due. What the log has ingested stays.

    `stopped`: a record with another schema stopped a partition. `incomplete`: by the log's policy, a file that was
    not ingested makes the run fail.
    """
    outcome = replace(outcome, message="; ".join([outcome.message, *_remarks(accounted)]))
    if stop := next((problem for problem in accounted.all_problems if problem.stops), None):
        message = f"{stop.error} ({outcome.message})"
        return replace(outcome, status=Status.STOPPED, message=message, error=ErrorInfo.of(stop.error))
    left = accounted.landing or NO_PROBLEMS
    policy = pipeline.log(accounted.log).on_bad_file
    lost = {problem.file for problem in accounted.all_problems if problem.code in AT_ONCE and not problem.passing}
    failing = find_failing(left, accounted.listed.begun.landing, policy, lost)
    if failing is None and policy != "warn":
        # Every landed file is ignored for its name, or every new record was refused: nobody wants such a run.
        is_refused = outcome.status is Status.REFUSED
        took_nothing = is_refused or _has_only_refused(accounted.state, accounted.state.landed)
        codes = _OF_NAMES if not accounted.listed.files else (REFUSED,) if took_nothing else ()
        failing = next((problem for problem in left.listed if problem.code in codes), None)
        failing = failing or (_blame_run(pipeline, accounted) if is_refused else None)
    if failing is None:
        return outcome
    error = InvalidInputError(failing.code, f"{failing.message.rstrip('.')}, since {failing.since}.", hint=failing.hint)
    message = f"{error}{left.others(accounted.log)} ({outcome.message})"
    return replace(outcome, status=Status.INCOMPLETE, message=message, error=ErrorInfo.of(error))


def _has_only_refused(state: LogState, entries: Sequence[LandedFileRecord]) -> bool:
    """Whether nothing of these files counted, and records of them were refused."""
    refused = sum(entry.quarantined for entry in entries)
    if state.shape.order == VERSION:  # Of an extract, each row that did not change was read, and is ignored.
        return 0 < refused == sum(entry.records for entry in entries)
    return refused > 0 and not any(entry.brought for entry in entries)


def _blame_run(pipeline: Pipeline, accounted: Accounted) -> LandingProblem:
    """Returns the problem of a run whose files are no problem: they had other records before, or they are gone."""
    names = [a.landed.name for a in accounted.arrivals if a.landed.quarantined]
    number = sum(a.landed.quarantined for a in accounted.arrivals)
    message = f"All {number:,} new records of this run were refused, the first in `{names[0]}`."
    return LandingProblem(
        names[0],
        REFUSED,
        message,
        advise_on_refused(pipeline, accounted.state),
        since=accounted.arrivals[0].landed.instant,
    )


def _remarks(accounted: Accounted) -> list[str]:
    left, remarks = accounted.planned.plan.left, []
    if left:
        quotes = {name: f" (an open quote, line {end.quote:,})" for name, end in left.items() if end.quote}
        named = [f"`{name}`{quotes.get(name, '')}" for name in list(left)[:_NAMED]]
        names = ", ".join([*named, *(["..."] if len(left) > _NAMED else [])])
        remarks.append(f"{count_noun(len(left), 'file')} still being written: {names}")
    if accounted.extract and accounted.extract.kept:
        remarks.append(
            f"{accounted.extract.kept:,} rows stay although the extract lacks their keys: some of its rows were refused"
        )
    if accounted.refused:
        where = ", ".join(sorted({a.landed.quarantine for a in accounted.arrivals if a.landed.quarantine}))
        remarks.append(f"refused: {format_reasons(accounted)}, see {where} in the store")
    if accounted.no_copies:
        remarks.append(f"{len(accounted.no_copies):,} segments without a local copy: {accounted.no_copies[0]}")
    remarks += [accounted.planned.waits] if accounted.planned.waits else []
    if earlier := sum(_is_known(a.landed) for a in accounted.arrivals):
        remarks.append(f"{count_noun(earlier, 'file')} known from before the rebuild or import; nothing to do")
    remarks += [str(problem) for problem in accounted.all_problems if not problem.stops]
    return remarks + [str(problem) for problem in _find_warnings(accounted)]


def _is_known(landed: LandedFileRecord) -> bool:
    """Whether the log had all records of the file before it was imported, or its ledger was rebuilt."""
    return 0 < landed.forgotten == landed.records - landed.repeated


def _find_warnings(accounted: Accounted) -> list[LandingProblem]:
    """Returns the problems of files that this run ingested."""
    taken = {arrival.landed.name for arrival in accounted.arrivals}
    codes = {problem.code for problem in accounted.all_problems} | {WAITING}
    return [
        p for p in (accounted.landing.listed if accounted.landing else ()) if p.file in taken and p.code not in codes
    ]


def _details(accounted: Accounted) -> IngestDetails:
    counts = {name: sum(getattr(a.landed, name) for a in accounted.arrivals) for name in _COUNTS}
    # Records that a retry within this run completed are changes now.
    here = counts["quarantined"] - sum(accounted.refused.values()) if accounted.completed else 0
    counts["quarantined"] -= here
    counts["changes"] += here
    extract = accounted.extract
    return IngestDetails(
        files=sum(bool(a.landed.length) for a in accounted.arrivals) if extract else len(accounted.arrivals),
        extracts=[extract.name] if extract else None,
        unchanged=extract.unchanged if extract else None,
        missing=extract.missing if extract else None,
        **counts,
        run=next((a.landed.run for a in accounted.arrivals), None),
        refused=accounted.refused,
        key_changes=accounted.completed,
        quarantine=sorted({a.landed.quarantine for a in accounted.arrivals if a.landed.quarantine}),
        still_writing=list(accounted.planned.plan.left),
        no_local_copy=list(accounted.no_copies),
        not_taken=dict((accounted.landing or NO_PROBLEMS).counts),
        problems=_problems(accounted),
        uploads=accounted.uploads if accounted.uploads.segments else None,
    )


def _problems(accounted: Accounted) -> list[Mapping[str, str]]:
    return [{"file": p.file, "code": p.code, "message": p.message, "hint": p.hint} for p in accounted.all_problems]


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
                "Wait while the file is being written. If its writer is done, end the last line with a line end, or "
                "land a complete copy under the same name."
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
    elif _has_only_refused(state, entries):
        number, others = count["quarantined"], count["records"] - count["quarantined"]
        which = "The only record" if number == 1 else f"All {number:,} records"
        message = f"{which} of `{name}` {'was' if number == 1 else 'were'} refused."
        message += f" {others:,} more change no row." if others else ""
        hint = f"`tidefold quarantine show {state.log}` prints each with its reason. {advice}"
        yield LandingProblem(name, "LANDED_REFUSED", message, hint, fails=alone)
    elif count["forgotten"]:
        return  # Known from before an import or a rebuild.
    elif not count["changes"] + count["tombstones"] + count["ignored"] + count["quarantined"]:
        message = (
            f"`{name}` has no new record: {count['repeated']:,} have offsets that were ingested before, and the source "
            f"sent {count['resent']:,} again."
        )
        hint = (
            "If its records should be new, check whether its name repeats the offsets of an earlier file. Or remove it."
        )
        if alone:
            message = f"`{name}` has the bytes of a file that was ingested before, so its records are not new."
            hint = "Remove it. If its rows are new arrivals, land them in a file with other bytes."
        if count["resent"] and is_open:
            hint = (
                f"Copies of refused records at other offsets are not new, because the source sent them before. {advice}"
            )
        yield LandingProblem(name, "LANDED_NOTHING_NEW", message, hint, fails=False)


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
