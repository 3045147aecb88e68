"""Commands that decide what is kept: subsume, truncate, local-retention, clean, tag, untag, drop. They start no JVM.

Commands about who needs more of a log than retention keeps: hold, release, reader. They start no JVM.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.options import Log, Logs, Plan
from tidefold.cli.output.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, chosen_logs
from tidefold.errors import InvalidInputError
from tidefold.operations.outcome import Outcome, each_log

TagName = Annotated[str, typer.Argument(help="Name of the tag.", metavar="TAG")]


def subsume(terminal: Terminal, logs: Logs = None, plan: Plan = False) -> int:
    """Retire completed snapshots beyond `retention.snapshots` and remove the files that only they need.

    Tagged snapshots stay. With `retention.snapshots: all` nothing is retired. Starts no Spark.

    Example: tidefold subsume --plan

    Next: tidefold truncate
    """
    from tidefold.operations.retention.subsume import subsume as act

    pipeline = terminal.pipeline()
    outcomes = each_log(chosen_logs(pipeline, logs), lambda log: act(pipeline, log, plan))
    return _print(terminal, "subsume", outcomes)


def truncate(terminal: Terminal, logs: Logs = None, plan: Plan = False) -> int:
    """Cut the log behind the kept snapshots and remove segments that nothing needs any more.

    Prints each bound and which one holds. The log is never cut past what a kept snapshot, a tail-only one, an open
    attempt, a hold, a reader or replay needs. Old ledger versions go too. Starts no Spark.

    Example: tidefold truncate accounts --plan

    Next: tidefold status
    """
    from tidefold.operations.retention.truncate import truncate as act

    pipeline = terminal.pipeline()
    outcomes = each_log(chosen_logs(pipeline, logs), lambda log: act(pipeline, log, plan))
    return _print(terminal, "truncate", outcomes)


def local_retention(terminal: Terminal, logs: Logs = None, plan: Plan = False) -> int:
    """Remove local copies that are of no more use: all but that of each log's newest completed snapshot.

    A copy of a snapshot that is being judged stays too. Copies of older and aborted snapshots go, what dead writers
    left, and copies of segments that were folded. Only files below this pipeline's folder in `local.path` or
    `local.paths` are touched, never the store's. What cannot be removed is a warning. Starts no Spark.

    Example: tidefold local-retention --plan

    Next: tidefold status
    """
    from tidefold.operations.local_copies.retain import retain_local

    pipeline = terminal.pipeline()
    return _print(terminal, "local-retention", retain_local(pipeline, chosen_logs(pipeline, logs), plan))


def clean(terminal: Terminal, logs: Logs = None, plan: Plan = False) -> int:
    """Remove what died runs left behind: files of ingests that never ended, and of aborted attempts.

    A run announces what it writes before it writes. What one announced and did not end is ended for it, whatever logs
    it wrote for: each log takes what the run had brought it, or refuses it for good; a run that wrote and said nothing
    is left alone for an hour. Then the files that no log needs go. What a log names is not touched. Starts no Spark.

    Example: tidefold clean --plan

    Next: tidefold ingest takes anew what was refused
    """
    from tidefold.operations.retention.clean import clean as act

    pipeline = terminal.pipeline()
    return _print(terminal, "clean", act(pipeline, chosen_logs(pipeline, logs), plan))


def tag(terminal: Terminal, log: Log, snapshot: Annotated[int, typer.Argument(min=1)], name: TagName) -> int:
    """Name a completed snapshot, so that it is kept for as long as the name stands.

    Example: tidefold tag accounts 12 before-migration

    Next: tidefold untag LOG TAG frees it
    """
    from tidefold.operations.retention.refs import tag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "tag", [act(pipeline, pipeline.log(log).id, name, snapshot)])


def untag(terminal: Terminal, log: Log, name: TagName) -> int:
    """Free a tag; the snapshot then goes when retention says so.

    Example: tidefold untag accounts before-migration

    Next: tidefold subsume LOG --plan
    """
    from tidefold.operations.retention.refs import untag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "untag", [act(pipeline, pipeline.log(log).id, name)])


def drop(
    terminal: Terminal,
    log: Log,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete; without it only the plan is printed.")] = False,
) -> int:
    """Delete a log with everything that only it needs: table, snapshots, segments, reports, quarantine, ledger.

    Landed files stay. The log need not be configured any more. There is no undo. Starts no Spark.

    Example: tidefold drop accounts --yes

    Next: tidefold ingest LOG begins it anew
    """
    from tidefold.operations.retention.drop_log import drop as act

    return _print(terminal, "drop", [act(terminal.pipeline(), log, plan=not yes)])


def _print(terminal: Terminal, verb: str, outcomes: list[Outcome]) -> int:
    """The outcomes, and below each what keeps the log and the files that go or went."""
    code = print_outcomes(terminal, verb, outcomes)
    for outcome in outcomes:
        for bound in outcome.facts.get("bounds", ()):
            terminal.line(f"  {outcome.log}: {bound['name']} keeps the log after {bound['sqn']}: {bound['why']}")
        for path in outcome.facts.get("paths", ()) if outcome.result == "planned" else ():
            terminal.line(f"  {outcome.log}: {path}")
    return code


HoldName = Annotated[str, typer.Argument(help="Name of the hold.", metavar="NAME")]
ReaderName = Annotated[str, typer.Argument(help="Name of the reader.", metavar="NAME")]
HeldId = Annotated[int, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
Why = Annotated[str, typer.Option("--why", help="The reason, shown by status and truncate.", show_default=False)]
At = Annotated[
    int | None, typer.Option("--at", help="The last change set (sqn) that it has read.", min=0, show_default=False)
]
Remove = Annotated[bool, typer.Option("--remove", help="Forget the reader.")]


def hold(terminal: Terminal, log: Log, name: HoldName, snapshot: HeldId, why: Why) -> int:
    """Keep a completed snapshot and the log behind it, until release.

    A tag keeps only the snapshot; a hold also keeps every change set after it, so that the log can be replayed onto
    it, and truncate names the hold. Refused for a retired snapshot, and when the log behind it is cut. Starts no Spark.

    Example: tidefold hold accounts audit 12 --why "audit until May"

    Next: tidefold release LOG NAME ends it
    """
    from tidefold.operations.retention.refs import hold as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "hold", [act(pipeline, pipeline.log(log).id, name, snapshot, why)])


def release(terminal: Terminal, log: Log, name: HoldName) -> int:
    """End a hold; the snapshot and the log behind it then go when retention says so.

    Example: tidefold release accounts audit

    Next: tidefold subsume LOG --plan, tidefold truncate LOG --plan
    """
    from tidefold.operations.retention.refs import release as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "release", [act(pipeline, pipeline.log(log).id, name)])


def reader(terminal: Terminal, log: Log, name: ReaderName, at: At = None, remove: Remove = False) -> int:
    """Note how far somebody who reads the log by himself has read it: what follows is kept for him.

    Call it again whenever he has read on; the log is then cut up to there, as far as he is concerned. Who stops
    reading must be removed, else the log grows. Refused before what was cut and beyond the end. Starts no Spark.

    Example: tidefold reader accounts search-index --at 120

    Next: tidefold reader LOG NAME --remove forgets it
    """
    from tidefold.operations.retention.refs import register, unregister

    if (at is None) != remove:
        raise InvalidInputError("READER_OPTIONS", "A reader needs either --at or --remove.", hint="Give one of them.")
    pipeline = terminal.pipeline()
    known = pipeline.log(log).id
    outcome = unregister(pipeline, known, name) if at is None else register(pipeline, known, name, at)
    return print_outcomes(terminal, "reader", [outcome])
