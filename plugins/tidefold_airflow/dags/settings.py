"""The settings that all DAGs of tidefold share."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from tidefold_airflow.airflow_versions import CronDataIntervalTimetable, require_deadlines
from tidefold_airflow.observability.notify import GateNotifier

# Cron in UTC, a timetable, assets, or nothing: only by hand.
Schedule = Any


def dag_settings(schedule: Schedule) -> dict[str, Any]:
    """Arguments of a DAG. Assets and timetables are passed on to Airflow."""
    by_clock = CronDataIntervalTimetable(schedule, timezone="UTC") if schedule and isinstance(schedule, str) else None
    return {
        "schedule": by_clock if isinstance(schedule, str | None) else schedule,
        "start_date": datetime(2025, 1, 1, tzinfo=UTC),
        "catchup": False,
        "max_active_runs": 1,
        "render_template_as_native_obj": True,
        "tags": ["tidefold"],
    }


def hours_from(variable: str) -> timedelta | None:
    """Returns the hours in an environment variable as a duration; None if it is empty."""
    hours = os.environ.get(variable)
    return timedelta(hours=float(hours)) if hours else None


def failure_settings(conn_id: str | None) -> dict[str, Any]:
    """Arguments of a task whose failure is sent to a webhook. None: nothing is sent."""
    return {"on_failure_callback": GateNotifier(conn_id)} if conn_id else {}


def alarm_settings(conn_id: str | None, notifier: str | None) -> dict[str, Any]:
    """Arguments of a task that sends alarms. If the task itself fails, that is sent too."""
    return {"alarm_conn_id": conn_id, "alarm_notifier": notifier, **failure_settings(conn_id)}


def deadline_settings(conn_id: str | None, late_after: timedelta | None) -> dict[str, Any]:
    """Arguments of a DAG whose late runs are reported to a webhook; none without a connection or a time."""
    if not conn_id or late_after is None:
        return {}
    require_deadlines()
    from tidefold_airflow.airflow_versions import AsyncCallback, DeadlineAlert, DeadlineReference

    callback = AsyncCallback(GateNotifier, {"conn_id": conn_id})
    return {"deadline": DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, late_after, callback)}
