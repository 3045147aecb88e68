"""Commands that decide what is kept: subsume, truncate, clean-local, clean, tag, untag, drop. They start no JVM.

Commands about who needs more of a log than retention keeps: hold, release, consumer. They start no JVM.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import DryRun, Log, Logs
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.errors import InvalidInputError
from tidefold.operations.outcome import Outcome, Status, for_each_log

TagName = Annotated[str, typer.Argument(help="Name of the tag.", metavar="TAG")]


def subsume(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Retire completed snapshots beyond `retention.snapshots` and delete the files only they need.

    Tagged snapshots stay. With `retention.snapshots: all` nothing is retired. Starts no Spark.

    Example: tidefold subsume --dry-run

    Next: tidefold truncate
    """
    from tidefold.operations.retention.subsume import subsume as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return _print(terminal, "subsume", outcomes)


def truncate(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Truncate the log behind the kept snapshots and delete segments that nothing needs.

    Prints each bound and which one is the tightest. The log keeps what a kept snapshot, a tail, an open attempt, a
    hold, a consumer or replay needs. Old ledger versions are deleted too. Starts no Spark.

    Example: tidefold truncate accounts --dry-run

    Next: tidefold status
    """
    from tidefold.operations.retention.truncate import truncate as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return _print(terminal, "truncate", outcomes)


def clean_local(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete local copies except that of each log's newest completed snapshot.

    The copy of a snapshot that is being judged stays too. Deleted are copies of older and aborted snapshots,
    remains of dead writers, and copies of folded segments. Only files below this pipeline's folder in `local.path`
    or `local.paths` are touched, never the store. A file that cannot be deleted is a warning. Starts no Spark.

    Example: tidefold clean-local --dry-run

    Next: tidefold status
    """
    from tidefold.operations.local_copies.retain import retain_local

    pipeline = terminal.pipeline()
    return _print(terminal, "clean-local", retain_local(pipeline, choose_logs(pipeline, logs), dry_run))


def clean(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete what dead runs left behind: files of unfinished ingests and of aborted attempts.

    A run announces its files before it writes them. clean ends unfinished runs: each log commits the run's results
    or rejects them for good. A run that reported no results is left alone for an hour. Then files that no log needs
    are deleted. Files that a log names are never touched. Starts no Spark.

    Example: tidefold clean --dry-run

    Next: tidefold ingest takes anew what was refused
    """
    from tidefold.operations.retention.clean import clean as act

    pipeline = terminal.pipeline()
    return _print(terminal, "clean", act(pipeline, choose_logs(pipeline, logs), dry_run))


def tag(terminal: Terminal, log: Log, snapshot: Annotated[int, typer.Argument(min=1)], name: TagName) -> int:
    """Name a completed snapshot, so that it is kept as long as the tag exists.

    Example: tidefold tag accounts 12 before-migration

    Next: tidefold untag LOG TAG frees it
    """
    from tidefold.operations.retention.refs import tag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "tag", [act(pipeline, pipeline.log(log).id, name, snapshot)])


def untag(terminal: Terminal, log: Log, name: TagName) -> int:
    """Remove a tag; retention may then delete the snapshot.

    Example: tidefold untag accounts before-migration

    Next: tidefold subsume LOG --dry-run
    """
    from tidefold.operations.retention.refs import untag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "untag", [act(pipeline, pipeline.log(log).id, name)])


def drop(
    terminal: Terminal,
    log: Log,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only the plan is printed.")] = False,
) -> int:
    """Delete a log and everything only it needs: table, snapshots, segments, reports, quarantine, ledger.

    Landed files stay. The log need not be configured any more. This cannot be undone. Starts no Spark.

    Example: tidefold drop accounts --yes

    Next: tidefold ingest LOG begins it anew
    """
    from tidefold.operations.retention.drop_log import drop as act

    return _print(terminal, "drop", [act(terminal.pipeline(), log, plan=not yes)])


def _print(terminal: Terminal, verb: str, outcomes: list[Outcome]) -> int:
    """The outcomes, and below each what keeps the log and the files that a run without --dry-run deletes."""
    from tidefold.operations.retention.details import bounds_of, paths_of

    code = print_outcomes(terminal, verb, outcomes)
    for outcome in outcomes:
        for bound in bounds_of(outcome):
            terminal.line(f"  {outcome.log}: {bound.name} keeps the log after {bound.sqn}: {bound.why}")
        for path in paths_of(outcome) if outcome.status is Status.PLANNED else ():
            terminal.line(f"  {outcome.log}: {path}")
    return code


HoldName = Annotated[str, typer.Argument(help="Name of the hold.", metavar="NAME")]
ConsumerName = Annotated[str, typer.Argument(help="Name of the consumer.", metavar="NAME")]
HeldId = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
Reason = Annotated[str, typer.Option("--reason", help="The reason, shown by status and truncate.", show_default=False)]
At = Annotated[
    int | None,
    typer.Option("--at", help="The last change set (sqn) that the consumer has read.", min=0, show_default=False),
]
Remove = Annotated[bool, typer.Option("--remove", help="Remove the consumer.")]


def hold(terminal: Terminal, log: Log, name: HoldName, snapshot: HeldId, reason: Reason) -> int:
    """Keep a completed snapshot and the log behind it, until release.

    A tag keeps only the snapshot. A hold also keeps every change set after it, so that the log can be replayed onto
    it; truncate names the hold. Refused for a retired snapshot, and if the log behind it is truncated. Starts no
    Spark.

    Example: tidefold hold accounts audit 12 --reason "audit until May"

    Next: tidefold release LOG NAME ends it
    """
    from tidefold.operations.retention.refs import hold as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "hold", [act(pipeline, pipeline.log(log).id, name, snapshot, reason)])


def release(terminal: Terminal, log: Log, name: HoldName) -> int:
    """End a hold; retention may then delete the snapshot and the log behind it.

    Example: tidefold release accounts audit

    Next: tidefold subsume LOG --dry-run, tidefold truncate LOG --dry-run
    """
    from tidefold.operations.retention.refs import release as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "release", [act(pipeline, pipeline.log(log).id, name)])


def consumer(terminal: Terminal, log: Log, name: ConsumerName, at: At = None, remove: Remove = False) -> int:
    """Register the position of an external consumer of the log: the change sets after it are kept.

    Call it again after reading on; the log may then be truncated up to the new position. Remove consumers that
    stopped, or the log grows. Refused for positions before the start or after the end of the log. Starts no Spark.

    Example: tidefold consumer accounts search-index --at 120

    Next: tidefold consumer LOG NAME --remove forgets it
    """
    from tidefold.operations.retention.refs import register, unregister

    if (at is None) != remove:
        raise InvalidInputError(
            "CONSUMER_OPTIONS", "A consumer needs either --at or --remove.", hint="Give one of them."
        )
    pipeline = terminal.pipeline()
    known = pipeline.log(log).id
    outcome = unregister(pipeline, known, name) if at is None else register(pipeline, known, name, at)
    return print_outcomes(terminal, "consumer", [outcome])
