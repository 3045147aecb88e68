"""The app: maps addresses to pages. Every route is guarded, and no route writes.

Each address of a log exists twice: without prefix for the pipeline of TIDEFOLD_CONFIG, and below `/p/NAME` for others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from fastapi.params import Depends
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from tidefold.config import Config, load_config
from tidefold.domain.log_state import LogState
from tidefold.errors import TidefoldError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.check_history import compare_over_time
from tidefold.wiring import connect
from tidefold_airflow.ui import responses
from tidefold_airflow.ui.request import (
    LogPage,
    Run,
    log_asked,
    logs_asked,
    run_asked,
    snapshot_asked,
    state_asked,
    text_asked,
)
from tidefold_airflow.ui.views.log import LogOfRun, read_stored_report, view_log, view_run, view_snapshot
from tidefold_airflow.ui.views.overview import (
    LogLine,
    SetLine,
    overview,
    totals,
    view_quarantine,
    view_retention,
    view_sets,
)
from tidefold_airflow.ui.views.plan import read_plan
from tidefold_airflow.ui.visible_pipelines import KnownPipeline, Names, VisiblePipelines

T = TypeVar("T")
# Each one reads data files of several snapshots, while a person waits.
TRACED = 5
_OTHER = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A pipeline with the logs that the reader may see, and its name in addresses."""

    known: KnownPipeline
    pipeline: Pipeline
    whole: bool


@dataclass(frozen=True, slots=True)
class PipelineOpener:
    """Opens pipelines for requests, and notes them in the request for the links of its page.

    find_visible: returns what a reader may see.
    opened: opens the pipeline of a configuration.
    """

    find_visible: Callable[[Request], VisiblePipelines]
    opened: Callable[[str], Pipeline]

    def open(self, request: Request) -> Opened | None:
        """Opens the pipeline in the address. Without one, opens that of TIDEFOLD_CONFIG, or the first that the reader
        may see.

        Returns None if the reader may see nothing. Raises HTTPException 403.
        """
        visible = self.find_visible(request)
        pipelines = visible.pipelines()
        name = request.path_params.get("pipeline")
        chosen = next(iter(pipelines), None) if name is None else visible.find(name)
        if name is not None and chosen is None:
            raise HTTPException(403)
        note_place(request, chosen, pipelines)
        return self._open(chosen, visible.logs(chosen.name)) if chosen else None

    def open_log(self, request: Request) -> Pipeline:
        """Opens the pipeline of a log in the address. Raises HTTPException 403 if the reader may not see the log."""
        visible = self.find_visible(request)
        chosen = visible.find(request.path_params.get("pipeline", ""))
        if chosen is None:
            raise HTTPException(403)
        note_place(request, chosen, visible.pipelines())
        opened = self._open(chosen, visible.logs(chosen.name))
        if not opened.whole and request.path_params["log"] not in opened.pipeline.config.logs:
            # Also if the log does not exist: a user who may see some logs does not learn which others exist.
            raise HTTPException(403)
        return opened.pipeline

    def open_dag(self, request: Request) -> list[Opened]:
        """Opens the pipelines that the DAG in the address works on; none if it has no task of tidefold."""
        visible = self.find_visible(request)
        pipelines = visible.of_dag(request.path_params["dag_id"])
        note_place(request, pipelines[0][0] if pipelines else None, [pipeline for pipeline, _ in pipelines])
        return [self._open(pipeline, logs) for pipeline, logs in pipelines]

    def _open(self, named: KnownPipeline, logs: Names) -> Opened:
        try:
            pipeline = self.opened(named.config)
        except TidefoldError as error:
            raise (error if logs is None else _hide_configuration(error)) from error
        if logs is None:
            return Opened(named, pipeline, whole=True)
        seen = {name: log for name, log in pipeline.config.logs.items() if name in logs}
        config = pipeline.config.model_copy(update={"logs": seen})
        return Opened(named, replace(pipeline, config=config), whole=False)


def _hide_configuration(error: TidefoldError) -> TidefoldError:
    """Returns the error for a reader who may not see all logs: the original one quotes lines and paths of every log."""
    message = f"The pipeline cannot be opened ({error.code})."
    return type(error)(error.code, message, hint="Ask a person who may see all logs of this pipeline.")


def note_place(request: Request, here: KnownPipeline | None, pipelines: list[KnownPipeline]) -> None:
    """Notes for the frame of the page its pipeline, and the pipelines to choose from."""
    request.state.tidefold_place = (here, pipelines)


def build_app(
    guards: Sequence[Depends],
    run_guards: Sequence[Depends],
    find_visible: Callable[[Request], VisiblePipelines],
    opened: Callable[[str], Pipeline] | None = None,
    find_failed: Callable[[Run], Sequence[str]] = lambda run: (),
    seconds: float = responses.SECONDS,
) -> FastAPI:
    """Builds the app of the page.

    :param guards, run_guards: Guards of all routes, and of those that show what a DAG or a run did.
    :param find_visible: Returns what the reader may see.
    :param opened: Opens the pipeline of a configuration for each request, so that an edited one takes effect at once.
    :param find_failed: Returns the failed tasks of a run.
    """
    app = FastAPI(
        title="tidefold", docs_url=None, redoc_url=None, openapi_url=None, dependencies=list(guards),
        redirect_slashes=False, default_response_class=HTMLResponse
    )  # fmt: skip
    pages = _Pages(PipelineOpener(find_visible, opened or _open_configured), responses.Worker(seconds), find_failed)
    app.include_router(_router(pages, run_guards))
    app.add_exception_handler(HTTPException, _render_refusal)
    return app


def _open_configured(config: str) -> Pipeline:
    from tidefold_airflow.operators.run_context import config_path

    path = config_path(config or None)
    return connect(_read_config(path, _sign(path)))


def _sign(path: Path) -> tuple[int, ...]:
    """Returns numbers that change when a file is edited or replaced; none if it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


@lru_cache(maxsize=16)
def _read_config(path: Path, _signature: tuple[int, ...]) -> Config:
    """Reads a configuration once for each of its versions: one of 5,000 logs takes seconds."""
    return load_config(path)


async def _render_refusal(request: Request, error: Exception) -> Response:
    return responses.render_refusal(request, getattr(error, "status_code", 500))


class _Route(APIRoute):
    """A route that shows errors as pages, including those of its guards."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_errors(request: Request) -> Response:
            try:
                return await handle(request)
            except HTTPException:
                raise
            except Exception as error:
                return responses.render_error(request, error)

        return handle_errors


class _Pages:
    """The handlers. Each reads everything that it shows from the store in one piece of work."""

    def __init__(
        self, opener: PipelineOpener, worker: responses.Worker, find_failed: Callable[[Run], Sequence[str]]
    ) -> None:
        self._opener = opener
        self._worker = worker
        self._find_failed = find_failed

    async def logs(self, request: Request) -> Response:
        query, dag = logs_asked(request), request.path_params.get("dag_id")

        def work() -> tuple[LogPage[LogLine], list[SetLine]]:
            opened = self._opener.open(request) if dag is None else next(iter(self._opener.open_dag(request)), None)
            if opened is None:
                return LogPage(query), []
            listed = overview(opened.pipeline, query)
            return listed, view_sets(opened.pipeline, listed.lines)

        listed, sets = await self._worker.run(work)
        view = {"logs": listed, "totals": totals(listed.lines), "dag": dag, "sets": sets}
        return responses.page(request, "logs.html.j2", view)

    async def log(self, request: Request) -> Response:
        view = await self._of_log(request, view_log)
        return responses.page(request, "log.html.j2", {"log": view.state.log, "view": view})

    async def snapshot(self, request: Request) -> Response:
        view = await self._of_log(request, lambda p, state: view_snapshot(p, state, snapshot_asked(request, state)))
        return responses.page(request, "snapshot.html.j2", {"log": view.state.log, "view": view})

    async def report(self, request: Request) -> Response:
        data = await self._of_log(
            request, lambda p, state: read_stored_report(p, state, snapshot_asked(request, state))
        )
        return responses.document(data)

    async def plan(self, request: Request) -> Response:
        return responses.document(await self._of_log(request, read_plan))

    async def checks(self, request: Request) -> Response:
        view = await self._of_log(request, lambda p, state: compare_over_time(p, state, most=TRACED))
        return responses.page(request, "checks.html.j2", {"log": request.path_params["log"], "view": view})

    async def retention(self, request: Request) -> Response:
        view = await self._of_log(request, view_retention)
        return responses.page(request, "retention.html.j2", {"log": view.state.log, "view": view})

    async def quarantine(self, request: Request) -> Response:
        reason = text_asked(request, "reason", 64)
        view = await self._of_log(request, lambda p, state: view_quarantine(p, state.log, reason))
        return responses.page(request, "quarantine.html.j2", {"log": request.path_params["log"], "view": view})

    async def run(self, request: Request) -> Response:
        run, query = run_asked(request), logs_asked(request)

        def work() -> tuple[list[tuple[Opened, LogPage[LogOfRun]]], Sequence[str]]:
            listed = [(opened, view_run(opened.pipeline, run, query)) for opened in self._opener.open_dag(request)]
            return listed, self._find_failed(run) if listed else ()

        pipelines, failed = await self._worker.run(work)
        view = {"run": run, "pipelines": pipelines, "failed": failed}
        # Commands of several pipelines name the configuration of each.
        return responses.page(request, "run.html.j2", view | ({"here": None} if len(pipelines) > 1 else {}))

    async def other(self, request: Request) -> Response:
        raise HTTPException(404 if request.method in ("GET", "HEAD") else 405)

    async def _of_log(self, request: Request, view: Callable[[Pipeline, LogState], T]) -> T:
        def work() -> T:
            pipeline = self._opener.open_log(request)
            return view(pipeline, state_asked(pipeline, log_asked(request, pipeline)))

        return await self._worker.run(work)


def _router(pages: _Pages, run_guards: Sequence[Depends]) -> APIRouter:
    router = APIRouter(route_class=_Route)
    one = "/logs/{log}"
    routes: dict[str, Callable[..., Any]] = {
        "/": pages.logs,
        one: pages.log,
        f"{one}/snapshots/{{snapshot}}": pages.snapshot,
        f"{one}/snapshots/{{snapshot}}/report": pages.report,
        f"{one}/plan/report": pages.plan,
        f"{one}/checks": pages.checks,
        f"{one}/retention": pages.retention,
        f"{one}/quarantine": pages.quarantine,
    }
    for path, handler in routes.items():
        for prefix in ("", "/p/{pipeline}"):
            router.add_api_route(f"{prefix}{path}", handler, methods=["GET", "HEAD"])
    router.add_api_route("/dags/{dag_id}", pages.logs, methods=["GET", "HEAD"], dependencies=run_guards)
    router.add_api_route("/runs/{dag_id}/{run_id:path}", pages.run, methods=["GET", "HEAD"], dependencies=run_guards)
    # Only users with the right learn that something does not exist.
    router.add_api_route("/{other:path}", pages.other, methods=_OTHER)
    return router
