"""The operators that bring older rows back, of a log or of a set, and the one that lets a stopped log go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidefold.operations.ground.outcome import Status
from tidefold_airflow.operators import run_context
from tidefold_airflow.operators.base import Summary, TidefoldLogOperator, end_as_skipped, report
from tidefold_airflow.operators.spark import TidefoldSnapshotOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.ground.outcome import Outcome
    from tidefold.operations.restore.restore import Restore
    from tidefold.operations.sets.restore import RestoreSet


class TidefoldRestoreOperator(TidefoldSnapshotOperator):
    """
    Stages the rows of a completed snapshot again, under a new id. Needs Spark only if rows must be folded again.

    :param snapshot: Id of the snapshot. (templated)
    :param log_position: ``stay`` (the log is stopped until TidefoldResumeOperator or ``tidefold move resume``),
        ``skip`` (later changes are left out for good), ``replay`` (the next run folds them again), or ``carry`` (as
        ``replay``, and the changes of a tail are not folded either). (templated)
    :param is_dry_run: Only log what a restore would do; the task is then skipped. (templated: true or false)
    :param logs, only, config: As for TidefoldSparkOperator; one log, because each log has its own ids. (templated)
    """

    template_fields: Sequence[str] = (
        *TidefoldSnapshotOperator.template_fields,
        "snapshot",
        "log_position",
        "is_dry_run",
    )

    def __init__(
        self, *, snapshot: int | str, log_position: str, is_dry_run: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.snapshot = snapshot
        self.log_position = log_position
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Plans the restore first, so that a refusal comes before the claim."""
        with run_context.airflow_errors():
            scope = run_context.open_scope(self.config, self.logs, context, self.only)
            planned = self._plan(scope)
            dry_run = run_context.parse_boolean("is_dry_run", self.is_dry_run)
        if dry_run:
            report([planned], context)
            end_as_skipped("Nothing was restored: this was a dry run.")
        return super().execute(context)

    def _plan(self, scope: run_context.TaskScope) -> Any:
        from tidefold.domain.snapshot import claim
        from tidefold.operations.ground.outcome import Outcome
        from tidefold.operations.restore.restore import RestorePlanDetails, explain

        [log] = scope.logs
        state = scope.pipeline.ledger(log).read()
        if claim.find_by_run(state, scope.run):
            return Outcome(log, Status.ALREADY, "this run has restored it")
        outcome = explain(scope.pipeline, log, self._build_request(scope))
        assert isinstance(outcome.details, RestorePlanDetails)
        for bucket in outcome.details.buckets:
            first, last = bucket.key_groups
            for file in bucket.ways[0].files:
                kind = next((one.place.partition(":")[0] for one in file.places if one.found == "there"), "nowhere")
                self.log.info("key groups %d-%d of snapshot %s: from %s", first, last, bucket.ways[0].snapshot, kind)
        return outcome

    def _build_request(self, scope: run_context.TaskScope) -> Restore:
        from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
        from tidefold.operations.restore.restore import Restore

        run_context.require_one_log(scope)
        mode = run_context.parse_choice("log_position", self.log_position, RestoreMode)
        return Restore(scope.run, RestorePoint(run_context.parse_snapshot(self.snapshot), mode), by=scope.run)


class TidefoldResumeOperator(TidefoldLogOperator):
    """
    Lets each stopped log ingest again, including files that landed meanwhile. Other logs are unchanged.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def act(self, scope: run_context.TaskScope, log: str) -> Outcome:
        from tidefold.operations.ingest.stop_resume import resume

        return resume(scope.pipeline, log)


class TidefoldRestoreSetOperator(TidefoldSnapshotOperator):
    """
    Stages the rows of an earlier version for all logs of a set. Needs Spark only if rows must be folded again.

    TidefoldQualityOperator judges them, and TidefoldConfirmOperator publishes them together. If one log cannot be
    restored, none is.

    :param of_set: Name of the set. (templated)
    :param version: Number of the version. (templated)
    :param log_position: ``stay`` (the logs are stopped until TidefoldResumeOperator or ``tidefold move resume``) or
        ``replay`` (the next run folds the later changes again). (templated)
    :param is_dry_run: Only log what a restore would do; the task is then skipped. (templated: true or false)
    :param only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (
        *TidefoldSnapshotOperator.template_fields, "of_set", "version", "log_position", "is_dry_run",
    )  # fmt: skip

    def __init__(
        self, *, of_set: str, version: int | str, log_position: str, is_dry_run: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.of_set = of_set
        self.version = version
        self.log_position = log_position
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Restores all logs or none, or only says what that would do."""
        from tidefold.operations.sets.restore import explain_set

        with run_context.airflow_errors():
            scope = run_context.open_set_scope(self.config, self.of_set, context, self.only)
            if not run_context.parse_boolean("is_dry_run", self.is_dry_run):
                return report(self._run_step(scope, context), context)
            planned = explain_set(scope.pipeline, self._build_request(scope))
        report(planned, context)
        end_as_skipped("Nothing was restored: this was a dry run.")

    def _run_step(self, scope: run_context.TaskScope, context: Context) -> list[Outcome]:
        from tidefold.operations.sets.restore import restore_set

        run, request = super()._run_step, self._build_request(scope)
        return restore_set(scope.pipeline, request, lambda logs: run(replace(scope, logs=[*logs]), context))

    def _build_request(self, scope: run_context.TaskScope) -> RestoreSet:
        from tidefold.domain.snapshot.claim import RestoreMode
        from tidefold.operations.sets.restore import RestoreSet

        mode = run_context.parse_choice("log_position", self.log_position, RestoreMode)
        return RestoreSet(scope.run, self.of_set, run_context.parse_version(self.version), mode=mode, by=scope.run)
