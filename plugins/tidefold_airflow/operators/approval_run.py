"""The run that asks a person about one snapshot: its name, start and state. There is one run for each log and snapshot.

Only this module uses the supervisor of Airflow's tasks, which is not a public API.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidefold.errors import InvalidInputError, RefusedError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold_airflow.airflow_versions import find_run
from tidefold_airflow.operators.run_context import TaskScope

if TYPE_CHECKING:
    from tidefold.domain.log_state import Snapshot

_OPEN = ("queued", "running")


@dataclass(frozen=True)
class ApprovalRun:
    """`state`: that of the DAG run. `since`: when it was started, to the minute, in UTC."""

    state: str
    since: str

    @property
    def open(self) -> bool:
        return self.state in _OPEN


def needs_answer(snapshot: Snapshot | None) -> bool:
    """Whether a person may still decide: it is staged, the gate refused it, and nobody has overridden that."""
    from tidefold.domain.log_state import State

    if snapshot is None or snapshot.state is not State.STAGED or snapshot.verdict is None:
        return False
    return not snapshot.verdict.allows


def run_id_of(log: str, snapshot: Snapshot) -> str:
    """Returns the run's id. The same staged files give the same id; a reused snapshot id gives another one."""
    made = hashlib.sha256(f"{snapshot.run} {snapshot.started_at} {snapshot.manifest}".encode()).hexdigest()
    return f"{log}__snapshot_{snapshot.id}__{made[:12]}"


def find_approval(dag: str, log: str, snapshot: Snapshot) -> ApprovalRun | None:
    """Returns the run that asks about the snapshot, open or ended; None: there is none."""
    run = find_run(_send, dag, run_id_of(log, snapshot))
    return ApprovalRun(*run) if run else None


def ask_about(dag: str, log: str, snapshot: Snapshot) -> Outcome:
    """Starts the run that asks, or finds it. Raises RefusedError (it ended in vain), InvalidInputError (no DAG)."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

    run_id = run_id_of(log, snapshot)
    asked = {"log": log, "snapshot": snapshot.id, "manifest": snapshot.manifest}
    try:
        response = _send(TriggerDagRun(dag_id=dag, run_id=run_id, conf=asked))
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") != 404:
            raise
        raise InvalidInputError(
            "APPROVAL_DAG_MISSING",
            f"Snapshot {snapshot.id} of `{log}` needs an approval, and there is no DAG `{dag}` to ask for it.",
        ) from error
    if isinstance(response, ErrorResponse) and response.error == ErrorType.DAGRUN_ALREADY_EXISTS:
        approval = find_approval(dag, log, snapshot)
        if approval and not approval.open:
            raise _explain_end(dag, log, snapshot)
    summary = snapshot.verdict.summary if snapshot.verdict else ""
    message = f"snapshot {snapshot.id} failed its quality gate ({summary}); a person decides: run {run_id} of {dag}"
    return Outcome(log, Status.ASKED, message, snapshot.id)


def waits(scope: TaskScope, log: str, dag: str) -> Outcome | None:
    """Returns the outcome of a step for a log that waits for a person; None: it does not wait.

    A log of a set also waits while a person is asked about another log of the set. If the question ended without an
    answer, the outcome is an error: nobody decided, so the snapshot stays staged.
    """
    chosen = scope.pipeline.config.set_of(log)
    for one in (log, *(other for other in (chosen.logs if chosen else ()) if other != log)):
        state = scope.pipeline.ledger(one).find()
        attempt = state.open_attempt if state else None
        if attempt is None or not needs_answer(attempt):
            continue
        approval = find_approval(dag, one, attempt)
        if approval and approval.open:
            since = f"waits for an approval since {approval.since} (required actions of {dag})"
            of = "" if one == log else f" of `{one}` in its set"
            return Outcome(log, Status.WAITS, f"skipped: snapshot {attempt.id}{of} {since}", attempt.id)
        if approval:
            return Outcome.of_error(log, _explain_end(dag, one, attempt))
    return None


def find_asked(scope: TaskScope, log: str) -> Outcome | None:
    """Returns the outcome of a log whose set needs the answer of a person about another log; None: it needs none.

    The task of that log asks.
    """
    chosen = scope.pipeline.config.set_of(log)
    for other in (one for one in (chosen.logs if chosen else ()) if one != log):
        state = scope.pipeline.ledger(other).find()
        attempt = state.open_attempt if state else None
        if attempt and needs_answer(attempt):
            message = f"its set waits for a person: snapshot {attempt.id} of `{other}` failed its quality gate"
            return Outcome(log, Status.WAITS, message)
    return None


def still_waits(scope: TaskScope, log: str, dag: str) -> Outcome:
    """Returns the outcome for a log that an earlier step found waiting. It stays out of the run, even if answered."""
    message = "skipped: it waited for an approval when this run began; the next run continues"
    return waits(scope, log, dag) or Outcome(log, Status.NOTHING, message)


def _explain_end(dag: str, log: str, snapshot: Snapshot) -> RefusedError:
    return RefusedError(
        "APPROVAL_ENDED",
        f"Run `{run_id_of(log, snapshot)}` of `{dag}` asked about snapshot {snapshot.id} of `{log}` and has ended.",
        hint=f"Clear that run, so that it asks again, or run `tidefold step abort {log}`.",
    )


def _send(message: Any) -> Any:
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    return SUPERVISOR_COMMS.send(message)
