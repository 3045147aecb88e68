"""What the command line does after a publication: it registers tables that the catalog does not have yet."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.cli.terminal import Terminal
from tidefold.errors import TidefoldError
from tidefold.operations.pipeline import Pipeline


def register_new_tables(terminal: Terminal, pipeline: Pipeline, logs: Sequence[str]) -> None:
    """Registers the published tables of these logs, if a catalog is configured. A failure is a warning: the tables are
    published.
    """
    if pipeline.config.catalog is None:
        return
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.catalog.register import find_unregistered, list_warnings
    from tidefold.spark.steps import RegisterStep

    try:
        new = find_unregistered(pipeline, logs)
        outcomes = run_step(terminal, pipeline, RegisterStep(), new) if new else []
    except TidefoldError as error:
        terminal.note(f"warning: the catalog was not asked: {error} Then: `tidefold register`.")
        return
    for warning in list_warnings(outcomes):
        terminal.note(f"warning: {warning}")
    for outcome in outcomes:
        if not outcome.error:
            terminal.note(f"{outcome.log}: {outcome.status}: {outcome.message}")
