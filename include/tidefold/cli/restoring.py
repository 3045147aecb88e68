"""The command that brings an older snapshot's rows back: restore."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tidefold.cli.arguments import Log, RunId, Takeover
from tidefold.cli.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal
from tidefold.cli.working import run_id


class Afterwards(StrEnum):
    """What becomes of the changes after the snapshot."""

    REPLAY = "replay"
    SKIP = "skip"


OldId = Annotated[int, typer.Argument(help="Id of the snapshot whose rows come back.", metavar="SNAPSHOT", min=1)]
Mode = Annotated[
    Afterwards,
    typer.Option(
        "--mode", help="The changes after it: replay folds them again later, skip leaves them out.", show_default=False
    ),
]


def restore(
    terminal: Terminal, log: Log, snapshot: OldId, mode: Mode, run: RunId = None, takeover: Takeover = False
) -> int:
    """Bring the rows of an older snapshot back, as a new snapshot, staged: no reader sees it yet.

    Judge and confirm it as any other: tidefold quality, then tidefold confirm publishes it. The gate compares its row
    count with the newest snapshot's; if that stops it, confirm --override-by with --why lets it through. --mode replay
    sets the log back too: the next run folds what came after the snapshot again; refused if the log is cut there.
    --mode skip leaves out for good what came after, up to now, and records it. Undo is one more restore. Nothing is
    deleted. A whole snapshot's files are taken over without Spark; a tail-only one is folded, in one Spark job.

    Example: tidefold restore accounts 12 --mode replay

    Next: tidefold quality LOG, then tidefold confirm LOG
    """
    from tidefold.cli.spark_step import run_step
    from tidefold.lifecycle import claims
    from tidefold.operations.asking import Asking
    from tidefold.operations.steps import Step

    asking = Asking(run_id(run), takeover, restore=claims.Restore(snapshot, claims.Mode(mode)))
    pipeline = terminal.pipeline()
    outcomes = run_step(terminal, pipeline, Step("materialize", asking), [pipeline.log(log).id])
    return print_outcomes(terminal, "restore", outcomes, after=f"tidefold quality {log}, then tidefold confirm {log}")
