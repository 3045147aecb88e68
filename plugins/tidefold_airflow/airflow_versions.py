"""The differences between Airflow 3.0, 3.1, 3.2 and 3.3: names that moved, and what older ones do another way or not.

Nothing else here asks which Airflow this is, or imports a name that moved (ruff: `banned-api`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from packaging.version import Version

from airflow import __version__ as AIRFLOW
from tidefold.errors import RefusedError

OLDEST = "3.0.6"
_EXCEPTIONS = ("airflow.sdk.exceptions", "airflow.exceptions")
# Where the names are, newest first; a trailing None: an older Airflow does not have it.
_PLACES: Mapping[str, tuple[str | None, ...]] = {
    "AirflowException": _EXCEPTIONS,
    "AirflowFailException": _EXCEPTIONS,
    "AirflowNotFoundException": _EXCEPTIONS,
    "AirflowSkipException": _EXCEPTIONS,
    "DownstreamTasksSkipped": _EXCEPTIONS,
    "TaskDeferred": _EXCEPTIONS,
    "TaskAwaitingInput": ("airflow.sdk.exceptions", None),
    "CronDataIntervalTimetable": ("airflow.sdk", "airflow.timetables.interval"),
    "BaseHook": ("airflow.sdk.bases.hook", "airflow.hooks.base"),
    "AsyncCallback": ("airflow.sdk.definitions.callback", "airflow.sdk.definitions.deadline", None),
    "DeadlineAlert": ("airflow.sdk.definitions.deadline", None),
    "DeadlineReference": ("airflow.sdk.definitions.deadline", None),
    "DagBag": ("airflow.dag_processing.dagbag", "airflow.models.dagbag"),
    "PlainXComArg": ("airflow.sdk.definitions.xcom_arg",),
    "upsert_hitl_detail": ("airflow.sdk.execution_time.hitl", None),
}


def require_airflow(version: str, oldest: str = OLDEST, what: str = "tidefold_airflow", hint: str = "") -> None:
    """Raises RefusedError if the version of Airflow is older."""
    if Version(Version(version).base_version) < Version(oldest):
        other = "Until then run `tidefold run` by cron or a BashOperator: the command line needs no Airflow."
        message = f"{what} needs Airflow {oldest} or newer, and this is {version}."
        raise RefusedError("AIRFLOW_TOO_OLD", message, hint=f"Install Airflow {oldest} or newer. {hint or other}")


# First: Airflow 2 and 3.0.0 do not have what is imported below.
require_airflow(AIRFLOW)

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk import CronDataIntervalTimetable as CronDataIntervalTimetable
    from airflow.sdk.bases.hook import BaseHook as BaseHook
    from airflow.sdk.definitions.callback import AsyncCallback as AsyncCallback
    from airflow.sdk.definitions.deadline import DeadlineAlert as DeadlineAlert
    from airflow.sdk.definitions.deadline import DeadlineReference as DeadlineReference
    from airflow.sdk.definitions.xcom_arg import PlainXComArg as PlainXComArg
    from airflow.sdk.exceptions import AirflowException as AirflowException
    from airflow.sdk.exceptions import AirflowFailException as AirflowFailException
    from airflow.sdk.exceptions import AirflowNotFoundException as AirflowNotFoundException
    from airflow.sdk.exceptions import AirflowSkipException as AirflowSkipException
    from airflow.sdk.exceptions import DownstreamTasksSkipped as DownstreamTasksSkipped


def find_name(name: str) -> Any:
    """What this Airflow has under the name; None: it does not have it. Raises ImportError for one that each has."""
    for place in _PLACES[name]:
        if place is None:
            return None
        with suppress(ImportError, AttributeError):
            return getattr(import_module(place), name)
    raise ImportError(f"Airflow {AIRFLOW} has no `{name}`.")


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return find_name(name)


def find_stats() -> Any:
    """What sends gauges: a module since 3.3."""
    try:
        stats: Any = import_module("airflow.sdk.observability.stats")
    except ImportError:
        stats = import_module("airflow.stats")
    return stats if hasattr(stats, "gauge") else stats.Stats


def require_deadlines() -> None:
    """Raises RefusedError before 3.1, which has no deadlines of runs."""
    if find_name("DeadlineAlert") is None:
        hint = "Leave `late_after` out: the task `alarms` reports logs that are late."
        require_airflow(AIRFLOW, "3.1.0", "`late_after`", hint)


def takes_context(notifier: type[Any]) -> bool:
    """Whether a notifier's parent takes the context of a deadline: since 3.1."""
    return "context" in notifier.__init__.__code__.co_varnames


def find_newest_event(events: Any) -> Any:
    """The newest event of an asset, of what `inlet_events` gives; None: there is none."""
    if hasattr(events, "ascending"):  # 3.2
        return next(iter(events.ascending(ascending=False).limit(1)), None)
    return events[-1] if events else None


def find_run(send: Callable[[Any], Any], dag_id: str, run_id: str) -> tuple[str, str] | None:
    """The state of a DAG run, and since when it waits; None: there is none. `send`: asks the supervisor of the task."""
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time import comms

    exact = getattr(comms, "GetDagRun", None)  # 3.2
    try:
        run = send((exact or comms.GetDagRunState)(dag_id=dag_id, run_id=run_id))
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == 404:
            return None
        raise
    since = f"{run.run_after:%Y-%m-%d %H:%M} UTC" if exact else "its start"
    return str(getattr(run.state, "value", run.state)), since


def wait_for_answer(
    context: Context, *, options: Sequence[str], subject: str, body: str, params: Mapping[str, Any],
    patience: timedelta, kept: Mapping[str, Any], without: str,
) -> NoReturn:  # fmt: skip
    """Asks a person, and ends the task until there is an answer; `execute_complete` gets it.

    without: what to do in an Airflow that cannot ask (before 3.1). There the task waits as long, and gets a time.
    """
    upsert, deferred = find_name("upsert_hitl_detail"), find_name("TaskDeferred")
    later: dict[str, Any] = {"method_name": "execute_complete", "kwargs": dict(kept)}
    if upsert is None:
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

        context["ti"].task.log.warning("Airflow %s cannot ask a person: that needs 3.1. %s", AIRFLOW, without)
        raise deferred(trigger=TimeDeltaTrigger(patience), **later)
    ti_id = context["ti"].id
    upsert(ti_id=ti_id, options=list(options), subject=subject, body=body, params=dict(params))
    if awaiting := find_name("TaskAwaitingInput"):  # 3.3
        raise awaiting(timeout=patience, **later)
    from airflow.providers.standard.triggers.hitl import HITLTrigger

    # `params` was serialized for the request; the trigger takes it apart.
    trigger = HITLTrigger(
        ti_id=ti_id,
        options=list(options),
        params={name: dict(value) for name, value in params.items()},
        timeout_datetime=datetime.now(UTC) + patience,
    )
    raise deferred(trigger=trigger, **later)
