"""Renders values as HTML: templates and filters. It escapes all text from outside."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tidefold.domain.wording import choose_record_noun, in_units

_FOLDER = Path(__file__).parent / "templates"
_COMMAND = re.compile(r"`([^`]*)`")
# The end of a run's id that has no meaning for people.
_WHEN_DUE = re.compile(r"(T\d\d:\d\d(?::(?!00)\d\d)?)(?::00)?(?:\.\d+)?\+00:00$")
_LONGEST = 1000
_LONG_AGO = 90 * 86_400
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def render(template: str, values: Mapping[str, Any]) -> str:
    """Renders one page.

    `top` is the relative path from its address to the app, and `up` to the first page of its pipeline. So no link needs
    to know where Airflow is mounted.
    """
    return environment().get_template(template).render(css=Markup(style()), js=Markup(script()), **values)


@cache
def environment() -> Environment:
    """Returns the template environment. It escapes every value, also characters that hide or reverse text."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show,
    )
    made.filters |= {
        "size": in_units,
        "percent": lambda share: f"{share:.0%}",
        "count": lambda number: f"{number:,}",
        "counted": lambda number, noun: f"{number:,} {noun}{'' if number == 1 else 's'}",
        "when": _when,
        "age": _age,
        "span": span,
        "commands": _commands,
        "noun": choose_record_noun,
        "short": lambda run: _WHEN_DUE.sub(r"\1", run).removeprefix("scheduled__"),
        "json": lambda value: json.dumps(value, default=str, ensure_ascii=False),
        "cut": lambda text, length=200: text if len(text) <= length else f"{text[:length]} …",
    }
    return made


@cache
def style() -> str:
    """Returns the one style sheet. Every page contains it, so that a page without login has it too."""
    return (_FOLDER / "style.css").read_text()


@cache
def script() -> str:
    """Returns the one script. It follows Airflow's switch between light and dark, and does nothing else."""
    return (_FOLDER / "theme.js").read_text()


@cache
def source_of(text: str) -> str:
    """Returns the source for the content security policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def escape_control_characters(text: str) -> str:
    """Escapes the characters that do not print, and those that change the direction of a line."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def span(seconds: float) -> str:
    """Returns a duration in its largest unit, such as `3 min`."""
    for length, unit in _SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


def _show(value: Any) -> Any:
    if value is None:
        return "–"
    if type(value) is Markup:
        return value
    if isinstance(value, str):
        text = str(value)
        return escape_control_characters(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")
    return value


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _when(text: str | None) -> str:
    """Returns an ISO instant as `2026-01-31 12:00:05`, always in UTC."""
    found = _instant(text or "")
    return f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if found else text or "–"


def _age(text: str | None, now: datetime) -> str:
    """Returns the age of an instant. If its clock is ahead of ours, the age is `now`."""
    found = _instant(text or "")
    if found is None:
        return ""
    seconds = max((now - found).total_seconds(), 0)
    return f"{span(seconds)} ago" if seconds < _LONG_AGO else f"{found.astimezone(UTC):%Y-%m-%d}"


def _commands(text: str) -> Markup:
    """Renders a sentence of tidefold with the text in backticks as code. Everything is escaped."""
    parts = _COMMAND.split(escape_control_characters(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )
