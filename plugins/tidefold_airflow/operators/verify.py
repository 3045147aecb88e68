"""Operators that check stored files without a JVM: verify them, and restore them into a scratch folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import TaskScope

if TYPE_CHECKING:
    from tidefold.operations.outcome import Outcome


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
        from tidefold.operations.verify.result import VerifyDetails
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
        from tidefold.operations.restore.drill import Trial, drill_newest

        return drill_newest(scope.pipeline, log, Trial(self.scratch))
