"""Commands that fold landed changes into tables: ingest, materialize, quality, and run for all of it.

Each first asks the ledgers whether there is anything to do, and starts Spark only then.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidefold.cli.options import KindOfSnapshot, Logs, RunId, Takeover, TakeoverAfter
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.errors import InvalidInputError

if TYPE_CHECKING:
    from tidefold.operations.outcome import Outcome

_RUN = re.compile(r"[\w./:+-]{1,200}")


def ingest(terminal: Terminal, logs: Logs = None) -> int:
    """Ingest new landed files into the changelog.

    Each partition is ingested strictly in offset order. Records that cannot be used are quarantined, with file and
    line. The newest file may still be incomplete: its rest waits. Without new files: no Spark, no new file.

    Example: tidefold ingest accounts

    Next: tidefold materialize
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.spark.steps import IngestStep

    pipeline = terminal.pipeline()
    outcomes = run_step(terminal, pipeline, IngestStep(), choose_logs(pipeline, logs))
    return print_outcomes(terminal, "ingest", outcomes, after=f"tidefold materialize{_list_logs(logs)}")


def materialize(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
) -> int:
    """Fold new changes into a snapshot of each log, and stage it: no reader sees it yet.

    One Spark job serves all logs. A new number of buckets and the age limit of rows take effect in a full snapshot;
    --kind full makes one even without new changes, if it would differ from the last one. An open attempt of another
    run blocks this one. --takeover supersedes that attempt; --takeover-after does so only if the attempt makes no
    progress (a living job reports progress every 30 seconds). With nothing to fold: no Spark, no new file.

    Example: tidefold materialize accounts tellers

    Next: tidefold quality
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.cli.takeover import find_takeovers
    from tidefold.operations.snapshot.request import Fold
    from tidefold.spark.steps import MaterializeStep

    request = Fold(run_id(run), takeover, kind)
    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)
    step = MaterializeStep(find_takeovers(terminal, pipeline, chosen, request, takeover_after))
    outcomes = run_step(terminal, pipeline, step, chosen)
    return print_outcomes(terminal, "materialize", outcomes, after=f"tidefold quality{_list_logs(logs)}")


def quality(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Judge the staged snapshots: all rows of exactly the staged files.

    Checks that the key is unique and not null, compares the row count with the last snapshot, and runs the log's
    suite file. Stores the verdict with a report. Exit code 3 if a gate failed.

    Example: tidefold quality accounts

    Next: tidefold confirm LOG, or tidefold report LOG when it failed
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.spark.steps import QualityStep

    pipeline = terminal.pipeline()
    step = QualityStep(None if run is None else run_id(run))
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    _note_costs(terminal, outcomes)
    return print_outcomes(terminal, "quality", outcomes, after="tidefold confirm LOG")


def audit(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Judge the newest completed snapshots again, with today's suites.

    A report for schedules: it changes no verdict, snapshot or table. Ages (`freshness`) are counted to now. The
    report is stored beside the verdict's; the same --run again returns the same result. Exit code 3 if one failed.

    Example: tidefold audit accounts

    Next: open the report it names (--format json: facts.report)
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.quality.judge import JudgementDetails
    from tidefold.spark.steps import AuditStep

    pipeline = terminal.pipeline()
    step = AuditStep(None if run is None else run_id(run))
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    _note_costs(terminal, outcomes)
    for outcome in outcomes:
        if isinstance(outcome.details, JudgementDetails):
            terminal.note(f"report: {outcome.details.report}")
    return print_outcomes(terminal, "audit", outcomes)


def _note_costs(terminal: Terminal, outcomes: Iterable[Outcome]) -> None:
    """One line a log: what its checks cost."""
    from tidefold.operations.quality.judge import JudgementDetails

    for outcome in outcomes:
        found = outcome.details
        if isinstance(found, JudgementDetails):
            over = f"{found.rows:,} rows, {found.bytes / 1e6:,.1f} MB of files"
            how = f"{found.seconds:.1f} s, {found.jobs} Spark jobs"
            terminal.note(f"{outcome.log}: {found.checks} checks over {over}: {how}")


def run(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
) -> int:
    """Run the whole cycle: ingest, materialize, quality, and confirm what passed.

    A snapshot that failed is aborted: the table is unchanged, and the next run folds the same changes again. A
    failing log does not hold up the others. Exit code 3 if a gate failed.

    Example: tidefold run accounts

    Next: tidefold status
    """
    from tidefold.cli.commands.full_run import open_run, print_next_steps, print_run
    from tidefold.operations.snapshot.request import Fold

    pipeline = terminal.pipeline()
    request = Fold(run_id(run), takeover, kind)
    with open_run(terminal, pipeline, request, takeover_after) as whole:
        whole.run(choose_logs(pipeline, logs))
    print_next_steps(terminal, whole)
    return print_run(terminal, whole, "run")


def run_id(given: str | None) -> str:
    """The id that was given, or a new one. Raises InvalidInputError."""
    if given is None:
        return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    if not _RUN.fullmatch(given):
        raise InvalidInputError(
            "RUN_INVALID",
            "The run id is not valid.",
            hint="Use up to 200 letters, digits and the characters _ . / : + -.",
        )
    return given


def _list_logs(logs: Iterable[str] | None) -> str:
    return "".join(f" {log}" for log in logs or ())
