"""The commands that act on one log, for a whole set: restore and drill."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import make_runner, plan_lines, print_outcomes, print_restored
from tidefold.cli.terminal import Terminal
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from tidefold.domain.snapshot.claim import RestoreMode
    from tidefold.operations.ground.pipeline import Pipeline
    from tidefold.operations.restore.export import Trial

OfSet = Annotated[
    str | None,
    typer.Option("--set", help="Act on all logs of this set, instead of one log.", metavar="NAME", show_default=False),
]
VersionNumber = Annotated[
    int | None,
    typer.Option(
        "--version", help="With --set: the number of the version.", metavar="N", min=1, show_default="the published one"
    ),
]


def require_log(log: str | None, named: str | None, version: int | None = None) -> str:
    """Returns the log of a command. Raises InvalidInputError unless it has a log and no option of a set."""
    if log is None:
        raise InvalidInputError("LOG_MISSING", "The command needs a log.", hint="Give LOG, or --set NAME.")
    if named is not None or version is not None:
        raise InvalidInputError(
            "SET_OPTIONS", "--set acts on all logs of a set, so the command takes no log.", hint="Give LOG or --set."
        )
    return log


def require_no_log(named: str, *others: object) -> str:
    """Returns the name of the set. Raises InvalidInputError if arguments of one log were given too."""
    if any(others):
        raise InvalidInputError(
            "SET_OPTIONS",
            "--set acts on all logs of a set, so arguments of one log have no meaning.",
            hint="Give --set NAME with --version, and leave out the log, its snapshot and options of one log.",
        )
    return named


@dataclass(frozen=True, slots=True)
class WholeSet:
    """One command on a set. named: its name."""

    terminal: Terminal
    pipeline: Pipeline
    named: str

    def restore(self, run: str, version: int | None, takeover: bool, mode: RestoreMode, dry_run: bool) -> int:
        """Stages the rows of an earlier version for all logs; with `dry_run` only prints what that would do."""
        from tidefold.cli.spark_submit import run_step
        from tidefold.operations.restore.restore import RestorePlanDetails
        from tidefold.operations.sets.read import find_set
        from tidefold.operations.sets.restore import RestoreSet, explain_set, restore_set
        from tidefold.spark.steps import MaterializeStep

        if version is None:
            hint = f"`tidefold sets {self.named}` lists the versions."
            raise InvalidInputError("SET_VERSION_MISSING", "The restore of a set needs --version.", hint=hint)
        request = RestoreSet(run, self.named, version, takeover, mode, getpass.getuser())
        if dry_run:
            outcomes = explain_set(self.pipeline, request)
            code = print_outcomes(self.terminal, "restore", outcomes)
            for one in outcomes:
                if isinstance(one.details, RestorePlanDetails):
                    for line in plan_lines(one.details):
                        self.terminal.line(f"  {one.log}: {line}")
            return code
        step, logs = MaterializeStep(request), find_set(self.pipeline, self.named).logs
        outcomes = restore_set(self.pipeline, request, lambda logs: run_step(self.terminal, self.pipeline, step, logs))
        after = f"tidefold quality {' '.join(logs)}, then tidefold confirm {logs[0]}, which publishes the whole set"
        return print_restored(self.terminal, "restore", outcomes, after=after)

    def export(self, version: int | None, address: str) -> int:
        """Writes the tables of a version as separate Delta tables."""
        from tidefold.operations.sets.restore import export_set, find_earlier_version

        earlier = find_earlier_version(self.pipeline, self.named, version)
        outcomes = export_set(self.pipeline, earlier, address, partial(make_runner, self.terminal))
        return print_restored(self.terminal, "restore", outcomes)

    def drill(self, version: int | None, scratch: str | None) -> int:
        """Tests whether all tables of a version can be restored."""
        from tidefold.operations.restore.export import Trial
        from tidefold.operations.sets.checks import drill_set
        from tidefold.operations.sets.restore import find_earlier_version

        def make_trial(log: str) -> Trial:
            return Trial(scratch, make_runner(self.terminal, log))

        earlier = find_earlier_version(self.pipeline, self.named, version)
        outcomes = drill_set(self.pipeline, self.named, earlier, make_trial)
        return print_restored(self.terminal, "drill", outcomes)
