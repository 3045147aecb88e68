"""The commands that make a snapshot, judge it and decide about it, from `ingest` to `confirm`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.output.outcomes import list_logs, print_costs, print_outcomes
from tidefold.cli.terminal import (
    AtInstant,
    DryRun,
    Format,
    KindOfSnapshot,
    Log,
    Logs,
    RunId,
    SnapshotId,
    Takeover,
    TakeoverAfter,
    Terminal,
    add_logs_of_sets,
    choose_logs,
    run_id,
)
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import for_each_log


def run(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
) -> int:
    """Run the whole cycle: ingest, materialize, quality, and confirm what passed.

    A snapshot that fails its gate is aborted. The table stays unchanged, and the next run folds the same changes again.
    An error of one log does not stop the others. Exit code 3 if a gate failed. Logs in a set are published together,
    or not at all; naming one of them runs all.

    Example: tidefold run accounts

    Next: tidefold status
    """
    from tidefold.cli.commands.read import read
    from tidefold.cli.full_run import open_run, print_next_steps, print_run
    from tidefold.operations.ground.snapshot_details import PublicationDetails
    from tidefold.operations.inspect.run_alarms import count_failures
    from tidefold.operations.requests import Fold

    pipeline = terminal.pipeline()
    request = Fold(run_id(run), takeover, kind)
    chosen = add_logs_of_sets(pipeline, choose_logs(pipeline, logs))
    with open_run(terminal, pipeline, request, takeover_after) as whole:
        whole.run(chosen)
    try:
        count_failures(pipeline, whole.id, chosen, whole.outcomes)
    except TidefoldError as error:
        terminal.note(f"the alarms of the logs do not count this run: {error}")
    for published in whole.outcomes.get("confirm", ()) if terminal.format is Format.TEXT else ():
        if isinstance(published.details, PublicationDetails) and published.details.table_version == 0:
            terminal.line(f"the first rows of {published.log}")
            read(terminal, published.log, limit=3)
    print_next_steps(terminal, whole)
    return print_run(terminal, whole, "run")


Own = Annotated[bool, typer.Option("--own", help="Take the logs over: their files come from the configured folders.")]


def ingest(terminal: Terminal, logs: Logs = None, own: Own = False) -> int:
    """Ingest new landed files into the changelog.

    tidefold ingests each partition strictly in offset order. It quarantines records that it cannot use, with file and
    line. If the end of the newest file is incomplete, the next run ingests the rest. Without new files, the command
    starts no Spark and writes no file. A log accepts files of the landing folder that it began with, also after the
    folder moved. Another one is refused, until --own takes the log over.

    Example: tidefold ingest accounts

    Next: tidefold materialize
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.ingest.owner import take_over
    from tidefold.spark.steps import IngestStep

    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)
    for log in chosen if own else ():
        take_over(pipeline, log)
    outcomes = run_step(terminal, pipeline, IngestStep(), chosen)
    return print_outcomes(terminal, "ingest", outcomes, after=f"tidefold materialize{list_logs(logs)}")


def materialize(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
) -> int:
    """Fold new changes into a staged snapshot of each log. Readers do not see it yet.

    One Spark job folds all logs. A new number of buckets and the age limit of rows take effect in a full snapshot.
    --kind full makes a full snapshot even without new changes. An open attempt of another run blocks this command.
    --takeover supersedes that attempt. --takeover-after supersedes it only if it makes no progress (a running job
    reports progress every 30 seconds). With nothing to fold, the command starts no Spark and writes no file.

    Example: tidefold materialize accounts tellers

    Next: tidefold quality
    """
    from tidefold.cli.full_run import find_takeovers
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.requests import Fold
    from tidefold.spark.steps import MaterializeStep

    request = Fold(run_id(run), takeover, kind)
    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)
    step = MaterializeStep(find_takeovers(terminal, pipeline, chosen, request, takeover_after))
    outcomes = run_step(terminal, pipeline, step, chosen)
    return print_outcomes(terminal, "materialize", outcomes, after=f"tidefold quality{list_logs(logs)}")


Recount = Annotated[bool, typer.Option("--recount", help="Read all rows: use no counts of the snapshot before.")]


def quality(terminal: Terminal, logs: Logs = None, run: RunId = None, recount: Recount = False) -> int:
    """Judge the staged snapshots: run the quality checks on all rows of the staged files.

    Checks that the key is unique and not null, compares the row count with the last snapshot, and runs the log's suite
    file. Stores the verdict with a report. Rows whose counts the last verdict stored are not read again. Exit code 3 if
    a gate failed.

    Example: tidefold quality accounts

    Next: tidefold confirm LOG, or tidefold report LOG if it failed
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.ground.outcome import Status
    from tidefold.spark.steps import QualityStep

    pipeline = terminal.pipeline()
    step = QualityStep(None if run is None else run_id(run), recount)
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    print_costs(terminal, outcomes)
    passed = [one.log for one in outcomes if one.status is Status.PASSED]
    code = print_outcomes(terminal, "quality", outcomes)
    failed = [one.log for one in outcomes if one.status is Status.FAILED]
    if failed:
        override = f"tidefold confirm {failed[0]} --override-by NAME --reason REASON"
        terminal.note(
            f"next: `tidefold report {failed[0]}` shows what failed. Then `tidefold abort {failed[0]}`, or to publish "
            f"it as it is: `{override}`"
        )
    if passed:
        more = f" (and {len(passed) - 1:,} more)" if len(passed) > 1 else ""
        terminal.note(f"next: tidefold confirm {passed[0]}{more}")
    return code


def audit(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Judge the newest completed snapshots again, with today's suites.

    Made for a schedule: it changes no verdict, snapshot or table. `freshness` counts ages up to now. Its report is kept
    beside the one of the verdict. A call with the same --run gives the same result. Exit code 3 if a snapshot failed.

    Example: tidefold audit accounts

    Next: open the report that it names (--format json: facts.report)
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.quality.judge import JudgementDetails
    from tidefold.spark.steps import AuditStep

    pipeline = terminal.pipeline()
    step = AuditStep(None if run is None else run_id(run))
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    print_costs(terminal, outcomes)
    for outcome in outcomes:
        if isinstance(outcome.details, JudgementDetails):
            terminal.note(f"report: {outcome.details.report}")
    return print_outcomes(terminal, "audit", outcomes)


def as_of(
    terminal: Terminal,
    at: AtInstant,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    dry_run: DryRun = False,
) -> int:
    """Make a full snapshot of everything that the source had committed before an instant.

    Only the commit time at the source counts, not the time of arrival. The quality gate judges the snapshot. A tag
    (as-of-2026-11-05) keeps it until you run untag and subsume. tidefold never publishes it and never builds another
    snapshot on it, so the table, the log and scheduled runs are not affected. If a snapshot of that instant exists, the
    command does nothing. If the log was truncated after the instant, the command is refused and names the oldest
    possible instant. --dry-run only prints the base snapshot and the number of changes to fold.

    Example: tidefold as-of accounts --at 2026-11-05T00:00:00Z

    Next: tidefold read LOG --snapshot ID, tidefold diff LOG, tidefold restore LOG ID --log-position skip
    """
    from tidefold.cli.full_run import open_run, print_run
    from tidefold.operations.ground.outcome import for_each_log
    from tidefold.operations.snapshot.fold import PointInTime, explain_point_in_time, parse_instant

    request = PointInTime(run_id(run), parse_instant(at), takeover)
    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)
    if dry_run:
        return print_outcomes(
            terminal, "as-of", for_each_log(chosen, lambda log: explain_point_in_time(pipeline, log, request))
        )
    with open_run(terminal, pipeline, request) as whole:
        whole.fold(chosen)
    return print_run(terminal, whole, "as-of")


def confirm(
    terminal: Terminal,
    log: Log,
    snapshot: SnapshotId = None,
    override_by: Annotated[
        str | None,
        typer.Option(
            "--override-by", help="Your name, to confirm a snapshot that failed its gate.", show_default=False
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="The reason of the override.", show_default=False)
    ] = None,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="Replace files that other programs committed to the table.")
    ] = False,
) -> int:
    """Complete a judged snapshot and publish it to the readers of the table.

    Needs a passing verdict for exactly the staged files. --override-by with --reason publishes a snapshot that failed
    its gate; the ledger keeps the name and the reason for ever. A second confirm changes nothing, but finishes an
    interrupted publication. A log in a set is confirmed with all logs of its set, or not at all. If another program
    committed to the table (OPTIMIZE, UPDATE), confirm is refused. Undo that commit, or replace it with --reconcile.
    Starts no Spark.

    Example: tidefold confirm accounts

    Next: read the table with any Delta reader; tidefold status
    """
    from tidefold.operations.sets.confirm import confirm_log
    from tidefold.operations.snapshot.confirm import Confirmation, Override

    pipeline = terminal.pipeline()
    log_id = pipeline.log(log).id
    override = Override(override_by or "", reason or "") if override_by or reason else None
    outcome = confirm_log(pipeline, log_id, Confirmation(snapshot, None, override, reconcile))
    return print_outcomes(terminal, "confirm", [outcome])


def abort(
    terminal: Terminal,
    log: Log,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, shown in the history.")
    ] = "aborted from the command line",
    snapshot: SnapshotId = None,
    dry_run: DryRun = False,
) -> int:
    """Abort an unconfirmed snapshot: delete its files, keep its verdict and the reason.

    The default is the open attempt. The table and its last snapshot are unchanged. No change is lost: the next
    materialize folds them again. Starts no Spark.

    Example: tidefold abort accounts --reason "wrong suite"

    Next: tidefold materialize LOG
    """
    from tidefold.operations.snapshot.abort import abort as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "abort", [act(pipeline, pipeline.log(log).id, reason, snapshot, plan=dry_run)])


def tail(terminal: Terminal, logs: Logs = None, run: RunId = None) -> int:
    """Make a tail-only snapshot: the newest materialized snapshot and the change sets after it.

    The snapshot is complete at once and costs one small file, whatever the size of the table. It has the verdict of the
    snapshot below it. tidefold never publishes it, and retires it together with the snapshot below it, unless a tag or
    a hold keeps it. Without changes after the newest snapshot, the command does nothing. Starts no Spark.

    Example: tidefold tail accounts

    Next: tidefold read LOG --snapshot ID, which reads its rows, or tidefold restore LOG ID --log-position replay
    """
    from tidefold.operations.snapshot.compact_log import take_tail

    run = run_id(run)
    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: take_tail(pipeline, log, run))
    return print_outcomes(terminal, "tail", outcomes, after="tidefold history LOG")


def compact_log(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Merge waiting change sets: keep only the last change of each key.

    Useful if many small change sets wait, or if the same keys change often: the next materialize and read --live then
    read less. Every snapshot and every replay still gives the same rows. tidefold never merges change sets before and
    after the end of a snapshot or the position of a consumer. Refused records and counts stay. Starts no Spark.

    Example: tidefold compact-log accounts --dry-run

    Next: tidefold truncate, which deletes the replaced segments
    """
    from tidefold.operations.snapshot.compact_log import compact_log as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return print_outcomes(terminal, "compact-log", outcomes, after="" if dry_run else "tidefold truncate")
