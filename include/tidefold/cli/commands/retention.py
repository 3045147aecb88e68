"""The commands about what is kept: `subsume`, `truncate`, `clean`, tags, holds, consumers and `drop`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.output.outcomes import print_outcomes, print_removals
from tidefold.cli.terminal import DryRun, Log, Logs, Terminal, choose_logs
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import for_each_log


def subsume(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Retire completed snapshots beyond `retention.snapshots`, and delete the files that only they need.

    Tagged and held snapshots stay. With `retention.snapshots: all` nothing is retired. Starts no Spark.

    Example: tidefold subsume --dry-run

    Next: tidefold truncate
    """
    from tidefold.operations.retention.subsume import subsume as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return print_removals(terminal, "subsume", outcomes)


def truncate(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete the part of the log that no snapshot needs, and the segments that nothing needs.

    Prints each reason why a part of the log is kept, and which one keeps the most. The log keeps the change sets that a
    retained snapshot, a tail, an open attempt, a hold, a consumer or a replay needs. The command also deletes old
    ledger versions. Starts no Spark.

    Example: tidefold truncate accounts --dry-run

    Next: tidefold status
    """
    from tidefold.operations.retention.truncate import truncate as act

    pipeline = terminal.pipeline()
    outcomes = for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, dry_run))
    return print_removals(terminal, "truncate", outcomes)


def clean_local(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete all local copies except the copy of each log's newest completed snapshot.

    The copy of a snapshot that is being judged stays too. The command deletes copies of older and aborted snapshots,
    files of dead writers, and copies of folded segments. It touches only files below this pipeline's folder in
    `local.path` or `local.paths`, never the store. If it cannot delete a file, it reports a warning. Starts no Spark.

    On a Spark cluster each host has its own copies. There the command deletes those of this machine. It lists the
    other hosts whose copies are older than the newest ones.

    Example: tidefold clean-local --dry-run

    Next: tidefold status
    """
    from tidefold.operations.local_copies.manage import retain_local

    pipeline = terminal.pipeline()
    return print_removals(terminal, "clean-local", retain_local(pipeline, choose_logs(pipeline, logs), dry_run))


def clean(terminal: Terminal, logs: Logs = None, dry_run: DryRun = False) -> int:
    """Delete the files that dead runs left behind: unfinished ingests and aborted attempts.

    An ingest announces its files before it writes them. clean ends unfinished ingests: it commits their results to the
    logs, or rejects them for good. It leaves an ingest without results alone for an hour. Then clean deletes the files
    that no log needs. It never touches files that a log names. Starts no Spark.

    Example: tidefold clean --dry-run

    Next: tidefold ingest, which ingests the rejected files again
    """
    from tidefold.operations.retention.clean import clean as act

    pipeline = terminal.pipeline()
    return print_removals(terminal, "clean", act(pipeline, choose_logs(pipeline, logs), dry_run))


TaggedSnapshot = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
TagName = Annotated[str, typer.Argument(help="Name of the tag.", metavar="TAG")]


def tag(terminal: Terminal, log: Log, snapshot: TaggedSnapshot, name: TagName) -> int:
    """Give a completed snapshot a name, so that it is kept as long as the tag exists.

    Example: tidefold tag accounts 12 before-migration

    Next: tidefold untag LOG TAG, which removes the tag
    """
    from tidefold.operations.retention.references import tag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "tag", [act(pipeline, pipeline.log(log).id, name, snapshot)])


def untag(terminal: Terminal, log: Log, name: TagName) -> int:
    """Remove a tag. Retention may then delete the snapshot.

    Example: tidefold untag accounts before-migration

    Next: tidefold subsume LOG --dry-run
    """
    from tidefold.operations.retention.references import untag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "untag", [act(pipeline, pipeline.log(log).id, name)])


HoldName = Annotated[str, typer.Argument(help="Name of the hold.", metavar="NAME")]
HeldId = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
Reason = Annotated[str, typer.Option("--reason", help="The reason. status and truncate show it.", show_default=False)]


def hold(terminal: Terminal, log: Log, name: HoldName, snapshot: HeldId, reason: Reason) -> int:
    """Keep a completed snapshot and all change sets after it, until you call release.

    A tag keeps only the snapshot. With a hold, tidefold can also replay the log onto the snapshot. truncate names the
    holds. The command is refused for a retired snapshot, and if change sets after the snapshot were truncated. Starts
    no Spark.

    Example: tidefold hold accounts audit 12 --reason "audit until May"

    Next: tidefold release LOG NAME, which ends the hold
    """
    from tidefold.operations.retention.references import hold as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "hold", [act(pipeline, pipeline.log(log).id, name, snapshot, reason)])


def release(terminal: Terminal, log: Log, name: HoldName) -> int:
    """End a hold. Retention may then delete the snapshot and the change sets after it.

    Example: tidefold release accounts audit

    Next: tidefold subsume LOG --dry-run, tidefold truncate LOG --dry-run
    """
    from tidefold.operations.retention.references import release as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "release", [act(pipeline, pipeline.log(log).id, name)])


def drop(
    terminal: Terminal,
    log: Log,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only the plan is printed.")] = False,
) -> int:
    """Delete a log and everything that only it needs: table, snapshots, segments, reports, quarantine, ledger.

    Landed files stay. The log need not be configured any more. This cannot be undone. Starts no Spark.

    Example: tidefold drop accounts --yes

    Next: tidefold ingest LOG starts the log again
    """
    from tidefold.operations.retention.clean import drop as act

    after = "" if yes else f"tidefold drop {log} --yes"
    return print_removals(terminal, "drop", [act(terminal.pipeline(), log, plan=not yes)], after=after)


ConsumerName = Annotated[str, typer.Argument(help="Name of the consumer.", metavar="NAME")]
ReadUpTo = Annotated[
    int | None,
    typer.Option("--at", help="The last change set (sqn) that the consumer has read.", min=0, show_default=False),
]
Remove = Annotated[bool, typer.Option("--remove", help="Remove the consumer.")]


def consumer(terminal: Terminal, log: Log, name: ConsumerName, at: ReadUpTo = None, remove: Remove = False) -> int:
    """Register the position of an external consumer, so that the log keeps the change sets after it.

    Call it again when the consumer has read further: truncate may then delete change sets up to the new position.
    Remove consumers that no longer read, or the log grows. A position before the start or after the end of the log is
    refused. Starts no Spark.

    Example: tidefold consumer accounts search-index --at 120

    Next: tidefold consumer LOG NAME --remove, which removes the consumer
    """
    from tidefold.operations.retention.references import register, unregister

    if (at is None) != remove:
        raise InvalidInputError("CONSUMER_OPTIONS", "A consumer needs either --at or --remove.")
    pipeline = terminal.pipeline()
    log_id = pipeline.log(log).id
    outcome = unregister(pipeline, log_id, name) if at is None else register(pipeline, log_id, name, at)
    return print_outcomes(terminal, "consumer", [outcome])
