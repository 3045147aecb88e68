"""Arguments and options that several commands take."""

from __future__ import annotations

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tidefold.domain.snapshot.kind_selection import KindPolicy
from tidefold.errors import InvalidInputError, TidefoldError

_RUN = re.compile(r"[\w./:+-]{1,200}")


def run_id(given: str | None) -> str:
    """Returns the given id, or a new one. Raises InvalidInputError."""
    if given is None:
        return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    if not _RUN.fullmatch(given):
        raise InvalidInputError(
            "RUN_INVALID",
            "The run id is not valid.",
            hint="Use up to 200 letters, digits and the characters _ . / : + -.",
        )
    return given


def complete_log(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of configured logs, for the shell."""
    from tidefold.config import load_config

    path = ctx.params.get("config") or os.environ.get("TIDEFOLD_CONFIG") or "tidefold.yaml"
    try:
        return [log for log in load_config(Path(path)).logs if log.startswith(incomplete)]
    except TidefoldError:
        return []


Log = Annotated[str, typer.Argument(help="Id of the log.", metavar="LOG", autocompletion=complete_log)]
LogOrSet = Annotated[
    str | None,
    typer.Argument(
        help="Id of the log; none with --set.", metavar="LOG", show_default=False, autocompletion=complete_log
    ),
]
Logs = Annotated[
    list[str] | None,
    typer.Argument(help="Ids of logs. Default: all.", metavar="LOG", show_default=False, autocompletion=complete_log),
]
SnapshotId = Annotated[int | None, typer.Option("--snapshot", help="Id of the snapshot.", min=1, show_default=False)]
RunId = Annotated[
    str | None,
    typer.Option(
        "--run", "--run-id", help="Id of the run. The same id again continues that run.", show_default="a new one"
    ),
]
Takeover = Annotated[bool, typer.Option("--takeover", help="Supersede an open attempt of another run.")]
TakeoverAfter = Annotated[
    float | None,
    typer.Option(
        "--takeover-after",
        help="Supersede an attempt of another run after this many seconds without progress (60 or more).",
        metavar="SECONDS",
        show_default="never",
    ),
]
KindOfSnapshot = Annotated[
    KindPolicy | None,
    typer.Option(
        "--kind",
        help="full: files of its own; incremental: shares files of confirmed snapshots; auto: chosen by cost.",
        show_default="as configured",
    ),
]
At = Annotated[
    str, typer.Option("--at", help="The instant, with its time zone: 2026-11-05T00:00:00Z.", metavar="INSTANT")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: print what the command would do.")]
