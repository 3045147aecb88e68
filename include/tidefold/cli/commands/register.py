"""`tidefold register`: registers published tables in the configured catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Logs
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs

Again = Annotated[bool, typer.Option("--again", help="Also tables that were registered before.")]


def register(terminal: Terminal, logs: Logs = None, again: Again = False) -> int:
    """Register published tables in the catalog that `catalog` in tidefold.yaml names.

    Spark makes the database if it is missing, and an external Delta table of the log's name at the table's address. The
    table itself is not changed. `run` and `confirm` do this after the first publication; a failure there is a warning.
    Call it with --again if somebody removed the table from the catalog. Starts Spark if a table is not registered yet.

    Example: tidefold register accounts

    Next: SELECT * FROM the table, in any session with that catalog
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.spark.steps import RegisterStep

    pipeline = terminal.pipeline()
    outcomes = run_step(terminal, pipeline, RegisterStep(again), choose_logs(pipeline, logs))
    return print_outcomes(terminal, "register", outcomes)
