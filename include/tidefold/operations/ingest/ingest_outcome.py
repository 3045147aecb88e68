"""The outcome of an ingest of one log: its details, and one line for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidefold.domain.landing_problems import NO_PROBLEMS, WAITING, LandingProblem, find_failing
from tidefold.domain.source_progress import LandedFileRecord
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.operations.ingest.log_ingest import LogIngest
from tidefold.operations.outcome import Details, ErrorInfo, Outcome, Status, omit_if_none
from tidefold.operations.pipeline import Pipeline

_COUNTS = ("records", "changes", "tombstones", "repeated", "quarantined", "resent", "unproved", "ignored")
# The message shows these counts only if they are not zero.
_RARE = {"resent": "re-sent", "unproved": "unproved", "ignored": "ignored"}
_NAMED = 5


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


def describe_ingest(pipeline: Pipeline, intake: LogIngest) -> Outcome:
    """Returns the outcome of an ingest that ingested files."""
    details = _details(intake)
    parts = [f"{getattr(details, name):,} {name}" for name in _COUNTS[1:5]]
    parts += [f"{getattr(details, name):,} {word}" for name, word in _RARE.items() if getattr(details, name)]
    parts += [f"{intake.completed:,} changes of a key completed"] if intake.completed else []
    refused = all(a.landed.records == a.landed.quarantined > 0 for a in intake.arrivals)
    files = count_noun(details.files, "file")
    if intake.extract:
        parts = [f"{details.changes:,} changes ({intake.extract.missing:,} of them deletes)"]
        parts += [f"{intake.extract.unchanged:,} rows unchanged", f"{details.quarantined:,} quarantined"]
        files = f"extract {intake.extract.name}"
    message = f"{'refused' if refused else 'took'} {files}: {', '.join(parts)}"
    status = Status.REFUSED if refused else Status.TAKEN
    return _with_problem(Outcome(intake.log, status, message, details=details), pipeline, intake)


def describe_nothing(pipeline: Pipeline, intake: LogIngest) -> Outcome:
    """Returns the outcome of an ingest that found nothing to ingest."""
    outcome = Outcome(intake.log, Status.NOTHING, "nothing new", details=_details(intake))
    return _with_problem(outcome, pipeline, intake)


def describe_failure(intake: LogIngest, error: TidefoldError) -> Outcome:
    """Returns the outcome of an ingest whose log did not change."""
    details = RefusedDetails(refused=dict(intake.refused), problems=_problems(intake))
    return replace(Outcome.of_error(intake.log, error), details=details)


def join_outcomes(first: Outcome, further: Outcome, types: Mapping[str, str]) -> Outcome:
    """Joins the outcomes of two ingests, between which these columns were added."""
    before = first.details if isinstance(first.details, IngestDetails) else IngestDetails()
    after = further.details if isinstance(further.details, IngestDetails) else IngestDetails()
    refused = further.details.refused if isinstance(further.details, RefusedDetails) else {}
    details = replace(
        after,
        **{name: getattr(before, name) + getattr(after, name) for name in (*_COUNTS, "files")},
        refused=dict(Counter(before.refused) + Counter(refused)),
        problems=further.details.problems if isinstance(further.details, RefusedDetails) else [],
        quarantine=sorted({*before.quarantine, *after.quarantine}),
        added={**types, **(after.added or {})},
    )
    columns = ", ".join(f"`{name}` {type_}" for name, type_ in types.items())
    message = f"ingested {before.changes:,} changes, added {columns} from the source; {further.message}"
    return replace(further, message=message, details=details)


def join_extracts(first: Outcome, further: Outcome) -> Outcome:
    """Joins the outcomes of two extracts that were ingested one after the other."""
    before = first.details if isinstance(first.details, IngestDetails) else IngestDetails()
    message = f"{first.message}; {further.message}"
    if not isinstance(further.details, IngestDetails):
        return replace(further, message=message)
    after = further.details
    details = replace(
        after,
        **{name: getattr(before, name) + getattr(after, name) for name in (*_COUNTS, "files")},
        refused=dict(Counter(before.refused) + Counter(after.refused)),
        quarantine=sorted({*before.quarantine, *after.quarantine}),
        extracts=[*(before.extracts or ()), *(after.extracts or ())],
        unchanged=(before.unchanged or 0) + (after.unchanged or 0),
        missing=(before.missing or 0) + (after.missing or 0),
    )
    return replace(further, message=message, details=details)


def format_reasons(intake: LogIngest) -> str:
    """Lists the reasons of refused records with their numbers."""
    return ", ".join(f"{number} {reason}" for reason, number in intake.refused)


def _with_problem(outcome: Outcome, pipeline: Pipeline, intake: LogIngest) -> Outcome:
    """Adds remarks to the outcome, and an error if one is due. What the log has ingested stays.

    `stopped`: a record with another schema stopped a partition. `incomplete`: by the log's policy, a file that was
    not ingested makes the run fail.
    """
    outcome = replace(outcome, message="; ".join([outcome.message, *_remarks(intake)]))
    if stop := next((problem for problem in intake.all_problems if problem.stops), None):
        message = f"{stop.error} ({outcome.message})"
        return replace(outcome, status=Status.STOPPED, message=message, error=ErrorInfo.of(stop.error))
    left = intake.landing or NO_PROBLEMS
    failing = find_failing(left, intake.begun.landing, pipeline.log(intake.log).on_bad_file)
    if failing is None:
        return outcome
    others = f" ({left.total - 1:,} more, see `tidefold status {intake.log}`)" if left.total > 1 else ""
    error = InvalidInputError(failing.code, f"{failing.message.rstrip('.')}, since {failing.since}.", hint=failing.hint)
    message = f"{error}{others} ({outcome.message})"
    return replace(outcome, status=Status.INCOMPLETE, message=message, error=ErrorInfo.of(error))


def _remarks(intake: LogIngest) -> list[str]:
    left, remarks = intake.plan.left, []
    if left:
        names = ", ".join([*(f"`{name}`" for name in left[:_NAMED]), *(["..."] if len(left) > _NAMED else [])])
        remarks.append(f"{count_noun(len(left), 'file')} still being written: {names}")
    if intake.extract and intake.extract.kept:
        remarks.append(
            f"{intake.extract.kept:,} rows stay although the extract lacks their keys: some of its rows were refused"
        )
    if intake.refused:
        where = ", ".join(sorted({a.landed.quarantine for a in intake.arrivals if a.landed.quarantine}))
        remarks.append(f"refused: {format_reasons(intake)}, see {where} in the store")
    if intake.no_copies:
        remarks.append(f"{len(intake.no_copies):,} segments without a local copy: {intake.no_copies[0]}")
    remarks += [intake.waits] if intake.waits else []
    if known := sum(_is_known(a.landed) for a in intake.arrivals):
        remarks.append(f"{count_noun(known, 'file')} known from before the rebuild or import; nothing to do")
    remarks += [str(problem) for problem in intake.all_problems if not problem.stops]
    return remarks + [str(problem) for problem in _find_warnings(intake)]


def _is_known(landed: LandedFileRecord) -> bool:
    """Whether the log had all records of the file before it was imported, or its ledger was rebuilt."""
    return 0 < landed.forgotten == landed.records - landed.repeated


def _find_warnings(intake: LogIngest) -> list[LandingProblem]:
    """Returns the problems of files that this run ingested."""
    taken = {arrival.landed.name for arrival in intake.arrivals}
    codes = {problem.code for problem in intake.all_problems} | {WAITING}
    return [p for p in (intake.landing.listed if intake.landing else ()) if p.file in taken and p.code not in codes]


def _details(intake: LogIngest) -> IngestDetails:
    counts = {name: sum(getattr(a.landed, name) for a in intake.arrivals) for name in _COUNTS}
    # Records that a retry within this run completed are changes now.
    here = counts["quarantined"] - sum(number for _, number in intake.refused) if intake.completed else 0
    counts["quarantined"] -= here
    counts["changes"] += here
    extract = intake.extract
    return IngestDetails(
        files=sum(bool(a.landed.length) for a in intake.arrivals) if extract else len(intake.arrivals),
        extracts=[extract.name] if extract else None,
        unchanged=extract.unchanged if extract else None,
        missing=extract.missing if extract else None,
        **counts,
        run=next((a.landed.run for a in intake.arrivals), None),
        refused=dict(intake.refused),
        key_changes=intake.completed,
        quarantine=sorted({a.landed.quarantine for a in intake.arrivals if a.landed.quarantine}),
        still_writing=list(intake.plan.left),
        no_local_copy=list(intake.no_copies),
        not_taken=dict((intake.landing or NO_PROBLEMS).counts),
        problems=_problems(intake),
        uploads=intake.uploads if intake.uploads.segments else None,
    )


def _problems(intake: LogIngest) -> list[Mapping[str, str]]:
    return [{"file": p.file, "code": p.code, "message": p.message, "hint": p.hint} for p in intake.all_problems]
