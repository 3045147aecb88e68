"""The application: which commands there are, in which order and group."""

from __future__ import annotations

from typing import Annotated

import typer

import tidefold
from tidefold.cli.commands import (
    confirm,
    diff,
    explain,
    init,
    inspect,
    pipeline,
    point_in_time,
    quarantine,
    read,
    rebuild,
    restore,
    retention,
    savepoint,
    scrub,
    tail,
    verify,
)
from tidefold.cli.terminal import command, help_text

app = typer.Typer(
    name="tidefold",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Exit codes: 0 done, 1 unexpected, 2 wrong input, 3 refused or gate failed, 4 not found, 5 damaged, 6 storage, "
        "7 busy, 130 interrupted."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidefold {tidefold.__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Changelogs in; verified, restorable Delta tables out.

    ingest reads landed changes, materialize folds them into a staged snapshot, quality judges it, and confirm publishes
    it or abort undoes it. run does all of these.

    Begin: tidefold init landing/, then tidefold validate, then tidefold run
    """


app.callback(help=help_text(main))(main)

_GROUPS = {
    "Begin": (init.init, inspect.validate),
    "Look (no Spark)": (
        *(inspect.status, inspect.history, read.read, explain.explain, inspect.report),
        *(diff.diff, verify.verify, scrub.scrub, restore.drill),
    ),
    "Work": (
        *(pipeline.run, pipeline.ingest, pipeline.materialize, pipeline.quality, pipeline.audit),
        *(restore.restore, point_in_time.as_of),
    ),
    "Savepoints": (savepoint.savepoint, savepoint.import_, savepoint.resume),
    "Log (no Spark)": (tail.tail, tail.compact_log, retention.consumer),
    "Decide (no Spark)": (confirm.confirm, confirm.abort),
    "Keep (no Spark)": (
        *(
            retention.subsume,
            retention.truncate,
            retention.clean_local,
            retention.clean,
            retention.tag,
            retention.untag,
        ),
        *(retention.hold, retention.release, retention.drop, rebuild.rebuild),
    ),
}
for _group, _acts in _GROUPS.items():
    for _act in _acts:
        app.command(_act.__name__.rstrip("_").replace("_", "-"), rich_help_panel=_group)(command(_act))
app.add_typer(quarantine.app, name="quarantine", rich_help_panel="Look (no Spark)")
