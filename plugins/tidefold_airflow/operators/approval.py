"""Asks a person through Airflow's required actions, and reads the answer. The open question occupies no worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import Param
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.execution_time.hitl import upsert_hitl_detail

if TYPE_CHECKING:
    from airflow.sdk import Context

_APPROVE, _REJECT = "Approve", "Reject"
# A timeout without a default fails the task: silence is never consent.
_REASON = Param("", type="string", maxLength=500, title="Why", description="Kept with the snapshot. Needed to approve.")


@dataclass(frozen=True)
class ApprovalQuestion:
    """A question: `subject` is one line, `body` Markdown. It ends after the given time without an answer."""

    subject: str
    body: str
    patience: timedelta


@dataclass(frozen=True)
class Answer:
    """Whether a person approved, who, and the reason. `given`: false if nobody responded in time."""

    approved: bool
    by: str
    why: str
    given: bool = True


def ask(question: ApprovalQuestion, context: Context, **kept: Any) -> NoReturn:
    """Defers the task. After the answer Airflow calls `execute_complete(context, event, **kept)` of its operator."""
    upsert_hitl_detail(
        ti_id=context["ti"].id,
        options=[_APPROVE, _REJECT],
        subject=question.subject,
        body=question.body,
        params={"why": _REASON.serialize()},
    )
    raise TaskAwaitingInput(method_name="execute_complete", kwargs=kept, timeout=question.patience)


def read_answer(event: Mapping[str, Any]) -> Answer:
    """Returns the answer that `execute_complete` received. An error (nobody responded in time) is a rejection."""
    if "error" in event:
        why = f"nobody answered in time ({event.get('error_type', 'timeout')})"
        return Answer(approved=False, by="", why=why, given=False)
    user = event.get("responded_by_user") or {}
    why = str((event.get("params_input") or {}).get("why") or "")
    return Answer(event["chosen_options"] == [_APPROVE], str(user.get("name") or user.get("id") or ""), why)
