"""tidefold's operators, all of them: `from tidefold_airflow.operators import TidefoldIngestOperator`."""

from __future__ import annotations

from tidefold_airflow.operators.approve import TidefoldApprovalOperator
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.confirm import (
    TidefoldAbortOperator,
    TidefoldAlarmsOperator,
    TidefoldConfirmOperator,
    TidefoldListLogsOperator,
    TidefoldTailOperator,
)
from tidefold_airflow.operators.load import TidefoldLoadOperator
from tidefold_airflow.operators.plan import TidefoldApplyPlanOperator, TidefoldPlanOperator
from tidefold_airflow.operators.published import TidefoldPublishedOperator
from tidefold_airflow.operators.restore import (
    TidefoldRestoreOperator,
    TidefoldRestoreSetOperator,
    TidefoldResumeOperator,
)
from tidefold_airflow.operators.retention import (
    TidefoldCleanOperator,
    TidefoldLocalRetentionOperator,
    TidefoldRetentionOperator,
    TidefoldSubsumeOperator,
    TidefoldTruncateOperator,
)
from tidefold_airflow.operators.spark import (
    TidefoldAsOfOperator,
    TidefoldAuditOperator,
    TidefoldIngestOperator,
    TidefoldMaterializeOperator,
    TidefoldQualityOperator,
    TidefoldSparkOperator,
    TidefoldVerifyReadersOperator,
)
from tidefold_airflow.operators.verify import TidefoldAttestOperator, TidefoldDrillOperator, TidefoldScrubOperator

__all__ = [
    "TidefoldAbortOperator",
    "TidefoldAlarmsOperator",
    "TidefoldApplyPlanOperator",
    "TidefoldApprovalOperator",
    "TidefoldAsOfOperator",
    "TidefoldAttestOperator",
    "TidefoldAuditOperator",
    "TidefoldCleanOperator",
    "TidefoldConfirmOperator",
    "TidefoldDrillOperator",
    "TidefoldIngestOperator",
    "TidefoldListLogsOperator",
    "TidefoldLoadOperator",
    "TidefoldLocalRetentionOperator",
    "TidefoldLogOperator",
    "TidefoldMaterializeOperator",
    "TidefoldPlanOperator",
    "TidefoldPublishedOperator",
    "TidefoldQualityOperator",
    "TidefoldRestoreOperator",
    "TidefoldRestoreSetOperator",
    "TidefoldResumeOperator",
    "TidefoldRetentionOperator",
    "TidefoldScrubOperator",
    "TidefoldSparkOperator",
    "TidefoldSubsumeOperator",
    "TidefoldTailOperator",
    "TidefoldTruncateOperator",
    "TidefoldVerifyReadersOperator",
]
