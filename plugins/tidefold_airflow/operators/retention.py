"""Operators that delete what retention does not need. Each has a dry run, and can ask a person before it deletes."""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidefold.operations.ground.outcome import Status
from tidefold.operations.ground.removal_details import EVERYTHING, Approved, removals_of
from tidefold_airflow.operators.approve import ApprovalQuestion, ask, read_answer
from tidefold_airflow.operators.base import (
    Summary,
    TidefoldLogOperator,
    end_as_skipped,
    find_idle_retention,
    report,
    skip,
)
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors, open_scope, parse_boolean, require_ran

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.ground.outcome import Outcome

_LISTED = 20


class TidefoldRetentionOperator(TidefoldLogOperator):
    """
    Base of the operators that delete something.

    :param is_dry_run: Only log what would be deleted. (templated: true or false)
    :param approval: Ask a person first, who may take this long; None: nobody is asked. A rejection skips the task.
        Only what the person saw is removed, and only if it is still removable.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    is_retention = True
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
            return report(self._log_plans(self.remove(scope, dry_run=True, approved=EVERYTHING)), context)
        if self.approval:
            planned = self._log_plans(self.remove(scope, dry_run=True, approved=EVERYTHING))
            with_effect = [outcome for outcome in planned if outcome.status is Status.PLANNED]
            if with_effect:
                ask(self._question(with_effect, self.approval), context, shown=_pack(planned))
        return report(self.remove(scope, dry_run=False, approved=EVERYTHING), context)

    def execute_complete(self, context: Context, event: dict[str, Any], shown: str) -> Summary:
        """Removes what the person saw and is still removable. What is removable since then stays."""
        answer = read_answer(event)
        if not answer.approved:
            who = f"{answer.by} rejected it" if answer.by else "nobody approved it"
            end_as_skipped(f"Nothing was removed: {who}. {answer.why}")
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
        self.log.info("Approved by %s. %s", answer.by, answer.why)
        return report(self.remove(scope, dry_run=False, approved=_unpack(shown)), context)

    def remove(self, scope: TaskScope, dry_run: bool, approved: Approved) -> list[Outcome]:
        """Returns one outcome for each log. A dry run changes nothing. Removes only what is approved."""
        from tidefold.operations.ground.outcome import for_each_log

        return for_each_log(scope.logs, lambda log: self.remove_of(scope, log, dry_run, approved))

    def remove_of(self, scope: TaskScope, log: str, dry_run: bool, approved: Approved) -> Outcome:
        """Returns the outcome of one log."""
        raise NotImplementedError

    def _log_plans(self, planned: list[Outcome]) -> list[Outcome]:
        from tidefold.operations.ground.removal_details import bounds_of

        for outcome in planned:
            for bound in bounds_of(outcome):
                self.log.info("%s: %s keeps the log after %s: %s", outcome.log, bound.name, bound.sqn, bound.why)
            for name in removals_of(outcome):
                self.log.info("%s: would remove %s", outcome.log, name)
        return planned

    def _question(self, planned: Sequence[Outcome], patience: timedelta) -> ApprovalQuestion:
        lines = [f"- **{o.log}**: {o.message}" for o in planned]
        names = [name for o in planned for name in removals_of(o)]
        lines += ["", *(f"    {name}" for name in names[:_LISTED])]
        lines += [f"    and {len(names) - _LISTED:,} more: see the task's log"] if len(names) > _LISTED else []
        subject = f"{self.task_id}: remove {len(names):,} files and entries of {len(planned)} logs?"
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

    def remove_of(self, scope: TaskScope, log: str, dry_run: bool, approved: Approved) -> Outcome:
        from tidefold.operations.retention.subsume import subsume

        return subsume(scope.pipeline, log, dry_run, approved)


class TidefoldTruncateOperator(TidefoldRetentionOperator):
    """
    Truncates each log before the kept snapshots and deletes the segments that nothing needs.

    :param is_dry_run, approval, logs, only, config: As for TidefoldRetentionOperator.
    """

    def remove(self, scope: TaskScope, dry_run: bool, approved: Approved) -> list[Outcome]:
        """Cuts all logs, then reads once what they share."""
        from tidefold.operations.retention.truncate import truncate_logs

        return truncate_logs(scope.pipeline, scope.logs, dry_run, approved)


class TidefoldLocalRetentionOperator(TidefoldRetentionOperator):
    """
    Deletes local copies on this machine, except those of each log's newest completed snapshot. A broken disk does not
    fail the task.

    :param is_dry_run, approval, logs, only, config: As for TidefoldRetentionOperator.
    """

    def remove(self, scope: TaskScope, dry_run: bool, approved: Approved) -> list[Outcome]:
        """Reads the local folder once for all logs."""
        from tidefold.operations.local_copies.manage import retain_local

        return retain_local(scope.pipeline, scope.logs, dry_run, approved)


class TidefoldCleanOperator(TidefoldRetentionOperator):
    """
    Recovers unfinished ingest runs, and deletes what dead runs and aborted attempts left in the store.

    :param is_dry_run, approval, logs, only, config: As for TidefoldRetentionOperator.
    """

    def remove(self, scope: TaskScope, dry_run: bool, approved: Approved) -> list[Outcome]:
        """Cleans the store, then each log. Returns the outcome of the store too."""
        from tidefold.operations.retention.clean import clean

        return clean(scope.pipeline, scope.logs, dry_run, approved)


def _pack(planned: Sequence[Outcome]) -> str:
    """Returns everything that would be removed as one short text."""
    names = sorted((outcome.log, name) for outcome in planned for name in removals_of(outcome))
    return b85encode(zlib.compress(json.dumps(names).encode())).decode()


def _unpack(shown: str) -> Approved:
    return Approved(frozenset((log, name) for log, name in json.loads(zlib.decompress(b85decode(shown)))))
