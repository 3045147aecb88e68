"""Ingests landed files into the logs: plans, parses in parallel, and commits log by log."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec

from tidefold.changelog import write_intents
from tidefold.compute.runners import Runner
from tidefold.domain.table.schema_evolution import ChangeKind, Policy
from tidefold.domain.table.table_spec_validation import column_mistakes
from tidefold.errors import InvalidInputError, RefusedError, StorageError, TidefoldError, wrap_unexpected
from tidefold.operations.ingest import recovery
from tidefold.operations.ingest.extract import apply_extract
from tidefold.operations.ingest.find_landing_problems import find_problems
from tidefold.operations.ingest.ingest_outcome import (
    IngestDetails,
    describe_failure,
    describe_ingest,
    describe_nothing,
    format_reasons,
    join_extracts,
    join_outcomes,
)
from tidefold.operations.ingest.log_ingest import LogIngest, plan_log
from tidefold.operations.ingest.parse_round import IngestRun, parse_round
from tidefold.operations.ingest.resolve_operations import resolve_operations
from tidefold.operations.ingest.schema_update import add_found_columns
from tidefold.operations.outcome import Outcome, Status, map_logs
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.quarantine.key_changes import REASON as KEY_CHANGE
from tidefold.operations.quarantine.next_step import advise_on_refused, explain_refused_offsets
from tidefold.operations.quarantine.retry import RetryDetails, retry
from tidefold.operations.sets.limit_ingest import limit_to_points
from tidefold.operations.snapshot.compact_log import compact_if_due

_log = logging.getLogger(__name__)
# After this many later files, only `quarantine retry` tries again to complete a waiting key change.
_LOOKS = 64
# Codes of refused records that concern the whole table, and the next step for each.
_OF_THE_WHOLE_TABLE = {
    "ORDER_RESTART": "Was the source replaced by another server, or restored? Let Debezium make a new snapshot, land "
    "it in a new folder, and start the log again there: `tidefold drop LOG`, then `tidefold ingest LOG`.",
    "CLEAR_PARTITIONS": "Write the state into one partition, in a folder of its own, and feed it to a new log.",
}
# The reason of a refused record that changes the schema.
_SCHEMA_REASONS = {ChangeKind.ADD: "UNKNOWN_COLUMN", ChangeKind.RETYPE: "VALUE_INVALID"}


# The plan of one log for `execute`, or the outcome of a log that cannot be planned.
Prepared = LogIngest | Outcome


def prepare(pipeline: Pipeline, logs: Sequence[str]) -> list[Prepared]:
    """Ends unfinished earlier runs of the logs, then lists the landed files of each log and plans what to parse.

    A log of which too much waits since earlier runs is compacted. An error of one log is its outcome and does not stop
    the others. Logs of a set are limited to its point.
    """
    recovery.roll_forward(pipeline.store, logs)
    prepared = map_logs(partial(_prepare_log, pipeline), logs, pipeline.at_once)
    return limit_to_points(pipeline, prepared)


def _prepare_log(pipeline: Pipeline, log: str) -> Prepared:
    try:
        intake = plan_log(pipeline, log)
        return plan_log(pipeline, log) if compact_if_due(pipeline, intake.begun) else intake
    except Exception as error:
        found = wrap_unexpected(error)
        if found is not error:
            _log.error("%s: %s", log, found, exc_info=error)
        return Outcome.of_error(log, found)


def has_work(prepared: Prepared) -> bool:
    """Whether there are files to parse. If not, `execute` runs no task and only reports problems."""
    return isinstance(prepared, LogIngest) and bool(prepared.plan.take)


def ingest(pipeline: Pipeline, logs: Sequence[str], run: Runner) -> list[Outcome]:
    """Ingests all new files of the logs: `prepare`, then `execute`."""
    return execute(pipeline, prepare(pipeline, logs), run)


def execute(pipeline: Pipeline, prepared: Sequence[Prepared], run: Runner) -> list[Outcome]:
    """Parses the planned files of all logs in one round of tasks and commits the results log by log.

    A log that fails gets an error outcome and does not change; the others continue. A log without new files is not
    written. If another run ingested the same files meanwhile, the log's outcome is the error OFFSETS_TAKEN.
    """
    found = _execute_plans(pipeline, prepared, run)
    outcomes = {one.log: one for one in found}
    # Full extracts are ingested one after the other, because each is compared with the one before.
    while more := [one.log for one in found if isinstance(one.details, IngestDetails) and one.details.extracts]:
        found = _execute_plans(pipeline, [one for one in prepare(pipeline, more) if has_work(one)], run)
        outcomes |= {one.log: join_extracts(outcomes[one.log], one) for one in found}
    return [outcomes[one.log] for one in prepared]


def _execute_plans(pipeline: Pipeline, prepared: Sequence[Prepared], run: Runner) -> list[Outcome]:
    this = IngestRun(uuid.uuid4().hex)
    intakes = _parse(pipeline, this, [one for one in prepared if isinstance(one, LogIngest)], run)
    committed = zip(intakes, _commit_all(pipeline, this, intakes), strict=True)
    outcomes = {intake.log: _complete_key_changes(pipeline, intake, outcome) for intake, outcome in committed}
    added = {i.log: types for i in intakes if (types := _find_columns_to_add(pipeline, i, outcomes[i.log]))}
    for log, types in added.items():
        add_found_columns(pipeline, log, types, this.id)
    # Every round adds at least one column, so the loop ends.
    further = ingest(pipeline, list(added), run) if added else []
    outcomes |= {last.log: join_outcomes(outcomes[last.log], last, added[last.log]) for last in further}
    return [one if isinstance(one, Outcome) else outcomes[one.log] for one in prepared]


def _find_columns_to_add(pipeline: Pipeline, intake: LogIngest, outcome: Outcome) -> dict[str, str]:
    """Returns the columns to add, with their types, before the log can be ingested further.

    None if the policy adds none, a type is unknown, or a name is not valid for a column.
    """
    if outcome.status is not Status.STOPPED or pipeline.log(intake.log).policies.add is not Policy.EVOLVE:
        return {}
    types = dict(one for problem in intake.all_problems for one in problem.brings)
    known = [column.name for column in intake.state.shape.columns]
    return {} if next(column_mistakes([*known, *types]), None) else types


def _parse(pipeline: Pipeline, this: IngestRun, intakes: list[LogIngest], run: Runner) -> list[LogIngest]:
    """Parses in one round, unless files overlap or a second snapshot begins: then only the first result is final."""
    try:
        while any(intake.plan.take and not intake.error for intake in intakes):
            intakes = parse_round(pipeline, this, intakes, run)
        intakes = [apply_extract(pipeline, this, intake, run) for intake in intakes]
        intakes = [resolve_operations(pipeline, this, intake) for intake in intakes]
        intakes = [intake.with_run(this.id, now()) for intake in intakes]
    except StorageError as error:
        intakes = [intake.with_error(intake.error or error) if intake.plan.take else intake for intake in intakes]
    return [_check(pipeline, intake) for intake in intakes]


def _check(pipeline: Pipeline, intake: LogIngest) -> LogIngest:
    """Returns the ingest with its landing problems, and with an error if the log must not commit the result."""
    try:
        error = intake.error or _find_bad_records(pipeline, intake)
    except TidefoldError as caught:
        error = caught
    if error:
        return intake.with_error(error)
    explain = partial(explain_refused_offsets, pipeline, intake.state)
    plan = replace(intake.plan, problems=tuple(map(explain, intake.plan.problems)))
    intake = replace(intake, problems=tuple(map(explain, intake.problems)), plan=plan)
    config = pipeline.log(intake.log)
    folder = config.source.landing if config.source else None
    intake = replace(intake, landing=find_problems(intake, folder, now(), advise_on_refused(pipeline, intake.state)))
    blocking = next((p.error for p in intake.all_problems if p.blocking and not p.stops), None)
    if blocking and not intake.arrivals and config.on_bad_file != "warn":
        return intake.with_error(blocking)
    return intake


def _find_bad_records(pipeline: Pipeline, intake: LogIngest) -> TidefoldError | None:
    """Returns the error of refused records that stops the ingest of the log."""
    reasons, config = dict(intake.refused), pipeline.log(intake.log)
    if whole := [reason for reason in _OF_THE_WHOLE_TABLE if reason in reasons]:
        # Without these records every later row is in doubt, whatever the policy for single records.
        return RefusedError(
            "TABLE_EVENT",
            f"Log `{intake.log}`: {_first_refused(pipeline, intake, whole)}. The run ingested nothing.",
            hint=_OF_THE_WHOLE_TABLE[whole[0]],
        )
    for kind, reason in _SCHEMA_REASONS.items():
        if reason in reasons and config.policies.of(kind) is Policy.FREEZE:
            return RefusedError(
                "SCHEMA_FROZEN",
                f"`schema_evolution.{kind}` of log `{intake.log}` is `freeze`, and records have another schema: "
                f"{_first_refused(pipeline, intake, [reason])}. The run ingested nothing.",
                hint=f"Correct the source or the configured columns, or set "
                f"`schema_evolution: {{{kind}: quarantine}}` to quarantine such records.",
            )
    if not reasons or config.on_bad_record != "fail":
        return None
    return InvalidInputError(
        "BAD_RECORDS",
        f"Log `{intake.log}` has `on_bad_record: fail`, and these records were refused: "
        f"{format_reasons(intake)}; {_first_refused(pipeline, intake, list(reasons))}. The run ingested nothing.",
        hint="Land a corrected file, or set `on_bad_record: quarantine`.",
    )


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


def _commit_all(pipeline: Pipeline, this: IngestRun, intakes: Sequence[LogIngest]) -> list[Outcome]:
    """Records the results of the run, commits them log by log, then deletes files that no log needs.

    If the response of the store is lost, everything stays as it is, and the next ingest finds out what happened (I11).
    """
    bringing = [intake for intake in intakes if intake.arrivals and not intake.error]
    try:
        if bringing:
            write_intents.bring(pipeline.store, this.id, [intake.taking for intake in bringing])
    except StorageError as error:
        failed = [intake.with_error(error) if intake in bringing else intake for intake in intakes]
        return [describe_failure(i, i.error) if i.error else describe_nothing(pipeline, i) for i in failed]
    committed = [_commit(pipeline, intake) for intake in intakes]
    if this.rounds and all(is_known for _, is_known in committed):
        try:
            written = (entry.path for folder in sorted(this.folders) for entry in pipeline.store.list(folder))
            recovery.end_run(pipeline.store, this.id, [intake.log for intake in bringing], list(written))
        except TidefoldError as error:
            _log.warning("left for the next ingest: %s", error)
    return [outcome for outcome, _ in committed]


def _commit(pipeline: Pipeline, intake: LogIngest) -> tuple[Outcome, bool]:
    """Returns the outcome, and whether it is certain that the log committed or refused the result."""
    if intake.error:
        return describe_failure(intake, intake.error), True
    if not intake.arrivals:
        _record_problems(pipeline, intake)
        return describe_nothing(pipeline, intake), True
    try:
        recovery.commit_ingest(pipeline.ledger(intake.log), intake.taking)
    except TidefoldError as error:
        # After many lost races it is not certain: another process may have committed the result for this one.
        return describe_failure(intake, error), isinstance(error, RefusedError) or error.code == "OFFSETS_TAKEN"
    return describe_ingest(pipeline, intake), True


def _record_problems(pipeline: Pipeline, intake: LogIngest) -> None:
    """Records new problems of the landing folder in the ledger of a log that ingests nothing."""
    landing = intake.landing
    if landing is None or landing == intake.begun.landing:
        return
    try:
        ledger = pipeline.ledger(intake.log)
        ledger.begin(intake.begun.shape)
        ledger.commit(lambda state: replace(state, landing=landing))
    except TidefoldError as error:
        _log.warning("%s: the problems of the landing folder are not recorded: %s", intake.log, error)


def _complete_key_changes(pipeline: Pipeline, intake: LogIngest, outcome: Outcome) -> Outcome:
    """Completes rows whose key was changed and that lack values: those of this run, and waiting ones.

    Waiting rows are tried again while fewer than _LOOKS files landed after them. Without such rows, nothing is read.
    """
    came = dict(intake.refused).get(KEY_CHANGE, 0)
    waiting = any(entry.key_changes for entry in intake.begun.landed[-_LOOKS:])
    if not intake.arrivals or intake.error or not (came or waiting):
        return outcome
    try:
        retried = retry(pipeline, intake.log, KEY_CHANGE).details
    except TidefoldError as error:
        _log.warning("%s: changes of a key wait for the next ingest: %s", intake.log, error)
        return outcome
    completed = retried.changes + retried.repeated if isinstance(retried, RetryDetails) else 0
    refused = {**dict(intake.refused), KEY_CHANGE: max(0, came - completed)}
    left = tuple((reason, number) for reason, number in refused.items() if number)
    return describe_ingest(pipeline, replace(intake, refused=left, completed=completed)) if completed else outcome
