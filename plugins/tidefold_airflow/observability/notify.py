"""Reports failed tasks, late runs and alarms to a webhook (a chat, a pager) or to the user's own function."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from http.client import HTTPException
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from tidefold.errors import InvalidInputError
from tidefold_airflow.airflow_versions import BaseHook, takes_context
from tidefold_airflow.ui.mount import address, run_path

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.domain.alarms import LogAlarm

_SECONDS = 10
# The key of the new alarms in the context of the task.
ALARMS = "alarms"
Notifier = Callable[[Any], None]


class GateNotifier(BaseNotifier):
    """Posts `{"text", "dag", "run", "task", "page", "alarms"}` as JSON to the address of an Airflow connection.

    Use it as `on_failure_callback` of a DAG or task, as callback of a deadline, or for alarms of logs.

    :param conn_id: connection whose host is the whole address. It may be a secret, so no DAG file has it.
    :param context: what Airflow gives to the callback of a deadline.
    """

    template_fields = ("conn_id",)

    def __init__(self, conn_id: str, context: Context | None = None) -> None:
        super().__init__(*((context,) if takes_context(BaseNotifier) else ()))
        self.conn_id = conn_id

    def notify(self, context: Context) -> None:
        """Posts the message. Raises OSError (no response) or InvalidInputError (invalid address)."""
        _post(BaseHook.get_connection(self.conn_id).host or "", describe(context))

    async def async_notify(self, context: Context) -> None:
        """Posts the message in Airflow's triggerer, which calls this for deadlines."""
        connection = await BaseHook.aget_connection(self.conn_id)
        await asyncio.to_thread(_post, connection.host or "", describe(context))


def find_notifiers(conn_id: str | None, path: str | None) -> list[Notifier]:
    """Returns the notifiers that alarms are sent to.

    conn_id: see GateNotifier.
    path: dotted path of a function that takes the context of a task, or of a notifier or a notifier's class.
    Raises InvalidInputError.
    """
    notifiers: list[Notifier] = [GateNotifier(conn_id)] if conn_id else []
    return [*notifiers, _import_notifier(path)] if path else notifiers


def _import_notifier(path: str) -> Notifier:
    module, _, name = path.rpartition(".")
    try:
        named = getattr(import_module(module), name)
        notifier = named() if isinstance(named, type) else named
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise _refuse(path, str(error)) from error
    if not callable(notifier):
        raise _refuse(path, "it cannot be called")
    checked: Notifier = notifier
    return checked


def _refuse(path: str, why: str) -> InvalidInputError:
    return InvalidInputError("NOTIFIER_UNKNOWN", f"`{path}` is not a notifier: {why}.")


def describe(context: Mapping[str, Any] | Context) -> dict[str, Any]:
    """Returns the message about a failed task, a late run, or alarms."""
    dag, run, task = _find_place(context)
    listed: Any = context.get(ALARMS, ())
    alarms: Sequence[LogAlarm] = listed
    if alarms:
        text = " ".join(f"{alarm.log}: {alarm}" for alarm in alarms)
    elif "deadline" in context:
        text = f"{dag} has not ended by its deadline."
    else:
        text = f"{dag} {_failure_text(context)}. {_reason(context)}"
    message = {"text": f"tidefold: {text}", "dag": dag, "run": run, "task": task, "page": address(run_path(dag, run))}
    return message | ({"alarms": [asdict(alarm) for alarm in alarms]} if alarms else {})


def _find_place(context: Mapping[str, Any] | Context) -> tuple[str, str, str]:
    """Returns DAG, run and task. A deadline has no task, and its run is a mapping."""
    ti: Any = context.get("ti")
    if ti is not None:
        return ti.dag_id, ti.run_id, ti.task_id
    run: Any = context.get("dag_run") or {}
    return str(run.get("dag_id", "")), str(run.get("dag_run_id", "")), ""


def _post(webhook: str, message: Mapping[str, Any]) -> None:
    """Posts a message. Raises OSError or InvalidInputError without the address in it, which may be a secret."""
    try:
        request = urllib.request.Request(
            webhook, json.dumps(message).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=_SECONDS):
            pass
    except (ValueError, HTTPException):
        raise InvalidInputError(
            "WEBHOOK_ADDRESS",
            "The host of the webhook's connection is not an address, or its server does not speak HTTP.",
        ) from None


def _failure_text(context: Mapping[str, Any] | Context) -> str:
    return getattr(context.get("task"), "failure_text", "did not publish everything")


def _reason(context: Mapping[str, Any] | Context) -> str:
    error: Any = context.get("exception")
    return str(error) if error else ""
