"""The operator that brings an older snapshot back: one more attempt, to be judged and confirmed like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from tidefold.errors import InvalidInputError
from tidefold.operations.outcome import Status
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import Scope, airflow_errors, open_scope, truth
from tidefold_airflow.operators.spark import TidefoldSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.restore.restore import Restore


class TidefoldRestoreOperator(TidefoldSparkOperator):
    """Stages the rows of a completed snapshot again, under a new id; needs Spark only where rows must be made anew.

    :param snapshot: id of the snapshot (templated).
    :param log_position: `replay` folds the changes after the snapshot again later; `skip` leaves them out (templated).
    :param plan: a dry run (templated: true or false): log the source of each file, then skip the task. It is not called
        `dry_run`, because each operator of Airflow has a method of that name.
    :param logs, config: as for TidefoldSparkOperator; one log, as ids are a log's own.
    """

    template_fields: Sequence[str] = (*TidefoldSparkOperator.template_fields, "snapshot", "log_position", "plan")

    def __init__(
        self, *, snapshot: int | str, log_position: str = "replay", plan: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(step="materialize", **kwargs)
        self.snapshot = snapshot
        self.log_position = log_position
        self.plan = plan

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Refuses what cannot be before anything is claimed."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            planned = self._planned(scope)
            dry_run = truth("plan", self.plan)
        if dry_run:
            report([planned], context)
            raise AirflowSkipException("Nothing was restored: that is all that was asked.")
        return super().execute(context)

    def _planned(self, scope: Scope) -> Any:
        from tidefold.domain.snapshot import claim
        from tidefold.operations.outcome import Outcome
        from tidefold.operations.restore.explain import explain

        [log] = scope.logs
        state = scope.pipeline.ledger(log).read()
        if claim.of_run(state, scope.run):
            return Outcome(log, Status.ALREADY, "this run has restored it")
        outcome = explain(scope.pipeline, log, self._build_request(scope))
        for bucket in outcome.facts["buckets"]:
            first, last = bucket["key_groups"]
            for way in bucket["ways"]:
                for file in way["files"]:
                    places = ", ".join(f"{place['place']} {place['found']}" for place in file["places"])
                    self.log.info("key groups %d-%d, from snapshot %s: %s", first, last, way["snapshot"], places)
        return outcome

    def _build_request(self, scope: Scope) -> Restore:
        from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
        from tidefold.operations.restore.restore import Restore

        if len(scope.logs) != 1:
            raise InvalidInputError("ONE_LOG", "A restore works on exactly one log.", hint="Name it.")
        if isinstance(self.snapshot, bool) or not isinstance(self.snapshot, int) or self.snapshot < 1:
            message = f"`{self.snapshot}` is no id of a snapshot."
            raise InvalidInputError("SNAPSHOT_INVALID", message, hint="`tidefold history LOG` lists them.")
        if self.log_position not in (*RestoreMode,):
            raise InvalidInputError(
                "LOG_POSITION_UNKNOWN", f"`{self.log_position}` is no log position.", hint="Use `replay` or `skip`."
            )
        return Restore(scope.run, RestorePoint(self.snapshot, RestoreMode(self.log_position)))
