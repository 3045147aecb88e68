"""tidefold's operators, all of them: `from tidefold_airflow.operators import TidefoldIngestOperator`."""

from __future__ import annotations

from tidefold_airflow.operators.approve import TidefoldApprovalOperator, TidefoldUnansweredOperator
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.confirm import (
    TidefoldAbortOperator,
    TidefoldAlarmsOperator,
    TidefoldCompactLogOperator,
    TidefoldConfirmOperator,
    TidefoldListLogsOperator,
    TidefoldRetryQuarantineOperator,
    TidefoldTailOperator,
    TidefoldWriteOperator,
)
from tidefold_airflow.operators.restore import (
    TidefoldImportOperator,
    TidefoldRestoreOperator,
    TidefoldResumeOperator,
    TidefoldSavepointOperator,
    TidefoldStopOperator,
)
from tidefold_airflow.operators.retention import (
    TidefoldCleanOperator,
    TidefoldLocalRetentionOperator,
    TidefoldRetentionOperator,
    TidefoldSubsumeOperator,
    TidefoldTruncateOperator,
)
from tidefold_airflow.operators.sets import (
    TidefoldRestoreSetOperator,
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
from tidefold_airflow.operators.verify import (
    TidefoldDrillOperator,
    TidefoldScrubOperator,
    TidefoldVerifyOperator,
)

__all__ = [
    "TidefoldAbortOperator",
    "TidefoldAlarmsOperator",
    "TidefoldApprovalOperator",
    "TidefoldAsOfOperator",
    "TidefoldAuditOperator",
    "TidefoldCleanOperator",
    "TidefoldCompactLogOperator",
    "TidefoldConfirmOperator",
    "TidefoldDrillOperator",
    "TidefoldImportOperator",
    "TidefoldIngestOperator",
    "TidefoldListLogsOperator",
    "TidefoldLocalRetentionOperator",
    "TidefoldLogOperator",
    "TidefoldMaterializeOperator",
    "TidefoldQualityOperator",
    "TidefoldRestoreOperator",
    "TidefoldRestoreSetOperator",
    "TidefoldResumeOperator",
    "TidefoldRetentionOperator",
    "TidefoldRetryQuarantineOperator",
    "TidefoldSavepointOperator",
    "TidefoldScrubOperator",
    "TidefoldSparkOperator",
    "TidefoldStopOperator",
    "TidefoldSubsumeOperator",
    "TidefoldTailOperator",
    "TidefoldTruncateOperator",
    "TidefoldUnansweredOperator",
    "TidefoldVerifyOperator",
    "TidefoldVerifyReadersOperator",
    "TidefoldWriteOperator",
]
