"""The operator that restores an earlier version of a set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidefold_airflow.airflow_versions import AirflowSkipException
from tidefold_airflow.operators.base import Summary, report
from tidefold_airflow.operators.run_context import (
    airflow_errors,
    open_set_scope,
    parse_boolean,
    parse_choice,
    parse_version,
)
from tidefold_airflow.operators.spark import TidefoldSnapshotOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome
    from tidefold.operations.sets.restore import RestoreSet
    from tidefold_airflow.operators.run_context import TaskScope


class TidefoldRestoreSetOperator(TidefoldSnapshotOperator):
    """
    Stages the rows of an earlier version for all logs of a set. Needs Spark only if rows must be folded again.

    TidefoldQualityOperator judges them, and TidefoldConfirmOperator publishes them together. If one log cannot be
    restored, none is.

    :param of_set: Name of the set. (templated)
    :param version: Number of the version. (templated)
    :param log_position: ``stay`` (the logs are stopped until TidefoldResumeOperator or ``tidefold resume``) or
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

        with airflow_errors():
            scope = open_set_scope(self.config, self.of_set, context, self.only)
            if not parse_boolean("is_dry_run", self.is_dry_run):
                return report(self._run_step(scope, context), context)
            planned = explain_set(scope.pipeline, self._build_request(scope))
        report(planned, context)
        raise AirflowSkipException("Nothing was restored: this was a dry run.")

    def _run_step(self, scope: TaskScope, context: Context) -> list[Outcome]:
        from tidefold.operations.sets.restore import restore_set

        run, request = super()._run_step, self._build_request(scope)
        return restore_set(scope.pipeline, request, lambda logs: run(replace(scope, logs=[*logs]), context))

    def _build_request(self, scope: TaskScope) -> RestoreSet:
        from tidefold.domain.snapshot.claim import RestoreMode
        from tidefold.operations.sets.restore import RestoreSet

        mode = parse_choice("log_position", self.log_position, RestoreMode)
        return RestoreSet(scope.run, self.of_set, parse_version(self.version), mode=mode, by=scope.run)
