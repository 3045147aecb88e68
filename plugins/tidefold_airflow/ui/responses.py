"""Renders pages, runs work on the store in threads with a time limit, and builds strict responses.

A reader sees the errors of tidefold. Of any other error the reader learns only that there was one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tidefold.domain.wording import choose_record_noun, escape_control_characters, in_units
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold.quality.report.page import mark_commands

_log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent / "templates"
# The end of a run's id that has no meaning for people.
_WHEN_DUE = re.compile(r"(T\d\d:\d\d(?::(?!00)\d\d)?)(?::00)?(?:\.\d+)?\+00:00$")
_COMMAND = re.compile(r"(<code>tidefold (?:(?! -c CONFIG)[^<])+)(</code>)")
_LONGEST = 1000
_LONG_AGO = 90 * 86_400
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))
T = TypeVar("T")
SECONDS = 30.0
# A store that does not respond occupies these threads, and none of Airflow's.
_THREADS = 8
_STATUS = ((InvalidInputError, 400), (NotFoundError, 404), (RefusedError, 409), (StorageError, 503))
_REFUSALS = {
    401: ("NOT_LOGGED_IN", "You are not logged in.", "Log in to Airflow, then open this page from its navigation."),
    403: ("NOT_ALLOWED", "Your account may not see this page.", "Ask for the right to view DAGs and plugins."),
    404: ("PAGE_NOT_FOUND", "There is no such page.", "The first page lists all logs."),
    405: ("READ_ONLY", "These pages only show.", "Commands and DAGs do the work."),
}
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


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
        "commands": mark_commands,
        "for_pipeline": _name_configuration,
        "by_bound": lambda buckets: sorted(buckets.items(), key=lambda one: (one[0] == "more", len(one[0]), one[0])),
        "noun": choose_record_noun,
        "short": lambda run: _WHEN_DUE.sub(r"\1", run).removeprefix("scheduled__"),
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


def span(seconds: float) -> str:
    """Returns a duration in its largest unit, such as `3 min`."""
    for length, unit in _SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


def _name_configuration(html: str, pipeline: Any) -> Markup:
    """Adds `-c CONFIG` to the commands of a pipeline that is not that of TIDEFOLD_CONFIG. No page shows its path."""
    return Markup(_COMMAND.sub(r"\1 -c CONFIG\2", str(html)) if pipeline and pipeline.name else html)


def _show(value: Any) -> Any:
    if value is None:
        return "–"
    if type(value) is Markup:
        return value
    if isinstance(value, str):
        text = str(value)
        return escape_control_characters(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …")
    return value


def _when(text: str | None) -> str:
    """Returns an ISO instant as `2026-01-31 12:00:05`, always in UTC."""
    instant = _instant(text or "")
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if instant else text or "–"


def _instant(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _age(text: str | None, now: datetime) -> str:
    """Returns the age of an instant. If its clock is ahead of ours, the age is `now`."""
    instant = _instant(text or "")
    if instant is None:
        return ""
    seconds = max((now - instant).total_seconds(), 0)
    return f"{span(seconds)} ago" if seconds < _LONG_AGO else f"{instant.astimezone(UTC):%Y-%m-%d}"


def hide_unexpected(error: Exception, where: str) -> TidefoldError:
    """Returns the error for the reader. An unexpected error may contain secrets, so only the server's log has it."""
    if isinstance(error, TidefoldError):
        return error
    _log.error("%s failed", where, exc_info=error)
    return TidefoldError("UNFORESEEN", f"{where} failed.", hint="Read the log of the Airflow api-server.")


class Worker:
    """Runs the work of a page in a thread. After `seconds` the reader sees an error.

    A thread that waits for a store stays occupied. If all threads are occupied, pages report that after the time limit.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidefold-page")

    async def run(self, work: Callable[[], T]) -> T:
        """Returns the result of the work. Raises its error, or StorageError after the time limit."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._pool.submit(work)), self._seconds)
        except TimeoutError:
            raise StorageError("STORE_SLOW", f"The store did not answer within {self._seconds:g} s.") from None


def page(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Returns an HTML page with the headers of all pages."""
    now = datetime.now(UTC)
    here, pipelines = getattr(request.state, "tidefold_place", (None, []))
    top = up_from(request)
    place: dict[str, Any] = {
        "top": top,
        "here": here,
        "known": pipelines,
        "up": f"{top}p/{here.name}/" if here and here.name else top,
    }
    text = render(template, {"now": now, **place, **values})
    return HTMLResponse(text, status, headers=headers())


def headers() -> dict[str, str]:
    """Returns headers that allow only our own script, no external content, no frames but Airflow's, and no caching."""
    policy = (
        f"default-src 'none'; style-src {source_of(style())}; script-src {source_of(script())}; img-src data:; "
        "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    )
    return {"Content-Security-Policy": policy, **_ALWAYS}


def document(data: bytes) -> Response:
    """Returns a stored, untrusted page. It may use styles, and nothing else."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
    return Response(data, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy, **_ALWAYS})


def render_error(request: Request, error: Exception) -> HTMLResponse:
    """Renders a page for an error."""
    shown = hide_unexpected(error, "The page")
    return _error_page(request, status_of(shown), shown)


def render_refusal(request: Request, status: int) -> HTMLResponse:
    """Renders a page for a refusal by HTTP: no login, no right, no such page."""
    code, message, hint = _REFUSALS.get(
        status, ("REFUSED", f"The request was refused with HTTP status {status}.", "Open the page from Airflow.")
    )
    return _error_page(request, status, TidefoldError(code, message, hint=hint))


def status_of(error: TidefoldError) -> int:
    """Returns the HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503 if error.transient else 500)


def _error_page(request: Request, status: int, error: TidefoldError) -> HTMLResponse:
    return page(request, "error.html.j2", {"error": error, "status": status}, status)


def up_from(request: Request) -> str:
    """Returns the relative path from a page to the app, which does not depend on proxies in front of Airflow."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return "../" * (path.count("/") - 1) or "./"
