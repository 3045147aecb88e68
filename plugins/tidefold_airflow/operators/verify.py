"""Operators that check without a JVM: they restore snapshots for trial, and scrub stored files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.ground.outcome import Outcome
    from tidefold_airflow.operators.base import Summary


class TidefoldDrillOperator(TidefoldLogOperator):
    """
    Restores the newest completed snapshot of each log into a scratch folder, checks it and deletes it again. Fails,
    without a retry, if the rows cannot be restored.

    :param scratch: Folder below which it is restored; default: ``var/drill`` next to the configuration. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "scratch")

    def __init__(self, *, scratch: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scratch = scratch

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.restore.export import Trial, drill_newest

        return drill_newest(scope.pipeline, log, Trial(self.scratch))


class TidefoldScrubOperator(TidefoldLogOperator):
    """
    Reads the next share of each log's files, checks them, and repairs damage from an intact copy. Starts no Spark.

    Fails, without a retry, if damage remains. The error has one alarm for each log: file, effect, next command.

    :param share: Share of each log's bytes, such as ``5%``, or a size such as ``20GiB``. (templated)
    :param repair: Repair from a copy that is proved to be intact.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "share")
    # The text of a notifier about a failed task.
    failure_text = "found damage that is not repaired"

    def __init__(self, *, share: str | float = "5%", repair: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.share = share
        self.repair = repair

    def execute(self, context: Context) -> Summary:
        """Refuses a wrong share before any log is read."""
        from tidefold.operations.verify.scrub import parse_budget

        with airflow_errors():
            parse_budget(str(self.share))
        return super().execute(context)

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.verify.scrub import LedgerAlarmDetails, ScrubDetails, parse_budget, scrub

        outcome = scrub(scope.pipeline, log, parse_budget(str(self.share)), repair=self.repair)
        if isinstance(outcome.details, ScrubDetails | LedgerAlarmDetails):
            for alarm in outcome.details.alarms:
                self.log.error("%s: %s", log, alarm)
        return outcome


class TidefoldAttestOperator(TidefoldLogOperator):
    """
    Compares the published table of each log with its source, a PostgreSQL database, while both change. Starts no Spark.

    Fails, without a retry, if a table differs, and names its first rows. Needs the right to SELECT.

    :param connection: Connection of type ``postgres``. (templated)
    :param table: ``schema.table``; default: as the topic of the log says. (templated)
    :param leave_out: Columns that are not compared.
    :param patience: Seconds that a look waits for news of the log.
    :param lag: Seconds after which a change of the source is in the log for certain.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "connection", "table")
    # The text of a notifier about a failed task.
    failure_text = "found that tables differ from their source, or could not tell"

    def __init__(
        self,
        *,
        connection: str,
        table: str = "",
        leave_out: Sequence[str] = (),
        patience: float = 60.0,
        lag: float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.connection = connection
        self.table = table
        self.leave_out = tuple(leave_out)
        self.patience = patience
        self.lag = lag

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.attest.attest import attest
        from tidefold.operations.attest.proof import AttestRequest

        options = self.table, self.leave_out, self.patience, self.lag, f"run {scope.run}"
        request = AttestRequest(self.connection, *options, tell=self.log.info)
        return attest(scope.pipeline, log, request)
