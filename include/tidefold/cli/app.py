"""The application: which commands there are, in which order and group."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tidefold
from tidefold.cli.terminal import command, help_text

# Functions of modules in `cli.commands`.
_FIRST = (
    "setup.demo init.init setup.validate plan.plan step.run inspect.status read.read inspect.explain restore.restore"
)
# A group is a module: its docstring is the help, these of its functions are the commands. `_`: a word of Python.
_GROUPS = {
    "step": "ingest materialize quality confirm abort",
    "snapshot": "history diff report tail as_of tag untag hold release",
    "retain": "plan subsume truncate compact clean drop",
    "check": "doctor verify drill",
    "move": "savepoint import_ export resume rebuild",
    "quarantine": "list_ show retry settle",
    "consumer": "register remove",
    "set": "show views release",
    "source": "attest load",
    "spark": "start stop status jars serve",
}
_HIDDEN = ("spark serve",)
# What former words are now. A command that only moved into a group is found by its name.
_FORMER = {
    "audit": "step quality --again",
    "clean-local": "retain clean --local",
    "compact-log": "retain compact",
    "explain-error": "explain CODE",
    "restore --to": "move export",
    "scrub": "check verify --share 5% --repair",
    "sets": "set show",
}
_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class _Commands(TyperGroup):
    """All commands. A former word is answered with the one of now."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and (words := self._find_now(args)):
            typer.echo("There is no command `tidefold {}`. Use `tidefold {}`.".format(*words), err=True)
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)

    def _find_now(self, args: list[str]) -> tuple[str, str] | None:
        """Returns the former words, and those of now."""
        for former, now in _FORMER.items():
            word, *options = former.split()
            if args[0] == word and set(options) <= set(args):
                return former, now
        groups = {} if args[0] in self.commands else self.commands
        grouped = (name for name, one in groups.items() if args[0] in getattr(one, "commands", ()))
        return next(((args[0], f"{name} {args[0]}") for name in grouped), None)


class _Group(TyperGroup):
    """A group of commands. One with a `plan` is, alone, its plan."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        alone = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        planned = alone and "plan" in self.commands and not ctx.resilient_parsing
        return super().parse_args(ctx, ["plan", *args] if planned else args)


app = typer.Typer(
    name="tidefold",
    cls=_Commands,
    pretty_exceptions_enable=False,
    epilog=(
        "Exit codes: 0 done, 1 unexpected, 2 wrong input, 3 refused or gate failed, 4 not found, 5 damaged, 6 storage, "
        "7 busy, 130 interrupted."
    ),
    **_SETTINGS,
)


def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Changelogs in; verified, restorable Delta tables out.

    A run ingests landed changes and folds them into a staged snapshot. The quality gate judges it, and only what passes
    is published.

    These act on all logs if you name none: run, status, step ingest, step materialize, step quality, snapshot tail,
    snapshot as-of, check verify, quarantine list, and all of retain but drop. The others need the name of a log.

    Begin: tidefold init landing/, then tidefold validate, then tidefold run
    """


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidefold {tidefold.__version__}")
        raise typer.Exit


def _add_commands() -> None:
    app.callback(help=help_text(main.__doc__))(main)
    for place in _FIRST.split():
        module, _, name = place.partition(".")
        app.command(name)(command(getattr(_load(module), name), name))
    for group, names in _GROUPS.items():
        module = _load(group)
        below = typer.Typer(cls=_Group, help=help_text(module.__doc__), **_SETTINGS)
        for name in names.split():
            word = name.strip("_").replace("_", "-")
            path = f"{group} {word}"
            below.command(word, hidden=path in _HIDDEN)(command(getattr(module, name), path))
        app.add_typer(below, name=group, rich_help_panel="Groups of commands")


def _load(module: str) -> Any:
    return import_module(f"tidefold.cli.commands.{module}")


_add_commands()
