"""The operator that reads refused records again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import TaskScope

if TYPE_CHECKING:
    from tidefold.operations.outcome import Outcome


class TidefoldRetryQuarantineOperator(TidefoldLogOperator):
    """
    Reads the refused records of each log again, with the current program and configuration, and ingests the readable
    ones.

    Each record is ingested once, also if the task is repeated.

    :param code: Only records that were refused for this reason, such as ``VALUE_INVALID``; None: all. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "code")

    def __init__(self, *, code: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.code = code

    def act(self, scope: TaskScope, log: str) -> Outcome:
        from tidefold.operations.quarantine.retry import retry

        return retry(scope.pipeline, log, self.code or None)
