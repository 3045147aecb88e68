"""Commands that decide what is kept: subsume, truncate, tag, untag, drop. They start no JVM."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.cli.arguments import Log, Logs
from tidefold.cli.outcomes import print_outcomes
from tidefold.cli.terminal import Terminal, chosen_logs
from tidefold.operations.outcome import Outcome, each_log

Plan = Annotated[bool, typer.Option("--plan", help="Change nothing: print what would go, in files and bytes.")]
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

    Prints the bound that holds. The log is never cut past what a kept snapshot, an open attempt or replay needs.
    Starts no Spark.

    Example: tidefold truncate accounts --plan

    Next: tidefold status
    """
    from tidefold.operations.truncate import truncate as act

    pipeline = terminal.pipeline()
    outcomes = each_log(chosen_logs(pipeline, logs), lambda log: act(pipeline, log, plan))
    return _print(terminal, "truncate", outcomes)


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
