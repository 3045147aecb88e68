"""Ingests landed files into the logs: plans, parses in parallel, and commits log by log."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from tidefold.changelog import write_intents
from tidefold.compute.runners import Runner, count_cores
from tidefold.domain.landing_problems import REFUSED, drop_settled, drop_unloaded
from tidefold.domain.table.schema_evolution import ChangeKind, Policy, add_found, changes, schemas_of
from tidefold.domain.table.table_spec_validation import column_mistakes
from tidefold.errors import (
    InvalidInputError,
    RefusedError,
    StorageError,
    StoreUnusableError,
    TidefoldError,
    wrap_unexpected,
)
from tidefold.operations.ground import recovery
from tidefold.operations.ground.outcome import Outcome, Status, map_logs
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ground.schema_update import add_found_columns, select_columns
from tidefold.operations.ingest.account import account_files
from tidefold.operations.ingest.extract import apply_extract
from tidefold.operations.ingest.ingest_outcome import (
    IngestDetails,
    describe_failure,
    describe_ingest,
    describe_nothing,
    format_reasons,
    join_outcomes,
)
from tidefold.operations.ingest.land_topic import Landed, land_topics
from tidefold.operations.ingest.landing_problems import find_problems
from tidefold.operations.ingest.limit_to_points import limit_to_points
from tidefold.operations.ingest.parse import IngestRun, find_task_bytes, parse_round
from tidefold.operations.ingest.resolve_operations import resolve_operations
from tidefold.operations.ingest.stages import Accounted, Committed, Failed, Planned, files_to_parse, plan_log
from tidefold.operations.quarantine.next_step import advise_on_refused, explain_refused_offsets
from tidefold.operations.quarantine.retry import RetryDetails, retry
from tidefold.operations.snapshot.compact_log import compact_if_due
from tidefold.sources.records.errors import AWAITING, KEY_TAKEN_OVER

_log = logging.getLogger(__name__)
# After this many later files, only `quarantine retry` tries again to complete a waiting key change.
_LOOKS = 64
# Codes of refused records that concern the whole table, and the next step for each.
_OF_THE_WHOLE_TABLE = {
    "ORDER_RESTART": "Was the source replaced or restored, or its slot made again without a snapshot of these rows? "
    "Let Debezium make a new snapshot, land it in a new folder, and start the log again there: `tidefold retain drop "
    "LOG`, then `tidefold step ingest LOG`.",
    "CLEAR_PARTITIONS": "Write the state into one partition, in a folder of its own, and feed it to a new log.",
}
# The reason of a refused record that changes the schema.
_SCHEMA_REASONS = {ChangeKind.ADD: "UNKNOWN_COLUMN", ChangeKind.RETYPE: "VALUE_INVALID"}


# The plan of one log for `execute`, or the outcome of a log that cannot be planned.
Prepared = Planned | Outcome


def prepare(pipeline: Pipeline, logs: Sequence[str], landed: Mapping[str, Landed] | None = None) -> list[Prepared]:
    """Ends unfinished earlier runs of the logs, then lists the landed files of each log and plans what to parse.

    A log of which too much waits since earlier runs is compacted. An error of one log is its outcome and does not stop
    the others. Logs of a set are limited to its point.

    landed: what this run landed of their topics.
    """
    try:
        recovery.roll_forward(pipeline.store, logs)
    except StoreUnusableError as error:
        return [Outcome.of_error(log, error) for log in logs]
    prepared = map_logs(partial(_prepare_log, pipeline), logs, pipeline.at_once)
    if (again := pipeline.again) is not None:
        return [one.with_bound(dict.fromkeys(again)) if isinstance(one, Planned) else one for one in prepared]
    limited = limit_to_points(pipeline, prepared)
    told = landed or {}
    return [one.after(told[one.log]) if isinstance(one, Planned) and one.log in told else one for one in limited]


def land_and_prepare(pipeline: Pipeline, logs: Sequence[str]) -> list[Prepared]:
    """Lands what is new in the topics of the logs, then does what `prepare` does."""
    landed = land_topics(pipeline, logs)
    failed = {log: Outcome.of_error(log, one) for log, one in landed.items() if isinstance(one, TidefoldError)}
    whole = {log: one for log, one in landed.items() if isinstance(one, Landed)}
    prepared = {one.log: one for one in prepare(pipeline, [log for log in logs if log not in failed], whole)}
    return [failed.get(log) or prepared[log] for log in logs]


def _prepare_log(pipeline: Pipeline, log: str) -> Prepared:
    try:
        planned = plan_log(pipeline, log)
        return plan_log(pipeline, log) if compact_if_due(pipeline, planned.listed.begun) else planned
    except Exception as error:
        failure = wrap_unexpected(error)
        if failure.code == "LOG_STOPPED":
            # Somebody wants this. It is no failure of a run.
            return Outcome(log, Status.SKIPPED, f"{failure.message} {failure.hint}")
        if failure is not error:
            _log.error("%s: %s", log, failure, exc_info=error)
        return Outcome.of_error(log, failure)


def has_work(prepared: Prepared) -> bool:
    """Whether there are files to parse. If not, `execute` runs no task and only reports problems."""
    return isinstance(prepared, Planned) and bool(prepared.plan.take)


def ingest(pipeline: Pipeline, logs: Sequence[str], run: Runner) -> list[Outcome]:
    """Ingests all new files of the logs: `land_and_prepare`, then `execute`."""
    return execute(pipeline, land_and_prepare(pipeline, logs), run)


def execute(pipeline: Pipeline, prepared: Sequence[Prepared], run: Runner) -> list[Outcome]:
    """Parses the planned files of all logs in one round of tasks and commits the results log by log.

    A log that fails gets an error outcome and does not change; the others continue. A log without new files is not
    written. If another run ingested the same files meanwhile, the log's outcome is the error OFFSETS_TAKEN.
    """
    rounds: dict[str, list[Committed]] = {one.log: [] for one in prepared}
    landed = {one.log: one.landed for one in prepared if isinstance(one, Planned)}
    ready = list(prepared)
    while ready:
        committed = _ingest_round(pipeline, [one for one in ready if isinstance(one, Planned)], run)
        committed += [Committed(one) for one in ready if isinstance(one, Outcome)]
        for one in committed:
            rounds[one.log].append(one)
        # Full extracts are ingested one after the other, because each is compared with the one before. Every round adds
        # at least one column or ingests an extract, so the loop ends.
        added = {one.log for one in committed if one.added}
        more = [one.log for one in committed if one.added or _has_extract(one.outcome)]
        ready = [one for one in prepare(pipeline, more, landed) if has_work(one) or one.log in added] if more else []
    return [_join(rounds[one.log]) for one in prepared]


def _has_extract(outcome: Outcome) -> bool:
    return isinstance(outcome.details, IngestDetails) and bool(outcome.details.extracts)


def _join(rounds: Sequence[Committed]) -> Outcome:
    outcome = rounds[-1].outcome
    for before in reversed(rounds[:-1]):
        outcome = join_outcomes(before.outcome, outcome, before.added)
    return outcome


def _ingest_round(pipeline: Pipeline, planned: Sequence[Planned], run: Runner) -> list[Committed]:
    this = IngestRun(uuid.uuid4().hex)
    accounted = _account(pipeline, this, planned, run)
    finished = []
    for one, committed in zip(accounted, _commit_all(pipeline, this, accounted), strict=True):
        if isinstance(one, Accounted):
            outcome = _complete_key_changes(pipeline, one, committed.outcome)
            types = _find_columns_to_add(pipeline, one, outcome)
            if types:
                add_found_columns(pipeline, one.log, types, this.id)
            committed = replace(committed, outcome=outcome, added=types)
        finished.append(committed)
    return finished


def _find_columns_to_add(pipeline: Pipeline, accounted: Accounted, outcome: Outcome) -> dict[str, str]:
    """Returns the columns to add, with their types, before the log can be ingested further.

    None of them if a policy forbids one, a type is unknown, or a name is not valid for a column.
    """
    if outcome.status is not Status.STOPPED:
        return {}
    types = dict(one for problem in accounted.all_problems for one in problem.brings)
    state, policies = accounted.state, pipeline.log(accounted.log).policies
    after = add_found(state, select_columns(types), now())
    if next(column_mistakes([column.name for column in after.shape.columns]), None):
        return {}
    moves = changes(schemas_of(state)[-1], schemas_of(after)[-1], after.shape)
    return {} if any(one.impossible or policies.of(one.kind) is not Policy.EVOLVE for one in moves) else types


def _account(pipeline: Pipeline, this: IngestRun, planned: Sequence[Planned], run: Runner) -> list[Accounted | Failed]:
    """Parses in one round, unless files overlap or a second snapshot begins: then only the first result is final."""
    logs: list[Accounted | Failed] = [Accounted(one, one.listed.begun, problems=one.listed.problems) for one in planned]
    try:
        while waiting := [one for one in logs if isinstance(one, Accounted) and one.planned.plan.take]:
            weight = sum(file.weight for one in waiting for file in one.planned.plan.take)
            size = find_task_bytes(weight, cores := count_cores(run))
            parts = [part for one in waiting for part in files_to_parse(one, this.id, size, splits=cores > 0)]
            parsed = parse_round(pipeline, this, parts, [one.listed.intent for one in waiting], run)
            logs = [
                _attempt(one, partial(account_files, pipeline.store, parsed[one.log])) if one.log in parsed else one
                for one in logs
            ]
    except StorageError as error:
        logs = [Failed(one, error) if isinstance(one, Accounted) and one.planned.plan.take else one for one in logs]
    steps = (
        partial(apply_extract, pipeline, this, run),
        partial(resolve_operations, pipeline, this),
        partial(_sign, this.id, now()),
        partial(_check_records, pipeline),
        partial(_find_problems, pipeline),
    )
    for step in steps:
        logs = [_attempt(one, step) for one in logs]
    return logs


def _attempt(one: Accounted | Failed, step: Callable[[Accounted], Accounted | Failed]) -> Accounted | Failed:
    """Takes a log one step further, unless it failed before. An error stops this log only."""
    if isinstance(one, Failed):
        return one
    try:
        return step(one)
    except TidefoldError as error:
        return Failed(one, error)


def _sign(run: str, instant: str, accounted: Accounted) -> Accounted:
    """Returns the ingest with the run and the time in its file records."""
    signed = (replace(a, landed=replace(a.landed, run=run, instant=instant)) for a in accounted.arrivals)
    return replace(accounted, arrivals=tuple(signed))


def _find_problems(pipeline: Pipeline, accounted: Accounted) -> Accounted | Failed:
    """Returns the ingest with its landing problems, or an error if one of them must stop the log."""
    explain = partial(explain_refused_offsets, pipeline, accounted.state)
    plan = accounted.planned.plan
    planned = replace(accounted.planned, plan=replace(plan, problems=tuple(map(explain, plan.problems))))
    accounted = replace(accounted, problems=tuple(map(explain, accounted.problems)), planned=planned)
    config = pipeline.log(accounted.log)
    advice = advise_on_refused(pipeline, accounted.state)
    landing = find_problems(accounted, config.landing, now(), advice)
    accounted = replace(accounted, landing=landing)
    blocking = next((p for p in accounted.all_problems if p.blocking and not p.stops), None)
    if blocking and not accounted.arrivals and config.on_bad_file != "warn":
        told = replace(blocking, message=f"{blocking.message}{landing.others(accounted.log)}")
        return Failed(accounted, told.error)
    return accounted


def _check_records(pipeline: Pipeline, accounted: Accounted) -> Accounted:
    """Raises the error of refused records that stops the ingest of the log."""
    reasons, config = accounted.refused, pipeline.log(accounted.log)
    if whole := [reason for reason in _OF_THE_WHOLE_TABLE if reason in reasons]:
        # Without these records every later row is in doubt, whatever the policy for single records.
        raise RefusedError(
            "TABLE_EVENT",
            f"Log `{accounted.log}`: {_first_refused(pipeline, accounted, whole)}. The run ingested nothing.",
            hint=_OF_THE_WHOLE_TABLE[whole[0]],
        )
    for kind, reason in _SCHEMA_REASONS.items():
        if reason in reasons and config.policies.of(kind) is Policy.FREEZE:
            raise RefusedError(
                "SCHEMA_FROZEN",
                f"`schema_evolution.{kind}` of log `{accounted.log}` is `freeze`, and records have another schema: "
                f"{_first_refused(pipeline, accounted, [reason])}. The run ingested nothing.",
                hint=f"Correct the source or the configured columns, or set "
                f"`schema_evolution: {{{kind}: quarantine}}` to quarantine such records.",
            )
    # The ingest looks these up in the log.
    if set(reasons) <= {KEY_TAKEN_OVER} or config.on_bad_record != "fail":
        return accounted
    raise InvalidInputError(
        "BAD_RECORDS",
        f"Log `{accounted.log}` has `on_bad_record: fail`, and these records were refused: "
        f"{format_reasons(accounted)}; {_first_refused(pipeline, accounted, list(reasons))}. The run ingested nothing.",
    )


def _first_refused(pipeline: Pipeline, accounted: Accounted, reasons: Sequence[str]) -> str:
    files = [a.landed.name for a in accounted.arrivals]
    stored = dict.fromkeys(a.landed.quarantine for a in accounted.arrivals if a.landed.quarantine)
    entries = [e for path in stored for e in map(msgspec.json.decode, pipeline.store.read(path).splitlines())]
    entry = min(
        (e for e in entries if e["reason"] in reasons and e["file"] in files),
        key=lambda e: (files.index(e["file"]), e["line"]),
    )
    name = entry["file"]
    return f"the first is line {entry['line']} of `{name}` ({entry['reason']}: {entry['detail'].rstrip('.')})"


def _commit_all(pipeline: Pipeline, this: IngestRun, logs: Sequence[Accounted | Failed]) -> list[Committed]:
    """Records the results of the run, commits them log by log, then deletes files that no log needs.

    If the response of the store is lost, everything stays as it is, and the next ingest finds out what happened (I11).
    """
    bringing = [one for one in logs if isinstance(one, Accounted) and one.arrivals]
    try:
        if bringing:
            write_intents.bring(pipeline.store, this.id, [one.taking for one in bringing])
    except StorageError as error:
        lost = [Failed(one, error) if isinstance(one, Accounted) and one.arrivals else one for one in logs]
        return [
            Committed(describe_failure(one) if isinstance(one, Failed) else describe_nothing(pipeline, one))
            for one in lost
        ]
    committed = [_commit(pipeline, one) for one in logs]
    if this.rounds and all(one.is_known for one in committed):
        try:
            written = (entry.path for folder in sorted(this.folders) for entry in pipeline.store.list(folder))
            recovery.end_run(pipeline.store, this.id, [one.log for one in bringing], list(written))
        except TidefoldError as error:
            _log.warning("left for the next ingest: %s", error)
    return committed


def _commit(pipeline: Pipeline, one: Accounted | Failed) -> Committed:
    if isinstance(one, Failed):
        return Committed(describe_failure(one))
    if not one.arrivals:
        _record_problems(pipeline, one)
        return Committed(describe_nothing(pipeline, one))
    try:
        recovery.commit_ingest(pipeline.ledger(one.log), one.taking)
    except TidefoldError as error:
        # After many lost races it is not certain: another process may have committed the result for this one.
        is_known = isinstance(error, RefusedError) or error.code == "OFFSETS_TAKEN"
        return Committed(describe_failure(Failed(one, error)), is_known)
    return Committed(describe_ingest(pipeline, one))


def _record_problems(pipeline: Pipeline, accounted: Accounted) -> None:
    """Records new problems of the landing folder in the ledger of a log that ingests nothing."""
    landing, begun = accounted.landing, accounted.listed.begun
    # What its readers leave out need not leave the ledger.
    if landing in (None, begun.landing, drop_unloaded(begun.landing)):
        return
    try:
        ledger = pipeline.ledger(accounted.log)
        ledger.begin(begun.shape)
        ledger.commit(lambda state: replace(state, landing=landing))
    except TidefoldError as error:
        _log.warning("%s: the problems of the landing folder are not recorded: %s", accounted.log, error)


def _complete_key_changes(pipeline: Pipeline, accounted: Accounted, outcome: Outcome) -> Outcome:
    """Completes rows whose key was changed and that lack values: those of this run, and waiting ones.

    Waiting rows are tried again while fewer than _LOOKS files landed after them. Without such rows, nothing is read.
    """
    came = any(reason in accounted.refused for reason in AWAITING)
    waiting = any(entry.key_changes for entry in accounted.listed.begun.landed[-_LOOKS:])
    if not accounted.arrivals or not (came or waiting):
        return outcome
    try:
        retried = retry(pipeline, accounted.log, *AWAITING).details
    except TidefoldError as error:
        _log.warning("%s: changes of a key wait for the next ingest: %s", accounted.log, error)
        return outcome
    if not isinstance(retried, RetryDetails) or retried.staying == retried.records:
        return outcome
    most = {reason: retried.reasons.get(reason, 0) for reason in AWAITING}
    stay = {reason: min(number, most.get(reason, number)) for reason, number in accounted.refused.items()}
    left = {reason: number for reason, number in stay.items() if number}
    landing = accounted.landing
    if landing and REFUSED in dict(landing.counts):
        state = pipeline.ledger(accounted.log).read()
        landing = drop_settled(landing, state.landed, has_snapshot=state.latest is not None)
    completed = retried.records - retried.staying
    return describe_ingest(pipeline, replace(accounted, refused=left, landing=landing, completed=completed))
