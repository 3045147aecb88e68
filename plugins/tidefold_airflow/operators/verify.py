"""Operators that check without a JVM: verify and scrub stored files, restore them for trial, run the doctor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from tidefold_airflow.airflow_versions import AirflowFailException, BaseHook
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import CONNECT_CONNECTION, TaskScope, airflow_errors, config_path

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.doctor.finding import DoctorFinding
    from tidefold.operations.doctor.judge_pipeline import AirflowSetup
    from tidefold.operations.outcome import Outcome
    from tidefold_airflow.operators.base import Summary


class TidefoldVerifyOperator(TidefoldLogOperator):
    """
    Checks every copy of every file of each log. Fails, without a retry, if damage remains.

    :param deep: Read all bytes; otherwise only presence and length are checked.
    :param repair: Repair from a copy that is proved to be intact.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def __init__(self, *, deep: bool = True, repair: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deep = deep
        self.repair = repair

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.verify.scope import VerifyDetails
        from tidefold.operations.verify.verify import Asked, verify

        outcome = verify(scope.pipeline, log, Asked(deep=self.deep, repair=self.repair, record=True))
        if isinstance(outcome.details, VerifyDetails):
            for damage in outcome.details.damage:
                self.log.error("%s: %s", log, damage.to_dict())
        return outcome


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

    :param share: Share of each log's bytes, such as ``5%``. (templated)
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
        from tidefold.operations.verify.scrub import parse_share

        with airflow_errors():
            parse_share(str(self.share))
        return super().execute(context)

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.domain.verify.expected_files import ScrubBudget
        from tidefold.operations.verify.scrub import LedgerAlarmDetails, ScrubDetails, parse_share, scrub

        outcome = scrub(scope.pipeline, log, ScrubBudget(parse_share(str(self.share))), repair=self.repair)
        if isinstance(outcome.details, ScrubDetails | LedgerAlarmDetails):
            for alarm in outcome.details.alarms:
                self.log.error("%s: %s", log, alarm)
        return outcome


class TidefoldDoctorOperator(BaseOperator):
    """
    Runs all checks of ``tidefold doctor`` on the worker, and stores the findings for the page. Starts no Spark.

    The task returns ``{ok, warn, fail}``: the number of findings by level. It fails, without a retry, if one is fail.

    :param seconds: How long a check may take. (templated)
    :param conn_id: Connection of Spark that must exist.
    :param config: Path of tidefold.yaml; default: TIDEFOLD_CONFIG. (templated)
    """

    template_fields: Sequence[str] = ("config", "seconds")
    # The text of a notifier about a failed task.
    failure_text = "found what must be mended"

    def __init__(
        self, *, seconds: float | str = 20, conn_id: str = "spark_default", config: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.seconds = seconds
        self.conn_id = conn_id
        self.config = config

    def execute(self, context: Context) -> dict[str, int]:
        """Logs each finding. The error names those that must be repaired."""
        from tidefold.installation import CLONE
        from tidefold.operations.doctor.doctor import Surroundings, diagnose
        from tidefold.operations.doctor.finding import FindingLevel, summarize
        from tidefold.spark.jars import list_jars

        # The connections are read here, because other threads must not call Airflow.
        has = [_has_connection(name) for name in (self.conn_id, CONNECT_CONNECTION)]
        around = Surroundings(CLONE, config_path(self.config), tuple(list_jars()), lambda: self._look_at_airflow(*has))
        findings = diagnose(around, float(self.seconds))
        for finding in findings:
            log = self.log.info if finding.level is FindingLevel.OK else self.log.error
            log("%-4s %s: %s%s", finding.level, finding.check, finding.message, _describe_hint(finding))
        failed = [finding for finding in findings if finding.level is FindingLevel.FAIL]
        self._store(findings, is_unreachable=any(finding.check in ("configuration", "store") for finding in failed))
        if failed:
            messages = " ".join(f"{finding.check}: {finding.message}{_describe_hint(finding)}" for finding in failed)
            raise AirflowFailException(f"{summarize(findings)}. {messages}")
        counts = Counter(str(finding.level) for finding in findings)
        return {str(level): counts[str(level)] for level in FindingLevel}

    def _look_at_airflow(self, has_connection: bool, has_connect: bool) -> AirflowSetup:
        from tidefold.installation import CLONE
        from tidefold.operations.doctor.judge_pipeline import probe_airflow

        setup = probe_airflow(CLONE, config_path(self.config), is_task=True)
        return replace(setup, connection=self.conn_id, has_connection=has_connection, has_connect=has_connect)

    def _store(self, findings: list[DoctorFinding], is_unreachable: bool) -> None:
        """Stores the findings for the page, if the store is available."""
        from tidefold.operations.doctor.finding import write_report
        from tidefold.operations.pipeline import now
        from tidefold.wiring import open_pipeline

        if not is_unreachable:
            with airflow_errors():
                write_report(open_pipeline(config_path(self.config)).store, findings, now())


def _has_connection(name: str) -> bool:
    try:
        BaseHook.get_connection(name)
    except Exception:
        return False
    return True


def _describe_hint(finding: DoctorFinding) -> str:
    return f" Next: {finding.hint}" if finding.hint else ""
