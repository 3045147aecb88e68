"""Shows a form for a key, and the explanation of its row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidefold.domain.log_state import LogState
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.fold.merge.merge import close_kept
from tidefold.operations.inspect.explain_key import KeyExplained, explain_key
from tidefold.operations.pipeline import Pipeline
from tidefold.presentation.text import key_text
from tidefold_airflow.ui.request import LONGEST_KEY, number_of, text_asked

if TYPE_CHECKING:
    from starlette.requests import Request

VIEWS = ("published", "live", "snapshot")
# Prefix of the form field of each key column.
FIELD = "c."


@dataclass(frozen=True, slots=True)
class ExplainForm:
    """The content of the form: the key as JSON (None: not entered yet), its columns as typed, and the view."""

    key: str | None
    fields: Mapping[str, str]
    view: str
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class ExplainView:
    """The form, and the explanation or the error."""

    state: LogState
    question: ExplainForm
    found: KeyExplained | None = None
    error: TidefoldError | None = None


def view_explanation(pipeline: Pipeline, state: LogState, request: Request) -> ExplainView:
    """Explains the key in the address, if there is one. The page shows a mistake in it next to the form."""
    key = state.shape.key
    question = ExplainForm(None, dict.fromkeys(key, ""), "published", None)
    try:
        question = _parse_form(request, state)
        if question.key is None or not key:
            return ExplainView(state, question)
        live = question.view == "live"
        snapshot = question.snapshot if question.view == "snapshot" else None
        return ExplainView(state, question, explain_key(pipeline, state.log, question.key, snapshot, live))
    except TidefoldError as error:
        return ExplainView(state, question, error=error)
    finally:
        close_kept()


def _parse_form(request: Request, state: LogState) -> ExplainForm:
    fields = {name: text_asked(request, f"{FIELD}{name}", LONGEST_KEY) or "" for name in state.shape.key}
    view = text_asked(request, "view", 16) or "published"
    number = number_of(text_asked(request, "snapshot", 16) or "")
    if view not in VIEWS:
        raise InvalidInputError("READ_OPTIONS", "This is not a view of a log.", hint=f"Use one of {', '.join(VIEWS)}.")
    text = text_asked(request, "key", LONGEST_KEY)
    if text is not None:
        return ExplainForm(key_text([text], state.shape), _fields(text, fields), view, number)
    if not any(fields.values()):
        return ExplainForm(None, fields, view, number)
    words = [f"{name}={value}" for name, value in fields.items()]
    return ExplainForm(key_text(words, state.shape), fields, view, number)


def _fields(text: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Returns the values of a key given as JSON, for the form."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return dict(fields)
    if not isinstance(found, dict):
        return dict(fields)
    return {name: str(found.get(name, value)) for name, value in fields.items()}
