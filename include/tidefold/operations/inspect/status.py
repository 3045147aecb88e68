"""The status of each log, and its history. Reads the ledgers and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.operations.ground.outcome import Outcome, map_logs
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.inspect.alarms import find_alarm_record, find_alarms
from tidefold.operations.inspect.log_status import LogStatus, status_of
from tidefold.operations.local_copies.inventory import LocalUse, local_use
from tidefold.operations.local_copies.manage import copies_here
from tidefold.operations.verify.scope import find_proof
from tidefold.quality.report.result import CheckResult
from tidefold.quality.report.verdict_store import find_judgement


def status(pipeline: Pipeline, logs: Sequence[str], *, proofs: bool = False) -> list[LogStatus]:
    """Returns one status for each log. If a ledger cannot be read, only the status of that log has an error.

    proofs: also reads the newest proof and failed runs of each log, and finds its alarms. That costs up to four
        requests for each log.
    """
    use = local_use(pipeline)
    return map_logs(lambda log: _status(pipeline, log, use, proofs), logs, pipeline.at_once)


def _status(pipeline: Pipeline, log: str, use: LocalUse | None, proofs: bool) -> LogStatus:
    try:
        ledger = pipeline.ledger(log)
        state = ledger.find_current()
        if state is None:
            status_of_log = LogStatus(log, begun=False)
        else:
            here = copies_here(pipeline, state)
            taken = use.logs.get(log, 0) if use else 0
            status_of_log = replace(status_of(state), local=here.whole, local_partial=here.partial, local_bytes=taken)
            status_of_log = replace(status_of_log, table=ledger.find_table_problem(state))
        return add_records(pipeline, status_of_log) if proofs else status_of_log
    except TidefoldError as error:
        status_of_log = LogStatus(log, begun=True, error=Outcome.of_error(log, error))
        return with_alarms(pipeline, status_of_log) if proofs else status_of_log


def add_records(pipeline: Pipeline, status_of_log: LogStatus) -> LogStatus:
    """Returns the status with its proofs, its newest runs and its alarms. Raises StorageError."""
    proof = find_proof(pipeline.store, status_of_log.log) if status_of_log.begun else None
    runs = find_alarm_record(pipeline.store, status_of_log.log)
    return with_alarms(pipeline, replace(status_of_log, proof=proof, runs=runs))


def with_alarms(pipeline: Pipeline, status_of_log: LogStatus) -> LogStatus:
    """Returns the status with the alarms that the configuration asks for."""
    thresholds = pipeline.config.alarms_of(status_of_log.log)
    return replace(status_of_log, alarms=tuple(find_alarms(status_of_log, thresholds, now())) if thresholds else ())


def explain_left_out(pipeline: Pipeline, state: LogState) -> Outcome | None:
    """Returns an error while more rows are missing than `max_left_out` allows; without it, while any is."""
    latest = state.latest
    if latest is None or latest.unresolved <= (pipeline.log_of(state).quality.max_left_out or 0):
        return None
    message = f"The table of `{state.log}` lacks {count_noun(latest.unresolved, 'row')}: a value was not sent."
    hint = f"`tidefold status {state.log}` names them, and what brings them in."
    return Outcome.of_error(state.log, InvalidInputError("UNAVAILABLE_VALUE", message, hint=hint), latest.id)


def history(pipeline: Pipeline, log: str) -> list[Snapshot]:
    """Returns all snapshots that were ever begun. Raises NotFoundError if nothing was ingested yet."""
    return list(reversed(pipeline.ledger(log).read().snapshots))


def find_restorers(snapshots: Sequence[Snapshot]) -> dict[int, int]:
    """Returns, for each restore, the snapshot whose rows it restored."""
    return {s.id: _require_snapshot_id(snapshots, s, s.restored_from) for s in snapshots if s.restored_from is not None}


def _require_snapshot_id(snapshots: Sequence[Snapshot], restored: Snapshot, origin: int) -> int:
    # A snapshot with files is restored as it is. Of the tails on one base, no two end at the same sqn.
    if restored.folds_to == restored.from_sqn:
        return origin
    ends = (s for s in snapshots if s.kind is SnapshotKind.TAIL and (s.base, s.to_sqn) == (origin, restored.folds_to))
    return next((s.id for s in ends), origin)


def list_unmet_checks(pipeline: Pipeline, log: str, judged: Snapshot) -> list[CheckResult]:
    """Returns the checks of a judged snapshot that did not pass. Raises CorruptError."""
    stored = find_judgement(pipeline.store, log, judged)
    return [check for check in stored.checks if not check.passed] if stored else []


def newest_report(pipeline: Pipeline, log: str, snapshot: int | None = None) -> tuple[Snapshot, str]:
    """Returns the newest judged snapshot, or the requested one, with its report's address. Raises NotFoundError."""
    for judged in history(pipeline, log):
        if judged.verdict and snapshot in (None, judged.id):
            return judged, pipeline.store.uri(judged.verdict.path)
    which = "snapshot" if snapshot is None else f"snapshot {snapshot}"
    raise NotFoundError(
        "REPORT_NOT_FOUND",
        f"There is no quality report: no {which} of `{log}` was judged.",
        hint=f"`tidefold step quality {log}` judges the staged snapshot.",
    )
