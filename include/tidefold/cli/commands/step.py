"""One step of a run: ingest, materialize, quality, confirm, abort.

For a look at a snapshot before its readers see it. ingest reads landed changes into the changelog. materialize folds
them into a staged snapshot. quality judges it. Then confirm publishes it, or abort undoes it. `tidefold run` does all
of these.

Example: tidefold step ingest, then tidefold step materialize, then tidefold step quality
"""

from __future__ import annotations

import getpass
from functools import partial
from typing import Annotated

import typer

from tidefold.cli.output.outcomes import act_on_log, list_logs, print_costs, print_outcomes
from tidefold.cli.terminal import (
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

Own = Annotated[bool, typer.Option("--own", help="Take the logs over: their files come from the configured folders.")]
AcceptGap = Annotated[
    str | None,
    typer.Option(help="Go on without records that a topic no longer has; the reason is kept with your name."),
]
Recount = Annotated[bool, typer.Option("--recount", help="Read all rows: use no counts of the snapshot before.")]
Again = Annotated[bool, typer.Option("--again", help="Judge the newest completed snapshots, and change no verdict.")]
Reconcile = Annotated[bool, typer.Option("--reconcile", help="Replace what other programs committed to the table.")]


def run(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
    reconcile: Reconcile = False,
) -> int:
    """Run the whole cycle: ingest, materialize, quality, confirm.

    It publishes what passed. A snapshot that fails its gate is aborted. The table stays unchanged, and the next run
    folds the same changes again. An error of one log does not stop the others. Exit code 3 if a gate failed. Logs in a
    set are published together, or not at all; naming one of them runs all. --kind full --reconcile publishes the
    newest rows again, also without news, and replaces what another program committed to the table.

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
        whole.reconcile = reconcile
        whole.run(chosen)
    try:
        count_failures(pipeline, whole.id, chosen, whole.outcomes)
    except TidefoldError as error:
        if not any(o.message == str(error) for outcomes in whole.outcomes.values() for o in outcomes):
            terminal.note(f"the alarms of the logs do not count this run: {error}")
    for published in whole.outcomes.get("confirm", ()) if terminal.format is Format.TEXT else ():
        if isinstance(published.details, PublicationDetails) and published.details.table_version == 0:
            terminal.line(f"the first rows of {published.log}")
            read(terminal, published.log, limit=3)
    print_next_steps(terminal, whole)
    return print_run(terminal, whole)


def ingest(terminal: Terminal, logs: Logs = None, own: Own = False, accept_gap: AcceptGap = None) -> int:
    """Ingest new landed files into the changelog.

    tidefold ingests each partition strictly in offset order. It quarantines records that it cannot use, with file and
    line. If the end of the newest file is incomplete, the next run ingests the rest. Without new files, the command
    starts no Spark and writes no file. A log accepts files of the landing folder that it began with, also after the
    folder moved. Another one is refused, until --own takes the log over.

    Example: tidefold step ingest accounts

    Next: tidefold step materialize
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.ingest.land_topic import accept_gaps
    from tidefold.operations.ingest.owner import take_over
    from tidefold.spark.steps import IngestStep

    pipeline = terminal.pipeline()
    chosen = choose_logs(pipeline, logs)
    for log in chosen if own else ():
        take_over(pipeline, log)
    if accept_gap is not None:
        accept_gaps(pipeline, chosen, getpass.getuser(), accept_gap)
    outcomes = run_step(terminal, pipeline, IngestStep(), chosen)
    return print_outcomes(terminal, outcomes, after=f"tidefold step materialize{list_logs(logs)}")


def materialize(
    terminal: Terminal,
    logs: Logs = None,
    run: RunId = None,
    takeover: Takeover = False,
    takeover_after: TakeoverAfter = None,
    kind: KindOfSnapshot = None,
) -> int:
    """Fold new changes into a staged snapshot of each log. Readers do not see it yet.

    One job folds all logs: in the command itself up to `spark.above` bytes, else on Spark. A new number of buckets and
    the age limit of rows take effect in a full snapshot. --kind full makes a full snapshot even without new changes. An
    open attempt of another run blocks this command. --takeover supersedes that attempt. --takeover-after supersedes it
    only if it makes no progress (a running job reports progress every 30 seconds). With nothing to fold, the command
    starts no Spark and writes no file.

    Example: tidefold step materialize accounts tellers

    Next: tidefold step quality
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
    return print_outcomes(terminal, outcomes, after=f"tidefold step quality{list_logs(logs)}")


def quality(
    terminal: Terminal, logs: Logs = None, run: RunId = None, recount: Recount = False, again: Again = False
) -> int:
    """Judge the staged snapshots: run the quality checks on all rows.

    Checks that the key is unique and not null, compares the row count with the last snapshot, and runs the log's suite
    file. Stores the verdict with a report. Rows whose counts the last verdict stored are not read again. Exit code 3 if
    a gate failed.

    --again judges the newest completed snapshots with today's suites, for a schedule. It changes no verdict, snapshot
    or table, and keeps its report beside the one of the verdict. `freshness` counts ages up to now. A call with the
    same --run gives the same result.

    Example: tidefold step quality accounts

    Next: tidefold step confirm LOG, or tidefold snapshot report LOG if it failed
    """
    from tidefold.cli.spark_submit import run_step
    from tidefold.operations.ground.outcome import Status
    from tidefold.operations.quality.judge import JudgementDetails
    from tidefold.spark.steps import AuditStep, QualityStep

    pipeline = terminal.pipeline()
    step = (AuditStep if again else QualityStep)(None if run is None else run_id(run), recount)
    outcomes = run_step(terminal, pipeline, step, choose_logs(pipeline, logs))
    print_costs(terminal, outcomes)
    code = print_outcomes(terminal, outcomes)
    if again:
        for outcome in outcomes:
            if isinstance(outcome.details, JudgementDetails):
                terminal.note(f"report: {outcome.details.report}")
        return code
    failed = [one.log for one in outcomes if one.status is Status.FAILED]
    passed = [one.log for one in outcomes if one.status is Status.PASSED]
    if failed:
        override = f"tidefold step confirm {failed[0]} --override-by NAME --reason REASON"
        terminal.note(
            f"next: `tidefold snapshot report {failed[0]}` shows what failed. Then `tidefold step abort {failed[0]}`, "
            f"or to publish it as it is: `{override}`"
        )
    if passed:
        more = f" (and {len(passed) - 1:,} more)" if len(passed) > 1 else ""
        terminal.note(f"next: tidefold step confirm {passed[0]}{more}")
    return code


def confirm(
    terminal: Terminal,
    log: Log,
    snapshot: SnapshotId = None,
    override_by: Annotated[
        str | None,
        typer.Option("--override-by", help="Your name, to confirm a snapshot that failed its gate."),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason of the override.")] = None,
    reconcile: Reconcile = False,
) -> int:
    """Complete a judged snapshot and publish it to the readers of the table.

    Needs a passing verdict for exactly the staged files. --override-by with --reason publishes a snapshot that failed
    its gate; the ledger keeps the name and the reason for ever. A second confirm changes nothing, but finishes an
    interrupted publication. A log in a set is confirmed with all logs of its set, or not at all. If another program
    committed to the table (OPTIMIZE, UPDATE), confirm is refused. Undo that commit, or replace it with --reconcile.
    Starts no Spark.

    Example: tidefold step confirm accounts

    Next: read the table with any Delta reader; tidefold status
    """
    from tidefold.operations.sets.confirm import confirm_log
    from tidefold.operations.snapshot.confirm import Confirmation, Override

    override = Override(override_by or "", reason or "") if override_by or reason else None
    return act_on_log(terminal, log, confirm_log, Confirmation(snapshot, None, override, reconcile))


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

    Example: tidefold step abort accounts --reason "wrong suite"

    Next: tidefold run LOG
    """
    from tidefold.operations.snapshot.abort import abort as act

    after = "" if dry_run else f"tidefold run {log}"
    return act_on_log(terminal, log, partial(act, plan=dry_run), reason, snapshot, after=after)
