"""Applies a plan: the log goes on with the table definition, the rows and the change sets of its shadow store."""

from __future__ import annotations

import shutil
from pathlib import Path

from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Ownership
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import find_by_run
from tidefold.errors import NotFoundError, RefusedError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import require_state
from tidefold.operations.plan.edits import require_plannable
from tidefold.operations.publish.publish_log import roll_forward
from tidefold.operations.quality.judge import judge
from tidefold.operations.savepoint.import_snapshot import Import
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.engine import QualityEngine


def apply_plan(pipeline: Pipeline, log: str, beside: Pipeline, folder: Path, engine: QualityEngine) -> list[Outcome]:
    """Claims the log, takes the files of the plan over, judges them, confirms and publishes. Returns each outcome.

    The same plan is the same run: a call after a crash goes on. Until the confirmation readers see the former rows.

    folder: of the shadow store; it is deleted when its rows are published.
    """
    state = require_state(pipeline, log)
    require_plannable(pipeline, state)
    planned = beside.ledger(log).find()
    latest = _require_made(log, planned)
    run = f"plan-{(latest.manifest or '')[:16]}"
    roll_forward(pipeline, log)
    if (made := find_by_run(pipeline.ledger(log).read(), run)) and made.published:
        shutil.rmtree(folder, ignore_errors=True)
        message = f"snapshot {made.id} has the rows of this plan"
        return [Outcome(log, Status.ALREADY, message, made.id)]
    address = f"{beside.store.address}/{LogPaths(log).snapshot(latest.id)}"
    outcomes = materialize(pipeline, [log], Import(run, address, Ownership.NO_CLAIM, reshape=True), in_process)
    if outcomes[0].error:
        return outcomes
    outcomes += judge(pipeline, [log], run, engine)
    if outcomes[-1].status is not Status.PASSED:
        return [*outcomes, abort(pipeline, log, "the gate refused the rows of its plan", run_id=run)]
    outcomes.append(confirm(pipeline, log, Confirmation(run=run)))
    shutil.rmtree(folder, ignore_errors=True)
    return outcomes


def _require_made(log: str, planned: LogState | None) -> Snapshot:
    latest = planned.latest if planned else None
    if planned is None or latest is None:
        raise NotFoundError("PLAN_MISSING", f"`{log}` has no plan of this configuration that passed its gate.")
    if latest.to_sqn < planned.last_sqn or planned.open_attempt:
        raise RefusedError(
            "PLAN_REFUSED",
            f"The gate refused the newest rows of the plan of `{log}`.",
            hint=f"`tidefold plan {log}` shows its verdict. Correct the data, the suite or the configuration.",
        )
    return latest
