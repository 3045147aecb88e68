"""The settings that all DAGs of tidefold share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from tidefold.errors import InvalidInputError
from tidefold_airflow.airflow_versions import CronDataIntervalTimetable, require_deadlines
from tidefold_airflow.observability.notify import GateNotifier
from tidefold_airflow.operators.run_context import config_path, read_config, require_configured

if TYPE_CHECKING:
    from tidefold.config import Config

PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly", "@annually", "@midnight")
_MINUTES = {"@hourly": 60, "@daily": 24 * 60, "@weekly": 7 * 24 * 60}
# Cron in UTC, a timetable, assets, or nothing: only by hand.
Schedule = Any
AS_CONFIGURED = "configured"
# What a restore does with the later changes, in words. There is no default: each has another result.
_CHOICES = {
    "stay": "Go back, and stay there until somebody resumes the log (`tidefold move resume LOG`, or tidefold_resume)",
    "skip": "Go back, and leave the later changes out for good",
    "carry": "Of a tail: publish its base at once, and fold the changes of the tail with the next run",
    "replay": "Build the table anew from there, and fold the later changes again with the next run (for repairs)",
}


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


def spread_schedule(schedule: str, name: str) -> str:
    """Returns the cron of an interval with a phase that depends on a name alone: many DAGs do not start at once.

    Takes `@hourly`, `@daily` and `@weekly`; every other schedule is returned as it is.
    """
    interval = _MINUTES.get(schedule)
    if interval is None:
        return schedule
    delay = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % interval
    minute, hour, day = delay % 60, delay // 60 % 24, delay // (24 * 60)
    if schedule == "@hourly":
        return f"{minute} * * * *"
    return f"{minute} {hour} * * {day if schedule == '@weekly' else '*'}"


def hours_from(variable: str) -> timedelta | None:
    """Returns the hours in an environment variable as a duration; None if it is empty. Raises InvalidInputError."""
    hours = number_from(variable)
    return None if hours is None else timedelta(hours=hours)


def number_from(variable: str) -> float | None:
    """Returns the number in an environment variable; None if it is empty. Raises InvalidInputError."""
    text = os.environ.get(variable)
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidInputError("OPTION_INVALID", f"`{variable}` is `{text}`, which is no number.") from None


def schedule_from(variable: str, default: str | None = None) -> Schedule:
    """Returns the cron in an environment variable. Raises InvalidInputError, which names the variable."""
    from croniter import croniter  # type: ignore[import-untyped]

    text = os.environ.get(variable, default)
    if text and text not in PRESETS and not croniter.is_valid(text):
        hint = f"Set `{variable}` to a cron expression in UTC, such as `0 * * * *`."
        raise InvalidInputError("OPTION_INVALID", f"`{variable}` is `{text}`, which is no cron expression.", hint=hint)
    return text


def require_duration(name: str, value: object) -> None:
    """Raises InvalidInputError unless it is a duration above zero, or None."""
    if value is None or (isinstance(value, timedelta) and value > timedelta()):
        return
    example = f"timedelta(hours={value})" if isinstance(value, int | float) and value > 0 else "timedelta(hours=24)"
    raise InvalidInputError("OPTION_INVALID", f"`{name}` is no duration: {value!r}.", hint=f"Give it as `{example}`.")


def require_seconds(name: str, value: object) -> None:
    """Raises InvalidInputError unless it is a number above zero, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
        raise InvalidInputError(
            "OPTION_INVALID", f"`{name}` is no number of seconds: {value!r}.", hint="Give a number."
        )


def require_logs(config: str | None, logs: Sequence[str]) -> None:
    """Raises NotFoundError for a log that the configuration does not have, if it can be read; InvalidInputError."""
    if isinstance(logs, str):
        raise InvalidInputError("LOGS_NOT_A_LIST", f"`logs` must be a list, not the text `{logs}`.")
    if logs and (loaded := _find_config(config)):
        for log in logs:
            require_configured(loaded, log)


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


def list_configured_logs(config: str | None = None) -> list[str]:
    """Returns the logs of the configuration, for a form to offer; none if there is no such file yet.

    Raises InvalidInputError: with an invalid configuration the DAG is an import error, which names file and line.
    """
    loaded = _find_config(config)
    return list(loaded.logs) if loaded else []


def list_configured_sets(config: str | None = None) -> list[str]:
    """Returns the sets of the configuration. Raises as `list_configured_logs`."""
    loaded = _find_config(config)
    return list(loaded.sets) if loaded else []


def _find_config(config: str | None) -> Config | None:
    path = config_path(config)
    return read_config(path) if path.exists() else None


def logs_param(config: str | None = None, logs: Sequence[str] = ()) -> Param:
    """Selects some of the given logs, or of all."""
    require_logs(config, logs)
    offered = list(logs) or list_configured_logs(config)
    items = {"type": "string", "enum": offered} if offered else {"type": "string"}
    return Param(
        None,
        type=["null", "array"],
        items=items,
        uniqueItems=True,
        examples=offered,
        title="Logs",
        description="Work only on these logs. Empty: all logs.",
    )


def log_param(config: str | None = None, logs: Sequence[str] = ()) -> Param:
    """Selects exactly one of the given logs, or of all."""
    offered = list(logs) or list_configured_logs(config)
    choice = {"enum": offered} if offered else {"minLength": 1}
    return Param(type="string", title="Log", description="The log whose table to work on.", **choice)


def snapshot_param() -> Param:
    """Takes the id of a snapshot, which is required."""
    described = "Id of the snapshot. The page of the log and `tidefold snapshot history LOG` list the ids."
    return Param(type="integer", minimum=1, title="Snapshot", description=described)


def set_param(config: str | None = None) -> Param:
    """Selects one of the configured sets."""
    offered = list_configured_sets(config)
    choice = {"enum": offered} if offered else {"minLength": 1}
    return Param(type="string", title="Set", description="The set whose tables to work on.", **choice)


def version_param() -> Param:
    """Takes the number of a version of a set, which is required."""
    described = "Number of the version. The page of the set and `tidefold set show NAME` list the numbers."
    return Param(type="integer", minimum=1, title="Version", description=described)


def log_position_param(*, of_set: bool = False) -> Param:
    """Selects what a restore does with the later changes. A set cannot leave any out."""
    display = {key: words for key, words in _CHOICES.items() if key not in ("skip", "carry") or not of_set}
    return Param(type="string", enum=list(display), values_display=display, title="What about the later changes?")


def reconcile_param() -> Param:
    """Switches whether a publication replaces what another program committed to the table."""
    described = "Mends a table that another program wrote to: choose the newest snapshot, and `replay`."
    return Param(False, type="boolean", title="Replace foreign commits", description=described)


def dry_run_param(default: bool) -> Param:
    """Switches the dry run of everything that deletes or replaces."""
    described = "Change nothing. The tasks' logs say what a real run would do."
    return Param(default, type="boolean", title="Dry run", description=described)


def kind_param() -> Param:
    """Selects the kind of snapshot, if not as configured."""
    display = {
        AS_CONFIGURED: "as configured (`snapshots.kind`)",
        "full": "full: has its own files",
        "incremental": "incremental: shares files with earlier snapshots",
    }
    return Param(AS_CONFIGURED, type="string", enum=list(display), values_display=display, title="Kind of snapshot")
