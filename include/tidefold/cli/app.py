"""The application: which commands there are, in which order and group."""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword
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

# As the user types them: each command is the function of this name in the module of this name.
_GROUPS = {
    "Begin": "demo init validate doctor jars",
    "Look (no Spark)": "status sets history read explain report diff verify scrub drill",
    "Work": "run ingest materialize quality audit restore as-of register",
    "Savepoints": "savepoint import resume",
    "Log (no Spark)": "tail compact-log consumer",
    "Decide (no Spark)": "confirm abort",
    "Keep (no Spark)": "subsume truncate clean-local clean tag untag hold release drop rebuild",
}


def _add_commands() -> None:
    for group, names in _GROUPS.items():
        for name in names.split():
            # `import` is a word of Python.
            place = name.replace("-", "_") + ("_" if iskeyword(name) else "")
            act = getattr(import_module(f"tidefold.cli.commands.{place}"), place)
            app.command(name, rich_help_panel=group)(command(act))


_add_commands()
app.add_typer(quarantine.app, name="quarantine", rich_help_panel="Look (no Spark)")
