"""What all commands share: common options, printed results, and errors with exit codes."""

from __future__ import annotations

import inspect
import io
import json
import math
import os
import re
import secrets
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, get_type_hints

import typer

from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.domain.wording import count_noun, plain
from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.interruption import is_interrupted
from tidefold.presentation.tables import fit_table, mask_control_characters

if TYPE_CHECKING:
    from tidefold.operations.ground.pipeline import Pipeline

# Wider than any table: a name that is cut cannot be searched for.
_PIPED_WIDTH = 100_000
_BUG_CODE = 1
_INTERRUPTED = 130
_Config = Annotated[Path, typer.Option("--config", "-c", envvar="TIDEFOLD_CONFIG", help="The configuration file.")]
_Debug = Annotated[bool, typer.Option("--debug", help="Print a traceback with an error.")]
# Why texts of this command could not be written.
_lost: list[OSError] = []
_RUN = re.compile(r"[\w./:+-]{1,200}")
OptionalSnapshot = Annotated[int | None, typer.Argument(help="Id of the snapshot.", metavar="SNAPSHOT", min=1)]
Live = Annotated[bool, typer.Option("--live", help="Include changes that are ingested but not folded.")]
SnapshotId = Annotated[int | None, typer.Option("--snapshot", help="Id of the snapshot.", min=1)]
RunId = Annotated[
    str | None,
    typer.Option(
        "--run", "--run-id", help="Id of the run. The same id again continues that run.", show_default="a new one"
    ),
]
Takeover = Annotated[bool, typer.Option("--takeover", help="Supersede an open attempt of another run.")]
TakeoverAfter = Annotated[
    float | None,
    typer.Option(
        "--takeover-after",
        help="Supersede an attempt of another run after this many seconds without progress (60 or more).",
        metavar="SECONDS",
        show_default="never",
    ),
]
KindOfSnapshot = Annotated[
    KindPolicy | None,
    typer.Option(
        "--kind",
        help="full: files of its own; incremental: shares files of confirmed snapshots; auto: chosen by cost.",
        show_default="as configured",
    ),
]
AtInstant = Annotated[str, typer.Option("--at", help="With its zone: 2026-11-05T00:00:00Z.", metavar="INSTANT")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: print what the command would do.")]


class Format(StrEnum):
    """The format of a result on stdout."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Terminal:
    """One call of the command line. It prints results to stdout and everything else to stderr.

    command: its words, such as `step ingest`.
    """

    config_path: Path
    format: Format
    debug: bool
    command: str = ""

    def pipeline(self) -> Pipeline:
        """The configured pipeline. Raises InvalidInputError, NotFoundError."""
        from tidefold.wiring import open_pipeline

        return open_pipeline(self.config_path, self.note)

    def result(self, data: Mapping[str, Any], *parts: Any) -> None:
        """Prints a result: `data` as one JSON object, or the parts (text or rich tables) for people."""
        self.json(data)
        for part in parts:
            shown = part if isinstance(part, str) else fit_table(part, terminal_width())
            if isinstance(shown, str):
                self.line(shown)
            elif self.format is Format.TEXT:
                _write(sys.stdout, _draw(shown))

    def json(self, data: Mapping[str, Any]) -> None:
        """Prints the one JSON object of a call if the format is JSON."""
        if self.format is Format.JSON:
            _write(sys.stdout, json.dumps(_finite(data), indent=2, default=plain, allow_nan=False) + "\n")

    def line(self, text: str) -> None:
        """Prints a line of the result for people."""
        if self.format is Format.TEXT:
            _write(sys.stdout, mask_control_characters(text) + "\n")

    def note(self, text: str) -> None:
        """Prints a line for people on stderr."""
        _write(sys.stderr, mask_control_characters(text) + "\n")

    def note_cut(self, shown: int, noun: str, more: str = "--limit") -> None:
        """Prints that a result has more than is shown, and what shows it."""
        self.note(f"the first {noun if shown == 1 else count_noun(shown, noun)}; {more} shows more")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns an error in the block into an exit code and two lines, instead of a traceback."""
        try:
            yield
        except TidefoldError as error:
            self._fail(error.code, error.message, error.hint)
            raise typer.Exit(error.exit_code) from error
        except (typer.Exit, typer.Abort):
            raise
        except (KeyboardInterrupt, Exception) as error:
            if is_interrupted() or isinstance(error, KeyboardInterrupt):
                hint = "`tidefold status` shows the state of each log."
                self._fail("INTERRUPTED", "The command was interrupted.", hint)
                raise typer.Exit(_INTERRUPTED) from None
            self._fail(
                "UNEXPECTED", f"{type(error).__name__}: {error}", "Call again with --debug and report the output."
            )
            raise typer.Exit(_BUG_CODE) from error

    def error(self, text: str, hint: str) -> None:
        """Prints an error to stderr: what is wrong, then the next step on a line of its own."""
        self.note(f"error {text.replace(f' Next: {hint}', '', 1) if hint else text}")
        if hint:
            self.note(f"next: {hint}")

    def _fail(self, code: str, message: str, hint: str) -> None:
        if self.debug:
            self.note(traceback.format_exc())
        self.error(f"[{code}] {message}", hint)
        if self.format is Format.JSON:
            self.json({"error": {"code": code, "message": message, "hint": hint}})


def _write(stream: TextIO, text: str) -> None:
    """Writes a text. Once nobody reads (`| head`), or a disk is full, the command goes on, and the text is dropped."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            _lost.append(error)


def _finite(data: Any) -> Any:
    """Replaces the numbers that JSON does not have, NaN and the infinities, by their names."""
    if isinstance(data, Mapping):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    return data


def terminal_width() -> int:
    """Returns COLUMNS, or the width of the terminal. Piped output is as wide as its tables need."""
    return shutil.get_terminal_size((_PIPED_WIDTH, 0)).columns


def _draw(part: Any) -> str:
    """Returns the text of a rich table."""
    from rich.console import Console

    drawn, is_terminal = io.StringIO(), sys.stdout.isatty()
    console = Console(
        file=drawn, force_terminal=is_terminal, width=terminal_width(), highlight=False, emoji=False, markup=False
    )
    console.print(part)
    return drawn.getvalue()


def choose_logs(pipeline: Pipeline, logs: Sequence[str] | None) -> list[str]:
    """Returns the named logs, each once, or all configured logs. Raises NotFoundError."""
    return [pipeline.log(log).id for log in dict.fromkeys(logs or pipeline.config.logs)]


def add_logs_of_sets(pipeline: Pipeline, logs: Sequence[str]) -> list[str]:
    """Returns the logs and the other logs of their sets, which are published together."""
    members = [log for one in pipeline.config.sets.values() if set(one.logs) & set(logs) for log in one.logs]
    return list(dict.fromkeys([*logs, *members]))


_Format = Annotated[Format, typer.Option("--format", help="Output on stdout: text, or one JSON object.")]
_COMMON: dict[str, tuple[Any, Any]] = {
    "config": (_Config, Path("tidefold.yaml")),
    "format": (_Format, Format.TEXT),
    "debug": (_Debug, False),
}


def command(act: Callable[..., int | None], words: str) -> Callable[..., None]:
    """Makes a typer command of a function that takes a Terminal first: adds the options that all commands have.

    The function returns its exit code; None is 0. words: what the user types.
    """
    hints = get_type_hints(act, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(act).parameters.values())[1:]]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _COMMON.items()
    ]

    @wraps(act)
    def run(*, config: Path, format: Format, debug: bool, **options: Any) -> None:
        terminal = Terminal(config, format, debug, words)
        _lost.clear()
        with terminal.errors():
            code = act(terminal, **options)
            if not code:
                _require_written()
        if code:
            raise typer.Exit(code)

    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *common]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = help_text(act.__doc__)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _require_written() -> None:
    """Raises TidefoldError if a part of what the command printed is lost."""
    if _lost:
        raise TidefoldError(
            "OUTPUT_LOST", f"The command is done, but what it printed could not be written: {_lost[0].strerror}."
        )


def help_text(docstring: str | None) -> str:
    """Returns a docstring with one line for each paragraph: the help page wraps lines at the terminal's width."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def run_id(asked: str | None) -> str:
    """Returns the given id, or a new one. Raises InvalidInputError."""
    if asked is None:
        return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    if not _RUN.fullmatch(asked):
        raise InvalidInputError("RUN_INVALID", "The run id is not valid.")
    return asked


def complete_log(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of configured logs, for the shell."""
    from tidefold.config import load_config

    path = ctx.params.get("config") or os.environ.get("TIDEFOLD_CONFIG") or "tidefold.yaml"
    try:
        return [log for log in load_config(Path(path)).logs if log.startswith(incomplete)]
    except TidefoldError:
        return []


Log = Annotated[str, typer.Argument(help="Id of the log.", metavar="LOG", autocompletion=complete_log)]
LogOrSet = Annotated[str | None, typer.Argument(help="A log, or --set.", metavar="LOG", autocompletion=complete_log)]
Logs = Annotated[list[str] | None, typer.Argument(help="Default: all.", metavar="LOG", autocompletion=complete_log)]
