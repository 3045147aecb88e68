"""The application: which commands there are, in which order and group."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

import tidefold
from tidefold.cli.commands import quarantine
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

# By group: the module in `cli.commands`, and its functions. `import` is a word of Python.
_GROUPS = {
    "Begin": "setup.demo init.init setup.validate setup.doctor setup.jars setup.spark",
    "Look (no Spark)": (
        "inspect.status inspect.sets inspect.history read.read inspect.explain inspect.explain_error inspect.report "
        "inspect.diff verify.verify verify.scrub verify.drill"
    ),
    "Work": (
        "snapshot.run snapshot.ingest snapshot.materialize snapshot.quality snapshot.audit restore.restore "
        "snapshot.as_of"
    ),
    "Savepoints": "restore.savepoint restore.import_ restore.resume",
    "Log (no Spark)": "snapshot.tail snapshot.compact_log retention.consumer",
    "Decide (no Spark)": "snapshot.confirm snapshot.abort",
    "Keep (no Spark)": (
        "retention.subsume retention.truncate retention.clean_local retention.clean retention.tag retention.untag "
        "retention.hold retention.release retention.drop verify.rebuild"
    ),
}


def _add_commands() -> None:
    for group, places in _GROUPS.items():
        for place in places.split():
            module, _, name = place.partition(".")
            act = getattr(import_module(f"tidefold.cli.commands.{module}"), name)
            app.command(name.strip("_").replace("_", "-"), rich_help_panel=group)(command(act))


_add_commands()
app.add_typer(quarantine.app, name="quarantine", rich_help_panel="Look (no Spark)")
