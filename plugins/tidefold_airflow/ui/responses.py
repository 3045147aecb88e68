"""From work on the store to an answer: in threads of its own, within a time, with headers that allow little.

What a reader is told of an error: ours as it is, of any other only that there was one.
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
    """The error for the reader. What nobody foresaw may hold anything, and goes to the server's log alone."""
    if isinstance(error, TidefoldError):
        return error
    _log.error("%s failed", where, exc_info=error)
    return TidefoldError("UNFORESEEN", f"{where} failed.", hint="Read the log of the Airflow api-server.")


T = TypeVar("T")
SECONDS = 30.0
# A store that does not answer holds these threads and none of Airflow's.
_THREADS = 8
_STATUS = ((InvalidInputError, 400), (NotFoundError, 404), (RefusedError, 409), (StorageError, 503))
_REFUSALS = {
    401: ("NOT_LOGGED_IN", "You are not logged in.", "Log in to Airflow, then open this page from its navigation."),
    403: ("NOT_ALLOWED", "Your account may not see this page.", "Ask for the right to view DAGs and plugins."),
    404: ("PAGE_NOT_FOUND", "There is no such page.", "The first page lists all logs."),
    405: ("READ_ONLY", "These pages only show.", "Commands and DAGs do the work."),
}


class Worker:
    """Runs the work of a page in a thread; what takes longer than `seconds` is an error for the reader.

    A thread that a store holds is not given up: with all of them held, pages say so after that time.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidefold-page")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of the work. Raises what it raises, StorageError after the time."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._pool.submit(work)), self._seconds)
        except TimeoutError:
            raise StorageError(
                "STORE_SLOW",
                f"The store did not answer within {self._seconds:g} s.",
                hint="Try again. `tidefold validate --online` tests the store.",
            ) from None


def page(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """An HTML page with the headers of all our pages."""
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
    """No script but our own, nothing from elsewhere, shown by nobody but Airflow itself, kept by nobody."""
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
    """A stored page that is not trusted: it may style itself, and nothing else."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox"
    return Response(data, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy, **_ALWAYS})


def render_error(request: Request, error: Exception) -> HTMLResponse:
    """A page for an error."""
    known = hide_unexpected(error, "The page")
    return _error_page(request, status_of(known), known)


def render_refusal(request: Request, status: int) -> HTMLResponse:
    """A page for what HTTP itself refuses: no login, no right, no such page."""
    code, message, hint = _REFUSALS.get(status, ("REFUSED", "The request was refused.", "Open the page from Airflow."))
    return _error_page(request, status, TidefoldError(code, message, hint=hint))


def status_of(error: TidefoldError) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503 if error.transient else 500)


def _error_page(request: Request, status: int, error: TidefoldError) -> HTMLResponse:
    return page(request, "error.html.j2", {"error": error, "status": status}, status)


def up_from(request: Request) -> str:
    """The way from a page's address to the app's own: relative, whatever stands before us in front of Airflow."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return "../" * (path.count("/") - 1) or "./"
