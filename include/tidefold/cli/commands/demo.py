"""The command that shows tidefold at work: demo."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tidefold.cli.terminal import Terminal
from tidefold.errors import RefusedError


def demo(
    terminal: Terminal,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A new folder for the demo.")] = "tidefold-demo",
    spark: Annotated[bool, typer.Option("--spark", help="Let Spark do the larger steps.")] = False,
) -> int:
    """Publish the tables of a sample database, in a folder of its own.

    Lands real Debezium changes of a pgbench database in DIR, runs the whole cycle, lands the changes of a later phase,
    and runs it again. It needs no Airflow, and without --spark no Java. DIR must not exist.

    Example: tidefold demo

    Next: tidefold read accounts -c tidefold-demo/tidefold.yaml
    """
    from tidefold.cli.full_run import open_runs
    from tidefold.cli.options import run_id
    from tidefold.cli.output.outcomes import exit_code
    from tidefold.cli.sample import LOGS, PHASES, SMALL, land, prepare
    from tidefold.operations.snapshot.request import Fold
    from tidefold.spark.jars import find_delta_jars
    from tidefold.spark.submit import QUICK_COMPILER

    root = Path(directory)
    if root.exists():
        raise RefusedError("DEMO_EXISTS", f"{root} exists already.", hint="Name a folder that does not exist.")
    if spark:
        # Before anything is written: after `tidefold jars` the same command works.
        find_delta_jars()
        # Its jobs take seconds: the second compiler would cost more than it saves.
        os.environ.setdefault(QUICK_COMPILER, "1")
    own = replace(terminal, config_path=prepare(root, SMALL if spark else None))
    pipeline = own.pipeline()
    outcomes = []
    with open_runs(own, pipeline) as begin:
        for phase in PHASES[:2]:
            terminal.line(f"{phase}: {land(own.config_path, phase)} files landed in {root / 'landing'}")
            whole = begin(Fold(run_id(None)))
            whole.run(list(LOGS))
            outcomes += [outcome for step in whole.outcomes.values() for outcome in step]
    code = exit_code(outcomes)
    terminal.json(
        {
            "command": "demo",
            "config": str(own.config_path),
            "exit_code": code,
            "outcomes": [o.to_dict() for o in outcomes],
        }
    )
    terminal.note(f"next: tidefold read accounts --limit 3 -c {own.config_path}")
    return code
