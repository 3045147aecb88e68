"""Operators of whole sets: restore an earlier version, save a version, and import a saved one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tidefold_airflow.airflow_versions import AirflowSkipException
from tidefold_airflow.operators.base import ReportLink, SnapshotLink, Summary, report
from tidefold_airflow.operators.run_context import (
    airflow_errors,
    open_set_scope,
    parse_boolean,
    parse_choice,
    parse_version,
)
from tidefold_airflow.operators.spark import TidefoldSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome
    from tidefold.operations.sets.restore import RestoreSet
    from tidefold.operations.sets.savepoint import ImportSet
    from tidefold.spark.steps import AnyStep
    from tidefold_airflow.operators.run_context import TaskScope


class TidefoldSetOperator(TidefoldSparkOperator):
    """
    Base of the operators that stage snapshots of all logs of a set, or of none.

    :param of_set: Name of the set. (templated)
    :param only, config: As for TidefoldSparkOperator. (templated)
    """

    step = "materialize"
    template_fields: Sequence[str] = (*TidefoldSparkOperator.template_fields, "of_set")

    def __init__(self, *, of_set: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.of_set = of_set

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Stages snapshots of all logs, or of none."""
        with airflow_errors():
            scope = open_set_scope(self.config, self.of_set, context, self.only)
            outcomes = self._run_step(scope, context)
        return report(outcomes, context)

    def _run_step(self, scope: TaskScope, context: Context) -> list[Outcome]:
        run = super()._run_step
        return self._stage(scope, lambda logs: run(replace(scope, logs=[*logs]), context))

    def _stage(self, scope: TaskScope, run: Callable[[Sequence[str]], list[Outcome]]) -> list[Outcome]:
        """Stages the set. `run` runs the step for some logs."""
        raise NotImplementedError

    def _build_step(self, scope: TaskScope) -> AnyStep:
        from tidefold.spark.steps import MaterializeStep

        return MaterializeStep(self._build_request(scope))

    def _build_request(self, scope: TaskScope) -> RestoreSet | ImportSet:
        raise NotImplementedError


class TidefoldRestoreSetOperator(TidefoldSetOperator):
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

    template_fields: Sequence[str] = (*TidefoldSetOperator.template_fields, "version", "log_position", "is_dry_run")

    def __init__(self, *, version: int | str, log_position: str, is_dry_run: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.log_position = log_position
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> Summary:  # type: ignore[override]
        """Restores all logs or none, or only says what that would do."""
        from tidefold.operations.sets.restore import explain_set

        with airflow_errors():
            if not parse_boolean("is_dry_run", self.is_dry_run):
                return super().execute(context)
            scope = open_set_scope(self.config, self.of_set, context, self.only)
            planned = explain_set(scope.pipeline, self._build_request(scope))
        report(planned, context)
        raise AirflowSkipException("Nothing was restored: this was a dry run.")

    def _stage(self, scope: TaskScope, run: Callable[[Sequence[str]], list[Outcome]]) -> list[Outcome]:
        from tidefold.operations.sets.restore import restore_set

        return restore_set(scope.pipeline, self._build_request(scope), run)

    def _build_request(self, scope: TaskScope) -> RestoreSet:
        from tidefold.domain.snapshot.claim import RestoreMode
        from tidefold.operations.sets.restore import RestoreSet

        mode = parse_choice("log_position", self.log_position, RestoreMode)
        return RestoreSet(scope.run, self.of_set, parse_version(self.version), mode=mode, by=scope.run)


class TidefoldImportSetOperator(TidefoldSetOperator):
    """
    Stages the savepoint of a set as new snapshots of all its logs. The set must not have begun.

    TidefoldQualityOperator judges them, and TidefoldConfirmOperator publishes them together at the saved point.

    :param of_set: Name of the set. (templated)
    :param address: Address of the savepoint, below ``targets`` of the configuration. (templated)
    :param claim_mode: As for TidefoldImportOperator. (templated)
    :param only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldSetOperator.template_fields, "address", "claim_mode")

    def __init__(self, *, address: str, claim_mode: str = "no-claim", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.address = address
        self.claim_mode = claim_mode

    def _stage(self, scope: TaskScope, run: Callable[[Sequence[str]], list[Outcome]]) -> list[Outcome]:
        from tidefold.operations.sets.savepoint import import_set

        return import_set(scope.pipeline, self._build_request(scope), run)

    def _build_request(self, scope: TaskScope) -> ImportSet:
        from tidefold.domain.external_snapshot import Ownership
        from tidefold.operations.savepoint.external import open_address, require_target
        from tidefold.operations.sets.savepoint import ImportSet

        original = open_address(self.address)
        # The job opens its own pipeline, which does not know the restriction of this task.
        require_target(scope.pipeline, original)
        return ImportSet(
            scope.run, self.of_set, original.address, parse_choice("claim_mode", self.claim_mode, Ownership)
        )


class TidefoldSaveSetOperator(BaseOperator):
    """
    Writes a savepoint of each table of a version of a set, and a description of the set last. Starts no Spark.

    A retry finds what is finished and does not change it.

    :param of_set: Name of the set. (templated)
    :param address: Folder or address below ``targets`` of the configuration. (templated)
    :param version: Number of the version; None: the one that readers use. (templated)
    :param layout, overwrite_unfinished: As for TidefoldSavepointOperator. (templated)
    :param only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = ("of_set", "address", "version", "layout", "config", "only")
    operator_extra_links = (SnapshotLink(), ReportLink())

    def __init__(
        self,
        *,
        of_set: str,
        address: str,
        version: int | str | None = None,
        layout: str = "native",
        overwrite_unfinished: bool = False,
        config: str | None = None,
        only: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.of_set = of_set
        self.address = address
        self.version = version
        self.layout = layout
        self.overwrite_unfinished = overwrite_unfinished
        self.config = config
        self.only = list(only)

    def execute(self, context: Context) -> Summary:
        """Saves all tables; fails if one was not saved."""
        from tidefold.domain.external_snapshot import Layout
        from tidefold.operations.sets.savepoint import SetSavepointRequest, save_set

        with airflow_errors():
            scope = open_set_scope(self.config, self.of_set, context, self.only)
            wanted = SetSavepointRequest(
                self.address,
                parse_version(self.version) if self.version else None,
                parse_choice("layout", self.layout, Layout),
                self.overwrite_unfinished,
            )
            outcomes = save_set(scope.pipeline, self.of_set, wanted, self.log.info)
        return report(outcomes, context)
