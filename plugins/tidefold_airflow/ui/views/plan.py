"""Shows the plan of the configuration of a log: what it found, and whether it can be applied still."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.domain.log_state import LogState
from tidefold.domain.paths import PlanPaths
from tidefold.domain.plan import Plan
from tidefold.domain.snapshot.claim import find_by_run
from tidefold.errors import NotFoundError, TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.plan_records import find_plan
from tidefold.operations.plan.plan import find_shown
from tidefold.operations.snapshot.switch import require_caught_up
from tidefold.presentation.plans import count_differences, render_plan, say_next_step
from tidefold.wiring import open_beside
from tidefold_airflow.ui.health import Word


@dataclass(frozen=True, slots=True)
class PlanView:
    """The plan of a log's configuration.

    counts: how many rows differ, by kind.
    step: what a person does now.
    """

    plan: Plan
    counts: dict[str, int]
    word: Word
    step: str


def view_plan(pipeline: Pipeline, state: LogState) -> PlanView | None:
    """Returns how the plan of the configuration stands; None: there is none, or it is not finished."""
    try:
        if (plan := _find_plan(pipeline, state)) is None:
            return None
        # Once the plan is applied, its store is deleted.
        shadow = f"{pipeline.store.address}/{PlanPaths(plan.log, plan.edit).shadow}"
        planned = open_beside(pipeline.config, plan.log, shadow).ledger(plan.log).find()
    except TidefoldError:  # The page shows the log all the same.
        return None
    word, step = Word("ready", "busy"), say_next_step(plan)
    if (made := find_by_run(state, plan.run)) and made.published:
        word, step = Word("applied", "good"), f"Snapshot {made.id} has its rows."
    elif not plan.passed or plan.gone:
        word = Word("incomplete" if plan.passed else "refused", "bad")
    elif not plan.edits:
        word = Word("no edit", "calm")
    elif planned:
        try:
            require_caught_up(state, planned)
        except TidefoldError as error:
            word, step = Word("behind", "warn"), f"[{error.code}] {error.message} {error.hint}"
        else:
            if not plan.is_compared_with(find_shown(state)):
                step = f"The table has changed since: `tidefold plan {plan.log}` compares its rows again."
                word = Word("behind", "warn")
    return PlanView(plan, count_differences(plan), word, step)


def _find_plan(pipeline: Pipeline, state: LogState) -> Plan | None:
    record = find_plan(pipeline.store, PlanPaths(state.log, pipeline.log(state.log).edit))
    return record.plan if record else None


def read_plan(pipeline: Pipeline, state: LogState) -> bytes:
    """Returns the plan as a page that stands alone. Raises NotFoundError."""
    if (plan := _find_plan(pipeline, state)) is None:
        hint = f"`tidefold plan {state.log}`, or the DAG tidefold_plan, makes one."
        raise NotFoundError("PLAN_MISSING", f"`{state.log}` has no plan of this configuration.", hint=hint)
    return render_plan(plan).encode()
