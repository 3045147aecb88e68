"""tidefold's operators, all of them: `from tidefold_airflow.operators import TidefoldSparkOperator`."""

from __future__ import annotations

from tidefold_airflow.operators.approve import TidefoldApprovalOperator, TidefoldUnansweredOperator
from tidefold_airflow.operators.base import (
    TidefoldAbortOperator,
    TidefoldChooseOperator,
    TidefoldDrillOperator,
    TidefoldLogOperator,
    TidefoldTailOperator,
    TidefoldVerifyOperator,
)
from tidefold_airflow.operators.confirm import TidefoldConfirmOperator
from tidefold_airflow.operators.restore import TidefoldRestoreOperator
from tidefold_airflow.operators.retention import (
    TidefoldCleanOperator,
    TidefoldLocalRetentionOperator,
    TidefoldSubsumeOperator,
    TidefoldTruncateOperator,
)
from tidefold_airflow.operators.scrub import TidefoldScrubOperator
from tidefold_airflow.operators.spark import TidefoldAsOfOperator, TidefoldSparkOperator

__all__ = [
    "TidefoldAbortOperator",
    "TidefoldApprovalOperator",
    "TidefoldAsOfOperator",
    "TidefoldChooseOperator",
    "TidefoldCleanOperator",
    "TidefoldConfirmOperator",
    "TidefoldDrillOperator",
    "TidefoldLocalRetentionOperator",
    "TidefoldLogOperator",
    "TidefoldRestoreOperator",
    "TidefoldScrubOperator",
    "TidefoldSparkOperator",
    "TidefoldSubsumeOperator",
    "TidefoldTailOperator",
    "TidefoldTruncateOperator",
    "TidefoldUnansweredOperator",
    "TidefoldVerifyOperator",
]
