"""Opens the pipeline of a request, with only those logs that its reader may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from tidefold.errors import TidefoldError
from tidefold.operations.pipeline import Pipeline
from tidefold_airflow.ui.visible_pipelines import KnownPipeline, Names, VisiblePipelines

if TYPE_CHECKING:
    from starlette.requests import Request


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
        known = visible.pipelines()
        name = request.path_params.get("pipeline")
        chosen = next(iter(known), None) if name is None else visible.find(name)
        if name is not None and chosen is None:
            raise HTTPException(403)
        note_place(request, chosen, known)
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
        found = visible.of_dag(request.path_params["dag_id"])
        note_place(request, found[0][0] if found else None, [known for known, _ in found])
        return [self._open(known, logs) for known, logs in found]

    def _open(self, known: KnownPipeline, logs: Names) -> Opened:
        try:
            pipeline = self.opened(known.config)
        except TidefoldError as error:
            raise (error if logs is None else _hide_configuration(error)) from error
        if logs is None:
            return Opened(known, pipeline, whole=True)
        seen = {name: log for name, log in pipeline.config.logs.items() if name in logs}
        config = pipeline.config.model_copy(update={"logs": seen})
        return Opened(known, replace(pipeline, config=config), whole=False)


def _hide_configuration(error: TidefoldError) -> TidefoldError:
    """Returns the error for a reader who may not see all logs: the original one quotes lines and paths of every log."""
    message = f"The pipeline cannot be opened ({error.code})."
    return type(error)(error.code, message, hint="Ask a person who may see all logs of this pipeline.")


def note_place(request: Request, here: KnownPipeline | None, known: list[KnownPipeline]) -> None:
    """Notes for the frame of the page its pipeline, and the pipelines to choose from."""
    request.state.tidefold_place = (here, known)
