"""`tidefold scrub`: verifies a share of each log's files in each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.options import Logs
from tidefold.cli.output.damage import print_damage
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.output.progress import ProgressLine
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from tidefold.operations.verify.scrub import ScrubBudget

Share = Annotated[
    str | None,
    typer.Option("--share", help="Share of each log's bytes to read.", metavar="PERCENT", show_default="5%"),
]
Bytes = Annotated[
    str | None,
    typer.Option(
        "--bytes", help="Bytes of each log to read, instead of a share: 500MB, 20GiB, 100000.", metavar="SIZE"
    ),
]
Repair = Annotated[bool, typer.Option("--repair/--no-repair", help="Repair from a copy that is proved to be intact.")]


def scrub(
    terminal: Terminal, logs: Logs = None, share: Share = None, bytes: Bytes = None, repair: Repair = True
) -> int:
    """Read the next share of each log's files, verify checksums, and repair damage from an intact copy.

    Each run continues where the last one stopped, so several runs together read every file. A run verifies the
    checksums of the data files, segments and local copies in its share. It checks that all other files exist and have
    the right length. It also reads the whole ledger, the manifests and the Delta logs. Damage that remains raises an
    alarm with the file, the effect, and the command that repairs it. Exit code 5 while damage remains. Starts no Spark.

    Example: tidefold scrub --share 10%

    Next: tidefold status, or tidefold verify LOG to read all files at once
    """
    from tidefold.operations.outcome import for_each_log
    from tidefold.operations.verify.scrub import scrub as act

    budget = _budget(share, bytes)
    pipeline = terminal.pipeline()
    outcomes = for_each_log(
        choose_logs(pipeline, logs),
        lambda log: act(
            pipeline,
            log,
            budget,
            repair=repair,
            tell=ProgressLine(lambda text: terminal.note(f"{log}: {text}")),
        ),
    )
    code = print_outcomes(terminal, "scrub", outcomes)
    for outcome in outcomes:
        print_damage(terminal, outcome)
    return code


def _budget(share: str | None, size: str | None) -> ScrubBudget:
    from tidefold.config import count_bytes
    from tidefold.operations.verify.scrub import DEFAULT_SHARE, ScrubBudget, parse_share

    if size is None:
        return ScrubBudget(DEFAULT_SHARE if share is None else parse_share(share))
    if share is not None:
        raise InvalidInputError(
            "SCRUB_SHARE_INVALID", "--share and --bytes exclude each other.", hint="Give one of them."
        )
    bound = int(size) if size.isdecimal() else count_bytes(size)
    if bound < 1:
        message = f"`{size}` is not a number of bytes."
        raise InvalidInputError(
            "SCRUB_SHARE_INVALID", message, hint="Give a size such as `500MB`, `20GiB` or `100000`."
        )
    return ScrubBudget(bytes=bound)
