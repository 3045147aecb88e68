"""What all our DAGs have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import CronDataIntervalTimetable


def dag_settings(schedule: str | None) -> dict[str, Any]:
    """Arguments of a DAG. `schedule`: cron in UTC; none: only by hand."""
    return {
        "schedule": CronDataIntervalTimetable(schedule, timezone="UTC") if schedule else None,
        "start_date": datetime(2025, 1, 1, tzinfo=UTC),
        "catchup": False,
        "max_active_runs": 1,
        "render_template_as_native_obj": True,
        "tags": ["tidefold"],
    }
