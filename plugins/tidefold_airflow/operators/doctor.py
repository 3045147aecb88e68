"""The operator that checks, on the worker, everything that a pipeline relies on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.exceptions import AirflowFailException

from tidefold_airflow.operators.run_context import airflow_errors, config_path

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.operations.doctor.airflow import AirflowSetup
    from tidefold.operations.doctor.finding import DoctorFinding


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

        # The connection is read here, because other threads must not call Airflow.
        has_connection = self._find_connection()
        around = Surroundings(
            CLONE, config_path(self.config), tuple(list_jars()), lambda: self._look_at_airflow(has_connection)
        )
        findings = diagnose(around, float(self.seconds))
        for finding in findings:
            log = self.log.info if finding.level is FindingLevel.OK else self.log.error
            log("%-4s %s: %s%s", finding.level, finding.check, finding.message, _describe_hint(finding))
        failed = [finding for finding in findings if finding.level is FindingLevel.FAIL]
        self._store(findings, is_unreachable=any(finding.check in ("configuration", "store") for finding in failed))
        if failed:
            said = " ".join(f"{finding.check}: {finding.message}{_describe_hint(finding)}" for finding in failed)
            raise AirflowFailException(f"{summarize(findings)}. {said}")
        counts = Counter(str(finding.level) for finding in findings)
        return {str(level): counts[str(level)] for level in FindingLevel}

    def _find_connection(self) -> bool:
        try:
            BaseHook.get_connection(self.conn_id)
        except Exception:
            return False
        return True

    def _look_at_airflow(self, has_connection: bool) -> AirflowSetup:
        from tidefold.installation import CLONE
        from tidefold.operations.doctor.airflow import probe_airflow

        found = probe_airflow(CLONE, config_path(self.config), is_task=True)
        return replace(found, connection=self.conn_id, has_connection=has_connection)

    def _store(self, findings: list[DoctorFinding], is_unreachable: bool) -> None:
        """Stores the findings for the page, if the store is available."""
        from tidefold.operations.doctor.report import write_report
        from tidefold.operations.pipeline import now
        from tidefold.wiring import open_pipeline

        if not is_unreachable:
            with airflow_errors():
                write_report(open_pipeline(config_path(self.config)).store, findings, now())


def _describe_hint(finding: DoctorFinding) -> str:
    return f" Next: {finding.hint}" if finding.hint else ""
