"""The command that begins a project: init."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.terminal import Terminal
from tidefold.lifecycle.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from tidefold.config import Config


def init(
    terminal: Terminal,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that holds landed files, at any depth.")],
) -> None:
    """Write a commented tidefold.yaml from what has landed.

    Samples the files below DIR and proposes a log for each topic: its key, its columns, its order. Read the file, then
    change what you know better. An existing file is never overwritten.

    Example: tidefold init landing/ -c tidefold.yaml

    Next: tidefold validate
    """
    from tidefold.cli.proposal import landing_path, render, undecided
    from tidefold.config import load_config
    from tidefold.sources.sample import propose

    path = terminal.config_path
    if path.exists():
        raise _exists(path)
    base = Path(os.path.abspath(path)).parent
    proposed = propose(directory)
    paths = [landing_path(directory, log, base) for log in proposed]
    left_out = {log.id: notes for log, at in zip(proposed, paths, strict=True) if (notes := undecided(log, at, base))}
    if len(left_out) == len(proposed):
        raise _nothing(directory, left_out)
    _create(path, render(proposed, paths, base))
    _tell(terminal, load_config(path), left_out)


def _tell(terminal: Terminal, config: Config, left_out: Mapping[str, Sequence[str]]) -> None:
    data = {"config": str(config.path), "logs": list(config.logs), "left_out": left_out}
    names = ", ".join(config.logs)
    terminal.result(data, f"{terminal.config_path} names {_counted(len(config.logs), 'log')}: {names}.")
    for log, notes in left_out.items():
        terminal.note(f"left out: {log}: {'; '.join(notes)}")
    terminal.note("next: read the file, then `tidefold validate`")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _nothing(directory: Path, left_out: Mapping[str, Sequence[str]]) -> InvalidInputError:
    if not left_out:
        return InvalidInputError(
            "NOTHING_LANDED",
            f"Below `{directory}` is no file that is named as a Kafka sink names it, and none of rows.",
            hint="Names are as `topic+0+0000000000.jsonl`, `.json`, or one of these with `.gz`; or end in `.csv`, "
            "`.csv.gz` or `.parquet`.",
        )
    reasons = "; ".join(f"{log}: {', '.join(notes)}" for log, notes in left_out.items())
    return InvalidInputError(
        "NO_LOG_USABLE", f"None of what landed below `{directory}` can be used in this version. {reasons}."
    )


def _create(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise InvalidInputError("CONFIG_UNWRITABLE", f"`{path}` cannot be written: {error.strerror}.") from error


def _exists(path: Path) -> RefusedError:
    return RefusedError(
        "CONFIG_EXISTS",
        f"`{path}` exists, and is not overwritten.",
        hint="Name another with --config, or move it away.",
    )
