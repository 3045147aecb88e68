"""Commands that decide what is kept: subsume, truncate, local-retention, clean, tag, untag, drop. They start no JVM."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.arguments import Log, Logs, Plan
from tidefold.cli.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, chosen_logs
from tidefold.operations.outcome import Outcome, each_log

TagName = Annotated[str, typer.Argument(help="Name of the tag.", metavar="TAG")]


def subsume(terminal: Terminal, logs: Logs = None, plan: Plan = False) -> int:
    """Retire completed snapshots beyond `retention.snapshots` and remove the files that only they need.

    Tagged snapshots stay. With `retention.snapshots: all` nothing is retired. Starts no Spark.

    Example: tidefold subsume --plan

    Next: tidefold truncate
    """
    from tidefold.operations.subsume import subsume as act

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
    from tidefold.operations.truncate import truncate as act

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
    from tidefold.operations.retain_local import retain_local

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
    from tidefold.operations.clean import clean as act

    pipeline = terminal.pipeline()
    return _print(terminal, "clean", act(pipeline, chosen_logs(pipeline, logs), plan))


def tag(terminal: Terminal, log: Log, snapshot: Annotated[int, typer.Argument(min=1)], name: TagName) -> int:
    """Name a completed snapshot, so that it is kept for as long as the name stands.

    Example: tidefold tag accounts 12 before-migration

    Next: tidefold untag LOG TAG frees it
    """
    from tidefold.operations.tag import tag as act

    pipeline = terminal.pipeline()
    return print_outcomes(terminal, "tag", [act(pipeline, pipeline.log(log).id, name, snapshot)])


def untag(terminal: Terminal, log: Log, name: TagName) -> int:
    """Free a tag; the snapshot then goes when retention says so.

    Example: tidefold untag accounts before-migration

    Next: tidefold subsume LOG --plan
    """
    from tidefold.operations.tag import untag as act

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
    from tidefold.operations.drop import drop as act

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
