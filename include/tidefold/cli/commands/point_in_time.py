"""`tidefold as-of`: makes, judges and keeps a snapshot of each log as of an instant, in one command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidefold.cli.commands.pipeline import run_id
from tidefold.cli.options import At, Logs, Plan, RunId, Takeover
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, chosen_logs

if TYPE_CHECKING:
    from tidefold.operations.pipeline import Pipeline
    from tidefold.operations.snapshot.request import Asking


def as_of(
    terminal: Terminal, at: At, logs: Logs = None, run: RunId = None, takeover: Takeover = False, plan: Plan = False
) -> int:
    """Make a full snapshot of the rows as of an instant: of all that was committed at the source before it.

    When a change came here is no matter, only when its source says that it was committed. The snapshot is judged, then
    kept by a tag (as-of-2026-11-05; untag and subsume let it go). It is never published, nothing is built on it, and
    the table, the log and the run that folds new changes go on as if it were not there. Where one is kept for that
    instant, nothing is done. Refused, with the oldest possible instant, once the log was cut beyond it. --plan changes
    nothing: it names the snapshot that it would begin with, and how many changes it would fold onto that.

    Example: tidefold as-of accounts --at 2026-11-05T00:00:00Z

    Next: tidefold read LOG --snapshot ID, tidefold diff LOG, tidefold restore LOG ID --mode skip
    """
    from tidefold.operations.snapshot.point_in_time import instant_of
    from tidefold.operations.snapshot.request import Asking

    asked = Asking(run_id(run), takeover, as_of=instant_of(at))
    pipeline = terminal.pipeline()
    chosen = chosen_logs(pipeline, logs)
    return (_plan if plan else _make)(terminal, pipeline, chosen, asked)


def _plan(terminal: Terminal, pipeline: Pipeline, logs: list[str], asked: Asking) -> int:
    from tidefold.operations.outcome import each_log
    from tidefold.operations.snapshot.point_in_time import plan_as_of

    return print_outcomes(terminal, "as-of", each_log(logs, lambda log: plan_as_of(pipeline, log, asked)))


def _make(terminal: Terminal, pipeline: Pipeline, logs: list[str], asked: Asking) -> int:
    from tidefold.cli.commands.full_run import WholeRun

    run = WholeRun(terminal, pipeline, asked)
    run.fold(logs)
    return run.told("as-of")
