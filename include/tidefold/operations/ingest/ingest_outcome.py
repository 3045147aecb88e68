"""The outcome of an ingest of one log: its details, and one line for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidefold.domain.landing_problems import (
    AT_ONCE,
    NO_PROBLEMS,
    REFUSED,
    WAITING,
    LandingProblem,
    find_failing,
    group_by_reason,
)
from tidefold.domain.source_progress import LandedFileRecord
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Details, ErrorInfo, Outcome, Status, omit_if_none
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.landing_problems import has_only_refused
from tidefold.operations.ingest.stages import Accounted, Failed
from tidefold.operations.quarantine.next_step import advise_on_refused

_COUNTS = ("records", "changes", "tombstones", "repeated", "quarantined", "resent", "unproved", "ignored")
# The message shows these counts, and that of tombstones, only if they are not zero.
_SHOWN = {name: name for name in ("repeated", "quarantined", "resent", "unproved", "ignored")} | {"resent": "re-sent"}
_NAMED = 5
# The codes of problems with the name of a file.
_OF_NAMES = ("FOREIGN_FILE", "LANDED_NAME", "LANDED_TIME", "EXTRACT_NAME")


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
    parts = [count_noun(details.changes, "change")]
    parts += [count_noun(details.tombstones, "tombstone")] if details.tombstones else []
    parts += [f"{getattr(details, name):,} {word}" for name, word in _SHOWN.items() if getattr(details, name)]
    parts += [f"{count_noun(accounted.completed, 'change')} of a key completed"] if accounted.completed else []
    # A retry within this run may have completed some.
    refused = not accounted.completed and has_only_refused(accounted.state, [a.landed for a in accounted.arrivals])
    feed = accounted.listed.feed
    files = count_noun(details.files, "version" if feed and feed.format.startswith("delta") else "file")
    summary = _describe_extracts(details) if details.extracts else f"{files}: {', '.join(parts)}"
    message = f"{'refused' if refused else 'took'} {summary}"
    status = Status.REFUSED if refused else Status.TAKEN
    return _with_problem(Outcome(accounted.log, status, message, details=details), pipeline, accounted)


def _describe_extracts(details: IngestDetails) -> str:
    names = details.extracts or ()
    which = f"extract {names[0]}" if len(names) == 1 else f"{len(names):,} extracts, {names[0]} to {names[-1]}"
    refused = f", {details.quarantined:,} quarantined" if details.quarantined else ""
    changes = f"{count_noun(details.changes, 'change')} ({details.missing or 0:,} of them deletes)"
    return f"{which}: {changes}, {count_noun(details.unchanged or 0, 'row')} unchanged{refused}"


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
        message = f"ingested {count_noun(before.changes, 'change')}, added {columns} from the source; {further.message}"
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
    sums = [f"took {_describe_extracts(one)}" for one in (before, after, details) if one.extracts]
    if len(sums) == 3 and first.message.startswith(sums[0]) and further.message.startswith(sums[1]) and not types:
        remarks = first.message.removeprefix(sums[0]), further.message.removeprefix(sums[1])
        message = f"{sums[2]}{''.join(dict.fromkeys(remarks))}"
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
    counts, remarks = outcome.message, _remarks(accounted)
    outcome = replace(outcome, message="; ".join([counts, *remarks]))
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
        took_nothing = is_refused or has_only_refused(accounted.state, accounted.state.landed)
        codes = _OF_NAMES if not accounted.listed.files else (REFUSED,) if took_nothing else ()
        failing = next((problem for problem in left.listed if problem.code in codes), None)
        failing = failing or (_blame_run(pipeline, accounted) if is_refused else None)
    if failing is None:
        return outcome
    error = InvalidInputError(failing.code, f"{failing.message.rstrip('.')}, since {failing.since}.", hint=failing.hint)
    others = "; ".join([counts, *(remark for remark in remarks if remark != str(failing))])
    message = f"{error}{left.others(accounted.log)} ({others})"
    return replace(outcome, status=Status.INCOMPLETE, message=message, error=ErrorInfo.of(error))


def _blame_run(pipeline: Pipeline, accounted: Accounted) -> LandingProblem:
    """Returns the problem of a run whose files are no problem: they had other records before, or they are gone."""
    names = [a.landed.name for a in accounted.arrivals if a.landed.quarantined]
    number = sum(a.landed.quarantined for a in accounted.arrivals)
    which = "The only new record" if number == 1 else f"All {number:,} new records"
    message = f"{which} of this run {'was' if number == 1 else 'were'} refused, the first in `{names[0]}`."
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
    # The first problem that stops the log is its error.
    _, *others = group_by_reason(problem for problem in accounted.all_problems if problem.stops) or [[]]
    remarks += [f"{first} {first.hint.rstrip('.')}" for first, *_ in others]
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
