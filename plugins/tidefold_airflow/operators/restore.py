"""The operator that restores an older snapshot. Its attempt is judged and confirmed like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from tidefold.errors import InvalidInputError
from tidefold.operations.outcome import Status
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import (
    TaskScope,
    airflow_errors,
    open_scope,
    parse_boolean,
    parse_snapshot,
    require_one_log,
)
from tidefold_airflow.operators.spark import TidefoldSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.restore.restore import Restore
    from tidefold.spark.steps import AnyStep


class TidefoldRestoreOperator(TidefoldSparkOperator):
    """
    Stages the rows of a completed snapshot again, under a new id. Needs Spark only if rows must be folded again.

    :param snapshot: Id of the snapshot. (templated)
    :param log_position: ``replay`` (the next run folds later changes again), ``skip`` (they are left out for good), or
        ``carry`` (as ``replay``, and the changes of a tail are not folded either). (templated)
    :param is_dry_run: Only log what a restore would do; the task is then skipped. (templated: true or false)
    :param logs, only, config: As for TidefoldSparkOperator; one log, because each log has its own ids. (templated)
    """

    step = "materialize"
    template_fields: Sequence[str] = (*TidefoldSparkOperator.template_fields, "snapshot", "log_position", "is_dry_run")

    def __init__(
        self, *, snapshot: int | str, log_position: str = "replay", is_dry_run: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.snapshot = snapshot
        self.log_position = log_position
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Plans the restore first, so that a refusal comes before the claim."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            planned = self._plan(scope)
            dry_run = parse_boolean("is_dry_run", self.is_dry_run)
        if dry_run:
            report([planned], context)
            raise AirflowSkipException("Nothing was restored: this was a dry run.")
        return super().execute(context)

    def _plan(self, scope: TaskScope) -> Any:
        from tidefold.domain.snapshot import claim
        from tidefold.operations.outcome import Outcome
        from tidefold.operations.restore.explain import RestorePlanDetails, explain

        [log] = scope.logs
        state = scope.pipeline.ledger(log).read()
        if claim.of_run(state, scope.run):
            return Outcome(log, Status.ALREADY, "this run has restored it")
        outcome = explain(scope.pipeline, log, self._build_request(scope))
        assert isinstance(outcome.details, RestorePlanDetails)
        for bucket in outcome.details.buckets:
            first, last = bucket.key_groups
            for way in bucket.ways:
                for file in way.files:
                    places = ", ".join(f"{place.place} {place.found}" for place in file.places)
                    self.log.info("key groups %d-%d, from snapshot %s: %s", first, last, way.snapshot, places)
        return outcome

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import MaterializeStep

        return MaterializeStep(self._build_request(scope))

    def _build_request(self, scope: TaskScope) -> Restore:
        from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
        from tidefold.operations.restore.restore import Restore

        require_one_log(scope)
        snapshot = parse_snapshot(self.snapshot)
        if self.log_position not in (*RestoreMode,):
            raise InvalidInputError(
                "LOG_POSITION_UNKNOWN",
                f"`log_position` cannot be `{self.log_position}`.",
                hint="Use `replay`, `skip` or `carry`.",
            )
        return Restore(scope.run, RestorePoint(snapshot, RestoreMode(self.log_position)))
