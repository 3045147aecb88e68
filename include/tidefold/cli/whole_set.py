"""Options and arguments of the commands that act on one log or on a whole set."""

from __future__ import annotations

from typing import Annotated

import typer

from tidefold.errors import InvalidInputError

OfSet = Annotated[str | None, typer.Option("--set", help="Act on all logs of this set.", metavar="NAME")]
VersionNumber = Annotated[int | None, typer.Option("--version", help="Default: the published one.", metavar="N", min=1)]


def name_target(log: str | None, of_set: str | None, version: int | None = None, *of_one: object) -> str:
    """Returns the log or the set that a command acts on. Raises InvalidInputError: neither, or options of the other.

    of_one: arguments of one log.
    """
    if of_set is None and log is None:
        raise InvalidInputError("LOG_MISSING", "The command needs a log.", hint="Give LOG, or --set NAME.")
    if of_set is None and version is not None:
        raise InvalidInputError("SET_OPTIONS", "--version needs --set.", hint="Give --set NAME instead of LOG.")
    if of_set is not None and any((log, *of_one)):
        message = "--set acts on all logs of a set, so arguments of one log have no meaning."
        raise InvalidInputError("SET_OPTIONS", message, hint="Leave out the log, its snapshot and options of one log.")
    return of_set or log or ""
