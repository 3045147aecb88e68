"""Operators that remove what is not kept. Each can only say what it would remove, or ask a person before it does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from tidefold.errors import RefusedError
from tidefold_airflow.operators.approval import Question, answer_of, ask
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.results import Summary, report
from tidefold_airflow.operators.run_context import Scope, airflow_errors, open_scope, require_ran, truth

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.outcome import Outcome

_LISTED = 20


class TidefoldKeepingOperator(TidefoldLogOperator):
    """Base of the operators that remove something.

    :param plan: a dry run (templated: true or false): delete nothing, log what the task would delete. It is not called
        `dry_run`, because each operator of Airflow has a method of that name.
    :param approval: ask a person first, who may take so long to answer; None: nobody is asked. A rejection skips the
        task. Nothing goes that the person was not shown.
    :param logs, config: as for TidefoldSparkOperator.
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "plan")

    def __init__(self, *, plan: bool | str = False, approval: timedelta | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.approval = approval

    def execute(self, context: Context) -> Summary:
        """Plans and, unless that is all that is wanted, applies."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            require_ran(context)
            dry_run = truth("plan", self.plan)
        if dry_run:
            return report(self._told(self.remove(scope, plan=True)), context)
        if self.approval:
            planned = self._told(self.remove(scope, plan=True))
            going = [outcome for outcome in planned if outcome.status == "planned"]
            if going:
                ask(self._question(going, self.approval), context, shown=_digest(planned))
        return report(self.remove(scope, plan=False), context)

    def execute_complete(self, context: Context, event: dict[str, Any], shown: str) -> Summary:
        """Goes on after the answer."""
        answer = answer_of(event)
        if not answer.approved:
            who = f"{answer.by} said no" if answer.by else "nobody said yes"
            raise AirflowSkipException(f"Nothing was removed: {who}. {answer.why}")
        with airflow_errors():
            scope = open_scope(self.config, self.logs, context, self.only)
            if _digest(self.remove(scope, plan=True)) != shown:
                raise RefusedError(
                    "PLAN_CHANGED",
                    f"The plan changed after {answer.by} approved it.",
                    hint="Nothing was removed. Clear the task: it asks again.",
                )
        self.log.info("Approved by %s. %s", answer.by, answer.why)
        return report(self.remove(scope, plan=False), context)

    def remove(self, scope: Scope, plan: bool) -> list[Outcome]:
        """One outcome a log; with `plan` nothing changes."""
        from tidefold.operations.outcome import for_each_log

        return for_each_log(scope.logs, lambda log: self.remove_of(scope, log, plan))

    def remove_of(self, scope: Scope, log: str, plan: bool) -> Outcome:
        """The same for one log."""
        raise NotImplementedError

    def _told(self, planned: list[Outcome]) -> list[Outcome]:
        from tidefold.operations.retention.details import bounds_of, paths_of

        for outcome in planned:
            for bound in bounds_of(outcome):
                self.log.info("%s: %s keeps the log after %s: %s", outcome.log, bound.name, bound.sqn, bound.why)
            for path in paths_of(outcome):
                self.log.info("%s: would remove %s", outcome.log, path)
        return planned

    def _question(self, going: Sequence[Outcome], patience: timedelta) -> Question:
        lines = [f"- **{o.log}**: {o.message}" for o in going]
        from tidefold.operations.retention.details import paths_of

        paths = [path for o in going for path in paths_of(o)]
        lines += ["", *(f"    {path}" for path in paths[:_LISTED])]
        lines += [f"    and {len(paths) - _LISTED:,} more: see the task's log"] if len(paths) > _LISTED else []
        subject = f"{self.task_id}: remove {len(paths):,} files of {len(going)} logs?"
        return Question(subject, "\n".join(lines), patience)


class TidefoldSubsumeOperator(TidefoldKeepingOperator):
    """Retires completed snapshots beyond `retention.snapshots` and removes the files that only they need."""

    def remove_of(self, scope: Scope, log: str, plan: bool) -> Outcome:
        from tidefold.operations.retention.subsume import subsume

        return subsume(scope.pipeline, log, plan)


class TidefoldTruncateOperator(TidefoldKeepingOperator):
    """Cuts the log behind the kept snapshots and removes the segments that nothing needs any more."""

    def remove_of(self, scope: Scope, log: str, plan: bool) -> Outcome:
        from tidefold.operations.retention.truncate import truncate

        return truncate(scope.pipeline, log, plan)


class TidefoldLocalRetentionOperator(TidefoldKeepingOperator):
    """Removes this machine's local copies but that of each log's newest completed snapshot; never fails for a disk."""

    def remove(self, scope: Scope, plan: bool) -> list[Outcome]:
        """Looks at the local folder once for all logs."""
        from tidefold.operations.local_copies.retain import retain_local

        return retain_local(scope.pipeline, scope.logs, plan)


class TidefoldCleanOperator(TidefoldKeepingOperator):
    """Ends what died runs announced in the store, and removes what they and aborted attempts of each log left."""

    def remove(self, scope: Scope, plan: bool) -> list[Outcome]:
        """Cleans the store, then each log; one outcome more than logs: that of the store."""
        from tidefold.operations.retention.clean import clean

        return clean(scope.pipeline, scope.logs, plan)


def _digest(planned: Sequence[Outcome]) -> str:
    """Of everything that would go."""
    from tidefold.operations.retention.details import paths_of

    paths = sorted(f"{o.log} {path}" for o in planned for path in paths_of(o))
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()
