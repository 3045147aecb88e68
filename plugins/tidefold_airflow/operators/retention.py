"""Operators that delete what retention does not need. Each has a dry run, and can ask a person before it deletes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from tidefold.errors import RefusedError
from tidefold.operations.outcome import Status
from tidefold_airflow.operators.approval import ApprovalQuestion, ask, read_answer
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.idle_tasks import find_idle_retention, skip
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors, open_scope, parse_boolean, require_ran

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome

_LISTED = 20


class TidefoldRetentionOperator(TidefoldLogOperator):
    """
    Base of the operators that delete something.

    :param is_dry_run: Only log what would be deleted. (templated: true or false)
    :param approval: Ask a person first, who may take this long; None: nobody is asked. A rejection skips the task.
        Only files that the person saw are deleted.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    # `dry_run` is a method of all operators.
    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "is_dry_run")

    def __init__(self, *, is_dry_run: bool | str = False, approval: timedelta | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = is_dry_run
        self.approval = approval

    def execute(self, context: Context) -> Summary:
        """Plans and, unless it is a dry run, applies the plan."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            require_ran(context)
            dry_run = parse_boolean("is_dry_run", self.is_dry_run)
        if dry_run:
            return report(self._log_plans(self.remove(scope, dry_run=True)), context)
        if self.approval:
            planned = self._log_plans(self.remove(scope, dry_run=True))
            with_effect = [outcome for outcome in planned if outcome.status is Status.PLANNED]
            if with_effect:
                ask(self._question(with_effect, self.approval), context, shown=_digest(planned))
        return report(self.remove(scope, dry_run=False), context)

    def execute_complete(self, context: Context, event: dict[str, Any], shown: str) -> Summary:
        """Applies the plan after the answer, if it is still the plan that the person saw."""
        answer = read_answer(event)
        if not answer.approved:
            who = f"{answer.by} rejected it" if answer.by else "nobody approved it"
            raise AirflowSkipException(f"Nothing was removed: {who}. {answer.why}")
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            if _digest(self.remove(scope, dry_run=True)) != shown:
                raise RefusedError(
                    "PLAN_CHANGED",
                    f"The plan changed after {answer.by} approved it.",
                    hint="Nothing was removed. Clear the task, so that it asks again.",
                )
        self.log.info("Approved by %s. %s", answer.by, answer.why)
        return report(self.remove(scope, dry_run=False), context)

    def remove(self, scope: TaskScope, dry_run: bool) -> list[Outcome]:
        """Returns one outcome for each log. A dry run changes nothing."""
        from tidefold.operations.outcome import for_each_log

        return for_each_log(scope.logs, lambda log: self.remove_of(scope, log, dry_run))

    def remove_of(self, scope: TaskScope, log: str, dry_run: bool) -> Outcome:
        """Returns the outcome of one log."""
        raise NotImplementedError

    def _log_plans(self, planned: list[Outcome]) -> list[Outcome]:
        from tidefold.operations.retention.details import bounds_of, paths_of

        for outcome in planned:
            for bound in bounds_of(outcome):
                self.log.info("%s: %s keeps the log after %s: %s", outcome.log, bound.name, bound.sqn, bound.why)
            for path in paths_of(outcome):
                self.log.info("%s: would remove %s", outcome.log, path)
        return planned

    def _question(self, planned: Sequence[Outcome], patience: timedelta) -> ApprovalQuestion:
        from tidefold.operations.retention.details import paths_of

        lines = [f"- **{o.log}**: {o.message}" for o in planned]
        paths = [path for o in planned for path in paths_of(o)]
        lines += ["", *(f"    {path}" for path in paths[:_LISTED])]
        lines += [f"    and {len(paths) - _LISTED:,} more: see the task's log"] if len(paths) > _LISTED else []
        subject = f"{self.task_id}: remove {len(paths):,} files of {len(planned)} logs?"
        return ApprovalQuestion(subject, "\n".join(lines), patience)


class TidefoldSubsumeOperator(TidefoldRetentionOperator):
    """
    Retires completed snapshots beyond ``retention.snapshots`` and deletes the files that only they need.

    :param skip_idle: Skip the retention tasks after this one that would delete nothing.
    :param is_dry_run, approval, logs, only, config: As for TidefoldRetentionOperator.
    """

    def __init__(self, *, skip_idle: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skip_idle = skip_idle

    def execute(self, context: Context) -> Summary:
        """Retires snapshots, then finds what the tasks after this one would delete."""
        summary = super().execute(context)
        if self.skip_idle:
            with airflow_errors():
                scope = open_scope(self.config, self.logs, context, self.only)
            if idle := find_idle_retention(self, scope):
                skip(idle, summary, context)
        return summary

    def remove_of(self, scope: TaskScope, log: str, dry_run: bool) -> Outcome:
        from tidefold.operations.retention.subsume import subsume

        return subsume(scope.pipeline, log, dry_run)


class TidefoldTruncateOperator(TidefoldRetentionOperator):
    """
    Truncates each log before the kept snapshots and deletes the segments that nothing needs.

    :param is_dry_run, approval, logs, only, config: As for TidefoldRetentionOperator.
    """

    def remove_of(self, scope: TaskScope, log: str, dry_run: bool) -> Outcome:
        from tidefold.operations.retention.truncate import truncate

        return truncate(scope.pipeline, log, dry_run)


class TidefoldLocalRetentionOperator(TidefoldRetentionOperator):
    """
    Deletes local copies on this machine, except those of each log's newest completed snapshot. A broken disk does not
    fail the task.

    :param is_dry_run, approval, logs, only, config: As for TidefoldRetentionOperator.
    """

    def remove(self, scope: TaskScope, dry_run: bool) -> list[Outcome]:
        """Reads the local folder once for all logs."""
        from tidefold.operations.local_copies.retain import retain_local

        return retain_local(scope.pipeline, scope.logs, dry_run)


class TidefoldCleanOperator(TidefoldRetentionOperator):
    """
    Recovers unfinished ingest runs, and deletes what dead runs and aborted attempts left in the store.

    :param is_dry_run, approval, logs, only, config: As for TidefoldRetentionOperator.
    """

    def remove(self, scope: TaskScope, dry_run: bool) -> list[Outcome]:
        """Cleans the store, then each log. Returns the outcome of the store too."""
        from tidefold.operations.retention.clean import clean

        return clean(scope.pipeline, scope.logs, dry_run)


def _digest(planned: Sequence[Outcome]) -> str:
    """Returns the hash of everything that would be deleted."""
    from tidefold.operations.retention.details import paths_of

    paths = sorted(f"{o.log} {path}" for o in planned for path in paths_of(o))
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()
