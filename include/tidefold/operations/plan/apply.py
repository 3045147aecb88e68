"""Applies a plan: the log goes on with the table definition, the rows and the change sets of its shadow store."""

from __future__ import annotations

from tidefold.domain.external_snapshot import Ownership
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths, PlanPaths
from tidefold.domain.plan import Plan, PlanRecord
from tidefold.domain.snapshot.claim import find_by_run
from tidefold.errors import NotFoundError, RefusedError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.plan_records import find_plan
from tidefold.operations.plan.edits import require_plannable
from tidefold.operations.plan.plan import find_shown
from tidefold.operations.plan.shadow import Steps
from tidefold.operations.publish.publish_log import roll_forward
from tidefold.operations.savepoint.import_snapshot import Import
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.storage import delete_files


def apply_plan(beside: Pipeline, log: str, steps: Steps, checksum: str = "") -> list[Outcome]:
    """Claims the log, takes the files of the plan over, judges them, confirms and publishes. Returns each outcome.

    The same plan is the same run: a call after a crash goes on. Until the confirmation readers see the former rows.
    Afterwards the shadow store is deleted; what the plan found stays.

    beside: the shadow store. steps: of the pipeline of the log.
    checksum: of the plan that was approved. Another plan is refused, and so is one of a table that has changed since.
    """
    plan_of = beside.plan_of
    assert plan_of is not None
    pipeline, paths, state = plan_of.live, plan_of.paths, plan_of.state
    require_plannable(pipeline, state)
    plan = require_made(log, find_plan(pipeline.store, paths))
    run = plan.run
    roll_forward(pipeline, log)
    state = pipeline.ledger(log).read()
    if (made := find_by_run(state, run)) and made.published:
        if state.reshaped and state.reshaped.id != made.id:
            message = (
                f"Snapshot {made.id} has the rows of this plan, but another was applied since: {state.reshaped.id}."
            )
            raise RefusedError("PLAN_CHANGED", message, hint=f"`tidefold plan {log}` first: it makes the plan again.")
        _delete_shadow(pipeline, paths)
        message = f"snapshot {made.id} has the rows of this plan"
        return [Outcome(log, Status.ALREADY, message, made.id)]
    if checksum:
        _require_approved(state, plan, checksum)
    attempt = state.open_attempt
    # An earlier plan of this log that was killed while it was applied: this one takes its place.
    takeover = attempt is not None and attempt.reshape is not None
    address = f"{beside.store.address}/{LogPaths(log).snapshot(plan.snapshot)}"
    outcomes = [steps.materialize(log, Import(run, address, Ownership.NO_CLAIM, takeover, reshape=True))]
    if outcomes[0].error:
        return outcomes
    outcomes.append(steps.judge(log, run))
    if outcomes[-1].status is not Status.PASSED:
        return [*outcomes, abort(pipeline, log, "the gate refused the rows of its plan", run_id=run)]
    outcomes.append(confirm(pipeline, log, Confirmation(run=run)))
    _delete_shadow(pipeline, paths)
    return outcomes


def require_made(log: str, record: PlanRecord | None) -> Plan:
    """Returns the plan of a record. Raises NotFoundError if there is none, RefusedError if its gate did not pass."""
    if record is None or record.plan is None:
        raise NotFoundError("PLAN_MISSING", f"`{log}` has no plan of this configuration, or it was interrupted.")
    if not record.plan.passed:
        raise RefusedError(
            "PLAN_REFUSED",
            f"The gate did not pass the rows of the plan of `{log}`.",
            hint=f"`tidefold plan {log}` shows its verdict. Correct the data, the suite or the configuration.",
        )
    return record.plan


def _require_approved(state: LogState, plan: Plan, checksum: str) -> None:
    """Raises RefusedError unless the plan is the approved one, and the table is that which it was compared with."""
    if plan.checksum != checksum or not plan.is_compared_with(find_shown(state)):
        raise RefusedError(
            "PLAN_CHANGED",
            f"The plan of `{plan.log}` or its table has changed since the plan {checksum[:12]} was approved.",
            hint=f"`tidefold plan {plan.log}` shows the rows that would change now.",
        )


def _delete_shadow(pipeline: Pipeline, paths: PlanPaths) -> None:
    files = [entry.path for entry in pipeline.store.list(paths.shadow, unfinished=True)]
    delete_files(pipeline.store, files, pipeline.config.retention.threads)
