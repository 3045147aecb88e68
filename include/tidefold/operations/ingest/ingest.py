"""Takes what has landed into the logs: plan, parse in parallel, append."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tidefold.changelog import write_intents
from tidefold.compute.runners import Runner
from tidefold.domain.landing_problems import NO_PROBLEMS, WAITING, LandingProblem, find_failing
from tidefold.domain.table.schema_evolution import ChangeKind, Policies, Policy
from tidefold.domain.table.table_spec_validation import column_mistakes
from tidefold.errors import InvalidInputError, RefusedError, StorageError, TidefoldError, unforeseen
from tidefold.operations.ingest import recovery
from tidefold.operations.ingest.landing_problems import find_problems
from tidefold.operations.ingest.log_ingest import LogIngest, plan_log
from tidefold.operations.ingest.parse_round import IngestRun, parse_round
from tidefold.operations.ingest.schema_update import add_found_columns
from tidefold.operations.outcome import ErrorInfo, Outcome, Status, UntypedDetails
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.quarantine.key_changes import REASON as KEY_CHANGE
from tidefold.operations.quarantine.retry import retry

# So many files are taken before a change of a key that waits is left to `quarantine retry`.
_LOOKS = 64
_log = logging.getLogger(__name__)
# Refused records that say something of the table as a whole, and what to do about each.
_OF_THE_WHOLE_TABLE = {
    "ORDER_RESTART": "Was the source replaced by another server, or put back? Let Debezium make a new snapshot, land "
    "it in a folder of its own, and begin the log anew there: `tidefold drop LOG`, then `tidefold ingest LOG`.",
    "STATE_CHANGED": "Feed the state as it is now to a log of its own; or put its metadata back.",
    "CLEAR_PARTITIONS": "Write the state into one partition, in a folder of its own, and feed it to a new log.",
}
# Why a record is refused that brings a change of the schema.
_BRINGS = {ChangeKind.ADD: "UNKNOWN_COLUMN", ChangeKind.RETYPE: "VALUE_INVALID"}
_COUNTS = ("records", "changes", "tombstones", "repeated", "quarantined", "resent", "unproved", "ignored")
# Those that are said only where there are some, and how.
_NAMED = 5
_RARE = {"resent": "re-sent", "unproved": "unproved", "ignored": "ignored"}


# What `execute` does for one log; the outcome of a log that cannot be planned.
Prepared = LogIngest | Outcome


def prepare(pipeline: Pipeline, logs: Sequence[str]) -> list[Prepared]:
    """Ends what earlier runs announced for the logs, then lists the landed files of each and plans what to parse.

    An error of one log is its outcome and does not stop the others.
    """
    recovery.roll_forward(pipeline.store, logs)
    return [_prepare_log(pipeline, log) for log in logs]


def _prepare_log(pipeline: Pipeline, log: str) -> Prepared:
    try:
        return plan_log(pipeline, log)
    except Exception as error:
        found = unforeseen(error)
        if found is not error:
            _log.error("%s: %s", log, found, exc_info=error)
        return Outcome.of_error(log, found)


def has_work(prepared: Prepared) -> bool:
    """Whether there are files to parse. If not, `execute` runs no task: it only reports problems."""
    return isinstance(prepared, LogIngest) and bool(prepared.plan.take)


def ingest(pipeline: Pipeline, logs: Sequence[str], run: Runner) -> list[Outcome]:
    """Ingests all new files of the logs: `prepare`, then `execute`."""
    return execute(pipeline, prepare(pipeline, logs), run)


def execute(pipeline: Pipeline, prepared: Sequence[Prepared], run: Runner) -> list[Outcome]:
    """Parses the planned files of all logs in one round of tasks and commits the results log by log.

    A log that fails gives an error outcome and does not change; the others continue. A log without new files is not
    written. A plan that another run has overtaken commits nothing: the log's outcome is OFFSETS_TAKEN.
    """
    this = IngestRun(uuid.uuid4().hex)
    intakes = _parsed(pipeline, this, [one for one in prepared if isinstance(one, LogIngest)], run)
    told = zip(intakes, _tell_all(pipeline, this, intakes), strict=True)
    ended = {intake.log: _with_key_changes(pipeline, intake, outcome) for intake, outcome in told}
    brought = {intake.log: found for intake in intakes if (found := _brought(pipeline, intake, ended[intake.log]))}
    if brought:
        for log, types in brought.items():
            add_found_columns(pipeline, log, types, this.id)
        # Every round adds a column at least, and landed records have so many.
        further = {outcome.log: outcome for outcome in ingest(pipeline, list(brought), run)}
        ended |= {log: _joined(ended[log], further[log], brought[log]) for log in brought}
    return [one if isinstance(one, Outcome) else ended[one.log] for one in prepared]


def _brought(pipeline: Pipeline, intake: LogIngest, outcome: Outcome) -> dict[str, str]:
    """The columns to add before the log is ingested further, with their types; none where the policy adds none, where
    a type is not known, or where a name cannot be one of a column.
    """
    if outcome.status is not Status.STOPPED or pipeline.log(intake.log).policies.add is not Policy.EVOLVE:
        return {}
    types = dict(one for problem in intake.all_problems for one in problem.brings)
    known = [column.name for column in intake.state.shape.columns]
    return {} if next(column_mistakes([*known, *types]), None) else types


def _parsed(pipeline: Pipeline, this: IngestRun, intakes: list[LogIngest], run: Runner) -> list[LogIngest]:
    """One round, unless files overlap or a second snapshot begins: only the first file's result then stands."""
    try:
        while any(intake.plan.take and not intake.error for intake in intakes):
            intakes = parse_round(pipeline, this, intakes, run)
        intakes = [intake.with_run(this.id, now()) for intake in intakes]
    except StorageError as error:
        intakes = [intake.with_error(intake.error or error) if intake.plan.take else intake for intake in intakes]
    return [_accepted(pipeline, intake) for intake in intakes]


def _accepted(pipeline: Pipeline, intake: LogIngest) -> LogIngest:
    """The intake, failed when its log must not take what was found."""
    try:
        bad = intake.error or _bad_records(pipeline, intake)
    except TidefoldError as error:
        bad = error
    if bad:
        return intake.with_error(bad)
    config = pipeline.log(intake.log)
    intake = replace(intake, landing=find_problems(intake, config.source.folder if config.source else None, now()))
    blocking = next((p.error for p in intake.all_problems if p.blocking and not p.stops), None)
    if blocking and not intake.arrivals and config.on_bad_file != "warn":
        return intake.with_error(blocking)
    return intake


def _tell_all(pipeline: Pipeline, this: IngestRun, intakes: Sequence[LogIngest]) -> list[Outcome]:
    """Tells every log what was found for it, then removes what no log needs.

    An answer that was lost leaves everything as it is: the next ingest asks what became of it (I11).
    """
    bringing = [intake for intake in intakes if intake.arrivals and not intake.error]
    try:
        if bringing:
            write_intents.bring(pipeline.store, this.id, [intake.taking for intake in bringing])
    except StorageError as error:
        failed = [intake.with_error(error) if intake in bringing else intake for intake in intakes]
        return [_failed(intake, intake.error) if intake.error else _nothing(pipeline, intake) for intake in failed]
    told = [_told(pipeline, intake) for intake in intakes]
    if this.rounds and all(known for _, known in told):
        _clean_up(pipeline, this, [intake.log for intake in bringing])
    return [outcome for outcome, _ in told]


def _told(pipeline: Pipeline, intake: LogIngest) -> tuple[Outcome, bool]:
    """The outcome, and whether it is known what became of what the log was told."""
    if intake.error:
        return _failed(intake, intake.error), True
    if not intake.arrivals:
        _tell_problems(pipeline, intake)
        return _nothing(pipeline, intake), True
    try:
        recovery.commit_ingest(pipeline.ledger(intake.log), intake.taking)
    except TidefoldError as error:
        # Having lost many races says nothing: somebody else may tell the log in our place.
        return _failed(intake, error), isinstance(error, RefusedError) or error.code == "OFFSETS_TAKEN"
    return _taken(pipeline, intake), True


def _tell_problems(pipeline: Pipeline, intake: LogIngest) -> None:
    """Tells a log that takes nothing what lies in its landing folder, where that is not what it knows."""
    landing = intake.landing
    if landing is None or landing == intake.begun.landing:
        return
    try:
        ledger = pipeline.ledger(intake.log)
        ledger.begin(intake.begun.shape)
        ledger.commit(lambda state: replace(state, landing=landing))
    except TidefoldError as error:
        _log.warning("%s: what was not taken is not recorded: %s", intake.log, error)


def _with_key_changes(pipeline: Pipeline, intake: LogIngest, outcome: Outcome) -> Outcome:
    """Completes rows whose key was changed and that lack values: those that came now, and those that waited.

    Costs nothing where there are none. What waits is looked at while fewer than so many files came after it.
    """
    came = dict(intake.refused).get(KEY_CHANGE, 0)
    waiting = any(entry.key_changes for entry in intake.begun.landed[-_LOOKS:])
    if not intake.arrivals or intake.error or not (came or waiting):
        return outcome
    try:
        facts = retry(pipeline, intake.log, KEY_CHANGE).facts
    except TidefoldError as error:
        _log.warning("%s: changes of a key wait for the next ingest: %s", intake.log, error)
        return outcome
    completed = facts["changes"] + facts["repeated"]
    refused = {**dict(intake.refused), KEY_CHANGE: max(0, came - completed)}
    left = tuple((reason, number) for reason, number in refused.items() if number)
    return _taken(pipeline, replace(intake, refused=left, completed=completed)) if completed else outcome


def _clean_up(pipeline: Pipeline, this: IngestRun, told: Sequence[str]) -> None:
    try:
        written = (entry.path for folder in sorted(this.folders) for entry in pipeline.store.list(folder))
        recovery.end_run(pipeline.store, this.id, told, list(written))
    except TidefoldError as error:
        _log.warning("left for the next ingest: %s", error)


def _bad_records(pipeline: Pipeline, intake: LogIngest) -> TidefoldError | None:
    reasons = dict(intake.refused)
    unsupported = [reason for reason in _OF_THE_WHOLE_TABLE if reason in reasons]
    if unsupported:
        # To leave such an event out would make every later row doubtful, whatever is done with single records.
        return RefusedError(
            "TABLE_EVENT",
            f"Log `{intake.log}`: {_first_refused(pipeline, intake, unsupported)}. Nothing was taken.",
            hint=_OF_THE_WHOLE_TABLE[unsupported[0]],
        )
    frozen = _frozen(pipeline.log(intake.log).policies, reasons)
    if frozen:
        kind, reason = frozen
        raise RefusedError(
            "SCHEMA_FROZEN",
            f"Log `{intake.log}` has `schema_evolution.{kind}: freeze`, and records with another schema landed: "
            f"{_first_refused(pipeline, intake, [reason])}. Nothing was taken.",
            hint=f"Correct the source or the configured columns, or set "
            f"`schema_evolution: {{{kind}: quarantine}}` to quarantine such records.",
        )
    if not reasons or pipeline.log(intake.log).on_bad_record != "fail":
        return None
    return InvalidInputError(
        "BAD_RECORDS",
        f"Log `{intake.log}` has `on_bad_record: fail`, and these records were refused: {_counted(intake)}; "
        f"{_first_refused(pipeline, intake, list(reasons))}. Nothing was taken.",
        hint="Land a corrected file, or set `on_bad_record: quarantine`.",
    )


def _frozen(policies: Policies, reasons: Collection[str]) -> tuple[ChangeKind, str] | None:
    """What records bring that a log does not even put aside: the kind of change, and why they were refused."""
    found = ((kind, reason) for kind, reason in _BRINGS.items() if policies.of(kind) is Policy.FREEZE)
    return next(((kind, reason) for kind, reason in found if reason in reasons), None)


def _counted(intake: LogIngest) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in intake.refused)


def _first_refused(pipeline: Pipeline, intake: LogIngest, reasons: Sequence[str]) -> str:
    files = [a.landed.name for a in intake.arrivals]
    stored = dict.fromkeys(a.landed.quarantine for a in intake.arrivals if a.landed.quarantine)
    entries = [e for path in stored for e in map(msgspec.json.decode, pipeline.store.read(path).splitlines())]
    entry = min(
        (e for e in entries if e["reason"] in reasons and e["file"] in files),
        key=lambda e: (files.index(e["file"]), e["line"]),
    )
    name = entry["file"]
    return f"the first is line {entry['line']} of `{name}` ({entry['reason']}: {entry['detail'].rstrip('.')})"


def _taken(pipeline: Pipeline, intake: LogIngest) -> Outcome:
    facts = _facts(intake)
    files = len(intake.arrivals)
    parts = [f"{facts[name]:,} {name}" for name in _COUNTS[1:5]]
    parts += [f"{facts[name]:,} {said}" for name, said in _RARE.items() if facts[name]]
    parts += [f"{intake.completed:,} changes of a key completed"] if intake.completed else []
    refused = all(a.landed.records == a.landed.quarantined > 0 for a in intake.arrivals)
    message = f"{'refused' if refused else 'took'} {files:,} {'file' if files == 1 else 'files'}: {', '.join(parts)}"
    status = Status.REFUSED if refused else Status.TAKEN
    outcome = Outcome(intake.log, status, "; ".join([message, *_remarks(intake)]), details=UntypedDetails(values=facts))
    return _stopped(outcome, pipeline, intake)


def _joined(first: Outcome, further: Outcome, types: Mapping[str, str]) -> Outcome:
    """One outcome of two ingests, between which these columns were added."""
    counts = {name: first.facts.get(name, 0) + further.facts.get(name, 0) for name in (*_COUNTS, "files")}
    reasons = Counter(first.facts.get("refused", {})) + Counter(further.facts.get("refused", {}))
    stored = sorted({*first.facts.get("quarantine", ()), *further.facts.get("quarantine", ())})
    added = {**types, **further.facts.get("added", {})}
    facts = {**further.facts, **counts, "refused": dict(reasons), "quarantine": stored, "added": added}
    said = ", ".join(f"`{name}` {type_}" for name, type_ in types.items())
    before = f"took {first.facts.get('changes', 0):,} changes, added {said} as the source brought it"
    return replace(further, message=f"{before}; {further.message}", details=UntypedDetails(values=facts))


def _stopped(outcome: Outcome, pipeline: Pipeline, intake: LogIngest) -> Outcome:
    """An error where a record of another schema ended a partition; what came before it was taken all the same. Else one
    where a file stays that cannot be taken.
    """
    stop = next((problem for problem in intake.all_problems if problem.stops), None)
    if stop is None:
        return _incomplete(outcome, pipeline, intake)
    error = stop.error
    message = f"{error} ({outcome.message})"
    return replace(outcome, status=Status.STOPPED, message=message, error=ErrorInfo.of(error))


def _incomplete(outcome: Outcome, pipeline: Pipeline, intake: LogIngest) -> Outcome:
    """An error where a file was not taken, and the policy of the log says that this makes a run fail."""
    policy = pipeline.log(intake.log).on_bad_file
    left = intake.landing or NO_PROBLEMS
    failing = find_failing(left, intake.begun.landing, policy)
    if failing is None:
        return outcome
    others = f" ({left.total - 1:,} more, see `tidefold status {intake.log}`)" if left.total > 1 else ""
    error = InvalidInputError(failing.code, f"{failing.message.rstrip('.')}, since {failing.since}.", hint=failing.hint)
    message = f"{error}{others} ({outcome.message})"
    return replace(outcome, status=Status.INCOMPLETE, message=message, error=ErrorInfo.of(error))


def _nothing(pipeline: Pipeline, intake: LogIngest) -> Outcome:
    outcome = Outcome(
        intake.log,
        Status.NOTHING,
        "; ".join(["nothing new", *_remarks(intake)]),
        details=UntypedDetails(values=_facts(intake)),
    )
    return _stopped(outcome, pipeline, intake)


def _failed(intake: LogIngest, error: TidefoldError | None) -> Outcome:
    assert error is not None
    outcome = Outcome.of_error(intake.log, error)
    problems = {"problems": _facts(intake)["problems"], "refused": dict(intake.refused)}
    return replace(outcome, details=UntypedDetails(values={**outcome.facts, **problems}))


def _remarks(intake: LogIngest) -> list[str]:
    left = intake.plan.left
    count = f"{len(left):,} {'file' if len(left) == 1 else 'files'} still being written"
    remarks = [f"{count}: {_some(left)}"] if left else []
    if intake.refused:
        where = ", ".join(sorted({a.landed.quarantine for a in intake.arrivals if a.landed.quarantine}))
        remarks.append(f"refused: {_counted(intake)}, see {where} in the store")
    if intake.no_copies:
        remarks.append(f"{len(intake.no_copies):,} segments without a local copy, as {intake.no_copies[0]}")
    remarks += [str(problem) for problem in intake.all_problems if not problem.stops]
    return remarks + [str(problem) for problem in _new_warnings(intake)]


def _some(names: Sequence[str]) -> str:
    """The first names of files."""
    return ", ".join([*(f"`{name}`" for name in names[:_NAMED]), *(["..."] if len(names) > _NAMED else [])])


def _new_warnings(intake: LogIngest) -> list[LandingProblem]:
    """What is to be said of files that this run took."""
    taken = {arrival.landed.name for arrival in intake.arrivals}
    codes = {problem.code for problem in intake.all_problems} | {WAITING}
    return [p for p in (intake.landing.listed if intake.landing else ()) if p.file in taken and p.code not in codes]


def _facts(intake: LogIngest) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for arrival in intake.arrivals:
        counts.update({name: getattr(arrival.landed, name) for name in _COUNTS})
    here = counts["quarantined"] - sum(number for _, number in intake.refused) if intake.completed else 0
    counts.update({"quarantined": -here, "changes": here})
    return {
        "files": len(intake.arrivals),
        **{name: counts[name] for name in _COUNTS},
        "run": next((a.landed.run for a in intake.arrivals), None),
        "refused": dict(intake.refused),
        "key_changes": intake.completed,
        "quarantine": sorted({a.landed.quarantine for a in intake.arrivals if a.landed.quarantine}),
        "still_writing": list(intake.plan.left),
        "no_local_copy": list(intake.no_copies),
        "not_taken": dict((intake.landing or NO_PROBLEMS).counts),
        "problems": [
            {"file": p.file, "code": p.code, "message": p.message, "hint": p.hint} for p in intake.all_problems
        ],
    }
