"""Runs work on the store in its own threads and with a time limit, and builds the responses with strict headers.

A reader sees the errors of tidefold. Of any other error the reader learns only that there was one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold_airflow.ui.rendering import render, script, source_of, style

_log = logging.getLogger(__name__)


def hide_unexpected(error: Exception, where: str) -> TidefoldError:
    """Returns the error for the reader. An unexpected error may contain secrets, so only the server's log has it."""
    if isinstance(error, TidefoldError):
        return error
    _log.error("%s failed", where, exc_info=error)
    return TidefoldError("UNFORESEEN", f"{where} failed.", hint="Read the log of the Airflow api-server.")


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
            raise StorageError(
                "STORE_SLOW",
                f"The store did not answer within {self._seconds:g} s.",
                hint="Try again. `tidefold validate --online` tests the store.",
            ) from None


def page(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Returns an HTML page with the headers of all pages."""
    now = datetime.now(UTC)
    here, known = getattr(request.state, "tidefold_place", (None, []))
    top = up_from(request)
    place: dict[str, Any] = {
        "top": top,
        "here": here,
        "known": known,
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


_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def document(data: bytes) -> Response:
    """Returns a stored, untrusted page. It may use styles, and nothing else."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
    return Response(data, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy, **_ALWAYS})


def render_error(request: Request, error: Exception) -> HTMLResponse:
    """Renders a page for an error."""
    known = hide_unexpected(error, "The page")
    return _error_page(request, status_of(known), known)


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
