"""Tells a webhook (a chat, a pager) that a task failed: `on_failure_callback=GateNotifier("my_webhook")`."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier
from airflow.sdk.bases.hook import BaseHook

from tidefold_airflow.ui.mount import address, run_path

if TYPE_CHECKING:
    from airflow.sdk import Context

_SECONDS = 10


class GateNotifier(BaseNotifier):
    """Posts `{"text", "dag", "run", "task", "logs"}` as JSON to the address of an Airflow connection.

    :param conn_id: connection whose host is the whole address, which may hold a secret and so stands in no DAG file.
    """

    template_fields = ("conn_id",)

    def __init__(self, conn_id: str) -> None:
        super().__init__()
        self.conn_id = conn_id

    def notify(self, context: Context) -> None:
        """Raises OSError where the address does not answer: Airflow logs it and goes on."""
        ti = context["ti"]
        message = {
            "text": f"tidefold: {ti.dag_id} {_failure_text(context)}. {_reason(context)}",
            "dag": ti.dag_id,
            "run": ti.run_id,
            "task": ti.task_id,
            "page": address(run_path(ti.dag_id, ti.run_id)),
        }
        webhook = BaseHook.get_connection(self.conn_id).host or ""
        request = urllib.request.Request(
            webhook, json.dumps(message).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=_SECONDS):
            pass


def _failure_text(context: Context) -> str:
    return getattr(context.get("task"), "failure_text", "did not publish everything")


def _reason(context: Context) -> str:
    error: Any = context.get("exception")
    return str(error) if error else ""
