"""The operators that plan an edit of a log's configuration, and apply the plan that a person approved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidefold.errors import GateFailedError
from tidefold_airflow.airflow_versions import AirflowFailException
from tidefold_airflow.observability.assets import TABLES
from tidefold_airflow.operators import run_context
from tidefold_airflow.operators.approve import ApprovalQuestion, ask, read_answer
from tidefold_airflow.operators.base import SnapshotLink, Summary, end_as_skipped, report
from tidefold_airflow.operators.confirm import announce_published
from tidefold_airflow.operators.spark import TidefoldSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.domain.plan import Plan
    from tidefold.operations.ground.outcome import Outcome
    from tidefold.operations.ground.pipeline import Pipeline
    from tidefold.spark.steps import AnyStep

_SHOWN = 3


class TidefoldPlanOperator(TidefoldSparkOperator):
    """
    Plans what the configuration changes in the rows of a log, as ``tidefold plan`` does, and stores the plan.

    Skipped if the log has this configuration. Fails if the gate refuses the rows, or a landed file is gone.

    :param logs, only, config: As for TidefoldSparkOperator; one log. (templated)
    """

    step = "plan"

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Returns the plan's checksum and counts."""
        from tidefold.operations.plan.plan import make_plan
        from tidefold.operations.snapshot.switch import require_caught_up
        from tidefold.presentation.plans import plan_lines
        from tidefold.spark.steps import plan_steps

        with run_context.airflow_errors():
            scope, log, beside = _open(self, context)
            inside = replace(scope, pipeline=beside)
            plan = make_plan(beside, log, plan_steps(_bind(self, inside, context)), _SHOWN)
            for line in plan_lines(plan):
                self.log.info("%s", line)
            if not plan.edits:
                end_as_skipped(f"`{log}` has this configuration: there is nothing to apply.")
            if not plan.passed:
                raise GateFailedError("GATE_FAILED", f"The gate refused the rows of the plan: {plan.gate}")
            assert beside.plan_of is not None
            if plan.gone:
                require_caught_up(beside.plan_of.state, beside.ledger(log).read())
        return {"log": log, "checksum": plan.checksum, "rows": list(plan.rows), "counts": dict(plan.counts)}


class TidefoldApplyPlanOperator(TidefoldSparkOperator):
    """
    Asks a person about the stored plan of the configuration, and applies exactly that plan, as ``tidefold plan
    --apply`` does.

    The answer is bound to the plan's checksum: if plan or table changes meanwhile, the task fails (PLAN_CHANGED).
    Rejected: the task is skipped. No answer in time: it fails. Nothing changes in both cases. Sends the asset event of
    the table.

    :param patience: How long the person may take.
    :param logs, only, config: As for TidefoldSparkOperator; one log. (templated)
    """

    step = "plan"
    operator_extra_links = (SnapshotLink(),)

    def __init__(self, *, patience: timedelta, **kwargs: Any) -> None:
        super().__init__(outlets=[*kwargs.pop("outlets", ()), TABLES], **kwargs)
        self.patience = patience

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Asks. After the answer Airflow calls `execute_complete`."""
        from tidefold.operations.ground.plan_records import find_plan
        from tidefold.operations.plan.apply import require_made

        with run_context.airflow_errors():
            scope, log, beside = _open(self, context)
            plan_of = beside.plan_of
            assert plan_of is not None
            plan = require_made(log, find_plan(scope.pipeline.store, plan_of.paths))
        ask(_question(plan, self.patience), context, checksum=plan.checksum)

    def execute_complete(self, context: Context, event: Any, checksum: str) -> Summary:
        """Applies the plan that was approved. A retry goes on where the try before ended."""
        from tidefold.operations.plan.apply import apply_plan
        from tidefold.spark.steps import plan_steps

        answer = read_answer(event)
        self.log.info("Answer: %s", answer)
        if not answer.given:
            raise AirflowFailException(f"{answer.why}: nothing was applied. Clear this task, so that it asks again.")
        if not answer.approved:
            end_as_skipped(f"Rejected by {answer.by}: {answer.why or 'no reason given'}. Nothing was applied.")
        with run_context.airflow_errors():
            scope, log, beside = _open(self, context)
            outcomes = apply_plan(beside, log, plan_steps(_bind(self, scope, context)), checksum)
        last = outcomes[-1:]
        return report(last, context, has_events=bool(announce_published(scope, last, context, self.config)))


def _open(operator: TidefoldSparkOperator, context: Context) -> tuple[run_context.TaskScope, str, Pipeline]:
    """Returns the scope of a task on one log, the log, and the shadow store of the plan of its configuration."""
    from tidefold.wiring import open_plan

    scope = run_context.open_scope(operator.config, operator.logs, context, operator.only)
    run_context.require_one_log(scope)
    [log] = scope.logs
    return scope, log, open_plan(scope.pipeline, log)


def _bind(
    operator: TidefoldSparkOperator, scope: run_context.TaskScope, context: Context
) -> Callable[[AnyStep, Sequence[str]], list[Outcome]]:
    """Returns the function that runs any step of a plan as this operator runs its own."""
    return lambda step, logs: operator.run_one_step(replace(scope, logs=[*logs]), step, context)


def _question(plan: Plan, patience: timedelta) -> ApprovalQuestion:
    from tidefold.presentation.plans import plan_lines

    # It quotes data. As code, none of it is read as Markdown.
    shown = "\n".join(plan_lines(plan)).replace("`", "'")
    body = f"""```
{shown}
```

**Approve**: publish exactly this plan ({plan.checksum[:12]}). **Reject**: nothing changes."""
    without = f"`tidefold plan {plan.log}` shows the plan, and with `--apply` publishes it."
    return ApprovalQuestion(f"Apply the edited configuration of {plan.log}?", body, patience, without)
