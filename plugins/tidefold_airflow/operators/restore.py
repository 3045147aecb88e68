"""The operators of restores and savepoints: older rows come back, or leave and enter the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidefold.errors import InvalidInputError
from tidefold.operations.outcome import Status
from tidefold_airflow.airflow_versions import AirflowSkipException
from tidefold_airflow.operators.base import Summary, TidefoldLogOperator, report
from tidefold_airflow.operators.run_context import (
    TaskScope,
    airflow_errors,
    open_scope,
    parse_boolean,
    parse_choice,
    parse_snapshot,
    require_one_log,
)
from tidefold_airflow.operators.spark import TidefoldSnapshotOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome
    from tidefold.operations.restore.restore import Restore
    from tidefold.operations.snapshot.materialize import Import


class TidefoldRestoreOperator(TidefoldSnapshotOperator):
    """
    Stages the rows of a completed snapshot again, under a new id. Needs Spark only if rows must be folded again.

    :param snapshot: Id of the snapshot. (templated)
    :param log_position: ``stay`` (the log is stopped until TidefoldResumeOperator or ``tidefold resume``), ``skip``
        (later changes are left out for good), ``replay`` (the next run folds them again), or ``carry`` (as ``replay``,
        and the changes of a tail are not folded either). (templated)
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
        from tidefold.operations.restore.restore import RestorePlanDetails, explain

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

    def _build_request(self, scope: TaskScope) -> Restore:
        from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
        from tidefold.operations.restore.restore import Restore

        require_one_log(scope)
        snapshot = parse_snapshot(self.snapshot)
        if self.log_position not in (*RestoreMode,):
            raise InvalidInputError("LOG_POSITION_UNKNOWN", f"`log_position` cannot be `{self.log_position}`.")
        return Restore(scope.run, RestorePoint(snapshot, RestoreMode(self.log_position)), by=scope.run)


class TidefoldStopOperator(TidefoldLogOperator):
    """
    Stops each log: it ingests nothing until TidefoldResumeOperator. Its waiting changes can still be folded.

    The tasks after it make the last snapshot (materialize, quality, confirm), and TidefoldSavepointOperator saves it.
    A retry, or a cleared task, changes nothing.

    :param address: Address of the savepoint that the log is stopped for. (templated)
    :param reason: Why it is stopped; ``tidefold status`` shows it. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "address", "reason")

    def __init__(self, *, address: str, reason: str = "a savepoint was asked for", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.address = address
        self.reason = reason

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.ingest.stop_resume import stop
        from tidefold.operations.outcome import Outcome, Status
        from tidefold.operations.restore.target_location import open_place

        place = open_place(scope.pipeline, self.address)
        stopped = stop(scope.pipeline, log, place.address, scope.run, self.reason)
        return Outcome(log, Status.STOPPED, f"{stopped.by} stopped it: {stopped.why}")


class TidefoldResumeOperator(TidefoldLogOperator):
    """
    Lets each stopped log ingest again, including files that landed meanwhile. Other logs are unchanged.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.ingest.stop_resume import resume

        return resume(scope.pipeline, log)


class TidefoldSavepointOperator(TidefoldLogOperator):
    """
    Writes a completed snapshot of one log to an address below ``targets`` of the configuration. Starts no Spark.

    tidefold verifies all bytes, never deletes the copy, and writes ``savepoint.json`` last. A retry finds a finished
    savepoint and does not change it.

    :param address: Folder or ``s3://`` address that does not exist or is empty. (templated)
    :param snapshot: Id of the snapshot; None: the newest completed one. (templated)
    :param layout: ``native`` (a Delta table of the snapshot's own files) or ``canonical`` (plain Parquet). (templated)
    :param overwrite_unfinished: Replace an unfinished savepoint at this address.
    :param logs, only, config: As for TidefoldSparkOperator; one log. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "address", "snapshot", "layout")

    def __init__(
        self,
        *,
        address: str,
        snapshot: int | str | None = None,
        layout: str = "native",
        overwrite_unfinished: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.address = address
        self.snapshot = snapshot
        self.layout = layout
        self.overwrite_unfinished = overwrite_unfinished

    def act_on_all(self, scope: TaskScope) -> list[Outcome]:
        """Refuses several logs, which would share one address."""
        with airflow_errors():
            require_one_log(scope)
        return super().act_on_all(scope)

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.domain.external_snapshot import Layout
        from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint

        state = scope.pipeline.ledger(log).find()
        stopped = state.stopped if state else None
        wanted = SavepointRequest(
            self.address,
            parse_snapshot(self.snapshot) if self.snapshot else None,
            parse_choice("layout", self.layout, Layout),
            self.overwrite_unfinished,
            stopped.run if stopped else "",
        )
        return take_savepoint(scope.pipeline, log, wanted, self.log.info)


class TidefoldImportOperator(TidefoldSnapshotOperator):
    """
    Stages a savepoint, or a full snapshot of another store, as a new snapshot of one log.

    TidefoldQualityOperator judges it and TidefoldConfirmOperator publishes it. Starts Spark only for large canonical
    savepoints.

    :param address: Address of the original, below ``targets`` of the configuration. (templated)
    :param claim_mode: ``no-claim``: never touch the original; ``claim``: delete it when the snapshot is retired;
        ``legacy``: use its files and keep them. (templated)
    :param logs, only, config: As for TidefoldSparkOperator; one log. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldSnapshotOperator.template_fields, "address", "claim_mode")

    def __init__(self, *, address: str, claim_mode: str = "no-claim", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.address = address
        self.claim_mode = claim_mode

    def _build_request(self, scope: TaskScope) -> Import:
        from tidefold.domain.external_snapshot import Ownership
        from tidefold.operations.savepoint.external import open_address, require_target
        from tidefold.operations.snapshot.materialize import Import

        require_one_log(scope)
        original = open_address(self.address)
        # The job opens its own pipeline, which does not know the restriction of this task.
        require_target(scope.pipeline, original)
        return Import(scope.run, original.address, parse_choice("claim_mode", self.claim_mode, Ownership))
