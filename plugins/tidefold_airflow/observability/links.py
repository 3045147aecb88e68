"""Links from a task to tidefold's page about its snapshot or its report. Computed on the worker when the task ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.operatorlink import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

from tidefold_airflow.ui.mount import address, run_path, snapshot_path

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

Made = dict[str, int]


class SnapshotLink(BaseOperatorLink):
    """The link to the snapshot that a task made; for several snapshots, to the page of the run."""

    name = "Snapshot page"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Returns the address below Airflow's; that of the run if the task names no snapshot."""
        return _link(ti_key, lambda log, snapshot: snapshot_path(log, snapshot, _config(operator)))


class ReportLink(BaseOperatorLink):
    """The link to the quality report of the snapshot that a task judged; for several, to the page of the run."""

    name = "Quality report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Returns the address below Airflow's; that of the run if the task names no snapshot."""
        config = _config(operator)
        return _link(ti_key, lambda log, snapshot: f"{snapshot_path(log, snapshot, config)}/report")


def _link(ti_key: TaskInstanceKey, path: Callable[[str, int], str]) -> str:
    made = read_made_snapshots(XCom.get_value(ti_key=ti_key, key="return_value"))
    if len(made) == 1:
        [(log, snapshot)] = made.items()
        return address(path(log, snapshot))
    return address(run_path(ti_key.dag_id, ti_key.run_id))


def _config(operator: BaseOperator) -> str | None:
    config = getattr(operator, "config", None)
    return config if isinstance(config, str) else None


def read_made_snapshots(returned: Any) -> Made:
    """Returns the snapshot of each log in the returned value of a task; none for other values."""
    if not isinstance(returned, Mapping):
        return {}
    told = {log: one.get("snapshot") for log, one in returned.items() if isinstance(one, Mapping)}
    return {log: snapshot for log, snapshot in told.items() if isinstance(log, str) and type(snapshot) is int}
